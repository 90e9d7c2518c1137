"""Leader epochs of one log: the start offset of each, and the truncation point of a follower that
has diverged.

The rules are Kafka's (KIP-101, KIP-279): an epoch ends where the next one begins, the latest one at
the log end offset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidemark.model.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

_NEVER: Final = Offset(2**63 - 1)


class EpochEntry(NamedTuple):
    """One epoch, and the offset of the first record that was, or will be, written in it."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochs:
    """Leader epochs of one log.

    Invariant: leader epochs strictly increase, and start offsets never decrease.
    """

    __slots__ = ("_epochs", "_starts", "latest", "latest_start")

    latest: LeaderEpoch
    """Highest epoch of the log; NO_EPOCH in an empty log."""
    latest_start: Offset
    """First offset of that epoch; _NEVER in an empty log."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest, self.latest_start = NO_EPOCH, _NEVER
        self.restore(entries)

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replace all entries by ``entries`` (epoch, start offset), in order."""
        self._epochs, self._starts = [], []
        for leader_epoch, start_offset in entries:
            self._epochs.append(leader_epoch)
            self._starts.append(start_offset)
        self._settle()
        self.check()

    def assign(self, leader_epoch: int, start_offset: int) -> bool:
        """Begin an epoch at ``start_offset``, unless it or a newer one has begun already.

        Returns True if it began. Older entries that start at or beyond ``start_offset`` have no
        record and are removed.
        """
        assert leader_epoch >= 0, leader_epoch
        if leader_epoch <= self.latest:
            return False
        keep = bisect_left(self._starts, start_offset)
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(leader_epoch)
        self._starts.append(start_offset)
        self._settle()
        return True

    def end_offset_for(self, leader_epoch: int, log_end: int) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch not above ``leader_epoch``, and its end offset (exclusive).

        (NO_EPOCH, NO_OFFSET) for an epoch above the latest. For one below the first entry, the
        epoch itself and the first entry's start offset: no record of it is left here.
        """
        if leader_epoch < 0 or leader_epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if leader_epoch == self.latest:
            return self.latest, Offset(log_end)
        above = bisect_right(self._epochs, leader_epoch)
        end = Offset(self._starts[above])
        if above == 0:
            return LeaderEpoch(leader_epoch), end
        return LeaderEpoch(self._epochs[above - 1]), end

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """Return the epoch of the record at ``offset``; NO_EPOCH below the first."""
        if offset >= self.latest_start:
            return self.latest
        above = bisect_right(self._starts, offset)
        return LeaderEpoch(self._epochs[above - 1]) if above else NO_EPOCH

    def truncate_to(self, offset: int) -> bool:
        """Remove epochs that begin at or after ``offset``, the new log end offset. True if any
        did.
        """
        keep = bisect_left(self._starts, offset)
        if keep == len(self._starts):
            return False
        del self._epochs[keep:], self._starts[keep:]
        self._settle()
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """Remove epochs that end at or below ``offset``, the new log start offset; the epoch there
        begins at it. True if anything changed.
        """
        below = bisect_right(self._starts, offset)
        if below == 0 or (below == 1 and self._starts[0] == offset):
            return False
        del self._epochs[: below - 1], self._starts[: below - 1]
        self._starts[0] = offset
        self._settle()
        return True

    def entries(self) -> tuple[EpochEntry, ...]:
        """Return all entries, oldest first."""
        return tuple(
            EpochEntry(LeaderEpoch(epoch), Offset(start))
            for epoch, start in zip(self._epochs, self._starts, strict=True)
        )

    def _settle(self) -> None:
        self.latest = LeaderEpoch(self._epochs[-1]) if self._epochs else NO_EPOCH
        self.latest_start = Offset(self._starts[-1]) if self._starts else _NEVER

    def check(self) -> None:
        """Assert the invariant."""
        assert self._epochs == sorted(set(self._epochs)), self.entries()
        assert self._starts == sorted(self._starts), self.entries()
        latest = (self._epochs[-1], self._starts[-1]) if self._starts else (NO_EPOCH, _NEVER)
        assert (self.latest, self.latest_start) == latest, self.entries()
