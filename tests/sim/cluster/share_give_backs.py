"""What a leader owes to records that were given back with a delay, or as never received.

It holds from the answer to the write of the acknowledgement on: without one, the record is acquired
as before, and its delivery counts.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.checkers import require


class GiveBack(NamedTuple):
    """One record that is available again."""

    next_count: int
    """Delivery count of its next delivery."""
    ready_at: int
    """Time of the leader's clock before which there is none."""


@dataclass
class GiveBacks:
    """Those of one window."""

    unseen_max: int
    """Times that a delivery of a record does not count."""
    unseen: dict[int, int] = field(default_factory=dict)
    """Times that a delivery did not count."""
    _taken: dict[int, GiveBack] = field(default_factory=dict)
    _writing: dict[int, GiveBack] = field(default_factory=dict)
    _owed: dict[int, GiveBack] = field(default_factory=dict)

    def delays(self, offset: int, count: int, ready_at: int) -> None:
        """Record a release with a delay, of a delivery of this count."""
        self._taken[offset] = GiveBack(count + 1, ready_at)

    def returns(self, offset: int, count: int) -> None:
        """Record a release of a record that was never received."""
        is_forgiven = self.unseen.get(offset, 0) < self.unseen_max
        self._taken[offset] = GiveBack(count if is_forgiven else count + 1, 0)

    def begins_write(self) -> None:
        """Record that what was taken is being written."""
        self._writing, self._taken = self._taken, {}

    def ends_write(self, counts: dict[int, int], *, holds: bool) -> None:
        """Record the end of a write; lower the ``counts`` of deliveries that do not count."""
        for offset, one in self._writing.items() if holds else ():
            self._owed[offset] = one
            if counts.get(offset) == one.next_count:
                counts[offset] -= 1
                self.unseen[offset] = self.unseen.get(offset, 0) + 1
        self._writing = {}

    def delivers(self, offset: int, count: int, now: int, where: str) -> None:
        """Check a delivery."""
        owed = self._owed.pop(offset, None)
        if owed is None:
            return
        require(
            now >= owed.ready_at,
            "a delayed record is not delivered before its time",
            f"{where}: at {now}, delayed until {owed.ready_at}",
        )
        require(
            count == owed.next_count,
            "a delivery counts unless its record was never received",
            f"{where}: {count}, not {owed.next_count}",
        )
