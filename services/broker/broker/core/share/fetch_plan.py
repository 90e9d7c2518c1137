"""Distribution of the records and bytes of one ShareFetch request over its partitions.

Partitions are served in the session's order. Each may use an even part of the bytes that are left,
so that the first does not take all, and what one does not use is left to those after it. Records
are not divided: a partition is given whole batches, and the others come first the next time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.core.share.sessions import PartitionKey


class FetchLimits(NamedTuple):
    """Limits of one request."""

    records_max: int
    bytes_max: int


class PartitionTurn(NamedTuple):
    """Limits of one partition."""

    key: PartitionKey
    records_max: int
    bytes_max: int
    may_exceed: bool
    """Nothing was given yet: a first batch that is larger than the limit is given all the same."""


class FetchPlan:
    """One request's way through its partitions: ``next_turn``, then ``gave``, until None.

    Invariant: ``served`` partitions gave records, in the order of their turns.
    """

    def __init__(self, keys: Sequence[PartitionKey], limits: FetchLimits) -> None:
        self.served: list[PartitionKey] = []
        self._waiting = list(reversed(keys))
        self._records_left = limits.records_max
        self._bytes_left = limits.bytes_max
        self._turn: PartitionKey | None = None

    def next_turn(self) -> PartitionTurn | None:
        """The next partition to read from; None once the request is full or all had their turn."""
        if not self._waiting or self._records_left <= 0 or self._bytes_left <= 0:
            return None
        bytes_max = max(1, self._bytes_left // len(self._waiting))
        self._turn = self._waiting.pop()
        return PartitionTurn(self._turn, self._records_left, bytes_max, not self.served)

    def gave(self, records: int, bytes_read: int) -> None:
        """Report the records and bytes that the partition at turn gave; 0 records: none."""
        assert self._turn is not None, "a partition gives at its turn"
        if records:
            self.served.append(self._turn)
            self._records_left -= records
            self._bytes_left -= bytes_read
        self._turn = None
