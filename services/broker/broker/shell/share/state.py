"""Seam to the share-coordinators."""

from collections.abc import Sequence
from typing import Protocol

from tidemark.model.share_state import (
    ReadState,
    ReadStateSummary,
    StateRead,
    StateResult,
    StateSummary,
    WriteState,
)


class ShareState(Protocol):
    """``ShareStateClient``, as far as a broker that leads partitions uses it. No method raises:
    answers have the error.
    """

    async def read(
        self, group_id: str, reads: Sequence[ReadState], timeout_s: float
    ) -> list[StateRead]:
        """Return the states of share-partitions of one group, in order."""

    async def write(
        self, group_id: str, writes: Sequence[WriteState], timeout_s: float
    ) -> list[StateResult]:
        """Write changes of share-partitions of one group."""

    async def summaries(
        self, group_id: str, summaries: Sequence[ReadStateSummary], timeout_s: float
    ) -> list[StateSummary]:
        """Read epochs, start offsets and counts of share-partitions of one group."""
