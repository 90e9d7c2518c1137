"""Compaction that is interrupted between any two calls of the disk, again and again: the same last
values, and no files left over.
"""

from typing import NamedTuple

import pytest
from broker.storage.compaction import is_current
from broker.storage.log import Log
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.test_compaction_swap import (
    NOW,
    ORDERS,
    cleaned,
    filled,
    last_values,
    opened,
    records_of,
)

LEFT_OVER = (".cleaned", ".swap", ".deleted")


class CutOffError(Exception):
    """The process, or its worker, is killed here."""


class CutOffDisk(MemDisk):
    """A disk that dies before a change, after a number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None

    def check(self, path: str, call: str) -> None:
        if self.changes_left is not None and call != "read":
            if self.changes_left == 0:
                raise CutOffError(path)
            self.changes_left -= 1
        super().check(path, call)


class Round(NamedTuple):
    """One round of the cleaner, interrupted or not; before it the log may lose its first
    segment.
    """

    segment_bytes_max: int
    changes: int | None
    power_fails: bool
    starts_later: bool


class Life:
    """A log over its crashes."""

    def __init__(self) -> None:
        self.disk = CutOffDisk()
        _, self.log = filled(self.disk)

    def live(self, one: Round) -> None:
        if one.starts_later:
            self._start_later()
        expected, end = last_values(records_of(self.log)), self.log.log_end
        self.disk.changes_left = one.changes
        if not self._compact(one.segment_bytes_max):
            self._start_again(power_fails=one.power_fails)
        self.disk.changes_left = None
        assert self.log.damage is None
        assert self.log.log_end == end
        assert last_values(records_of(self.log)) == expected

    def _start_later(self) -> None:
        """Move the log start, as DeleteRecords and retention do."""
        bases = [one.base_offset for one in self.log.segments()]
        if len(bases) > 2:
            self.log.advance_log_start(bases[1])
            self.log.apply_retention(NOW, self.log.log_end)

    def _compact(self, segment_bytes_max: int) -> bool:
        """Return False if the process must start again; a worker that dies alone leaves its
        files.
        """
        if len(self.log.segments()) == 1:
            return True  # only the active segment is there
        try:
            result = cleaned(self.disk, self.log, segment_bytes_max=segment_bytes_max)
        except CutOffError:
            return True
        sizes = {one.base_offset: one.size_bytes for one in self.log.segments()}
        assert is_current(result, sizes)
        try:
            return all(swap(self.log, group) for group in result.groups)
        except CutOffError:
            return False

    def _start_again(self, *, power_fails: bool) -> None:
        self.disk.changes_left = None
        if power_fails:
            self.disk.crash([10**6])
        else:
            self.disk.kill()
        manager = opened(self.disk)
        self.log = manager.logs[ORDERS]
        flush = manager.begin_flush(only_group=False, now_ms=NOW + 10**9)
        if flush is not None:  # unsynced records are not compacted
            flush.run()
            manager.finish_flush(flush)
        assert not [name for name in self.disk.list("orders-0") if name.endswith(LEFT_OVER)]


def swap(log: Log, group: object) -> bool:
    return log.swap_segments(group.old_base_offsets, group.path)  # type: ignore[attr-defined]


SIZES = st.sampled_from([1, 400, 1 << 30])
ROUNDS = st.lists(
    st.builds(Round, SIZES, st.none() | st.integers(0, 75), st.booleans(), st.booleans()),
    min_size=1,
    max_size=5,
)


@pytest.mark.feature("A19")
@settings(max_examples=40, deadline=None)
@example([Round(1 << 30, 3, False, False), Round(1, 33, False, True)])
@given(ROUNDS)
def test_no_crash_of_any_round_loses_a_value(rounds: list[Round]) -> None:
    life = Life()
    for one in rounds:
        life.live(one)


@pytest.mark.feature("A19")
@pytest.mark.parametrize("power_fails", [False, True])
def test_every_crash_behind_a_round_that_came_to_nothing_is_survived(power_fails: bool) -> None:
    """The first round leaves files of a segment that is gone by the second, which is interrupted
    while it puts its segments in place.
    """
    for changes in range(24, 58, 3 if power_fails else 1):
        life = Life()
        life.live(Round(1 << 30, 3, False, False))
        life.live(Round(1, changes, power_fails, True))


def test_a_replacement_that_is_refused_leaves_nothing() -> None:
    disk = MemDisk()
    _, log = filled(disk)
    (group,) = cleaned(disk, log).groups
    assert not log.swap_segments([99], group.path)
    assert not [name for name in disk.list("orders-0") if name.endswith(".cleaned")]
