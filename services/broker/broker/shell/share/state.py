"""Seam to the share-coordinators."""

from collections.abc import Sequence
from typing import Protocol

from tidemark.model.share_state import ReadState, StateRead, StateResult, WriteState


class ShareState(Protocol):
    """``ShareStateClient``, as far as a broker that leads partitions uses it. Neither method
    raises: answers have the error.
    """

    async def read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        """Return the states of share-partitions of one group, in order."""

    async def write(
        self, group_id: str, writes: Sequence[WriteState], timeout_s: float
    ) -> list[StateResult]:
        """Write changes of share-partitions of one group."""
