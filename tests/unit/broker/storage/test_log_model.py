"""A log is a list of batches, whatever happens to the process, the kernel or the disk."""

from broker.storage.time_search import SearchedTo
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    PlainLog,
    append,
    bytes_of,
    completed,
    flush,
    is_prefix_of_whole_batches,
    new_log,
    opened,
)

DICE = st.lists(st.integers(0, 10**6), max_size=8)


class LogAgainstList(RuleBasedStateMachine):
    """Every rule does the same to a Log on a MemDisk and to a PlainLog."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemDisk()
        self.plain = PlainLog()
        self.boots = 1
        self.cut = False
        """True if truncated since the last flush: a power failure may restore what was cut."""

    @initialize()
    def start(self) -> None:
        _, self.manager, self.log = new_log(disk=self.disk)
        flush(self.manager)
        self.disk.sync_directory("")

    def reopened(self) -> None:
        self.manager = opened(self.disk, boot_id=f"boot-{self.boots}")
        self.log = self.manager.logs[ORDERS]
        assert self.log.damage is None

    @rule(records=st.integers(1, 5), body=st.integers(0, 400), timestamp=st.integers(NOW, NOW + 50))
    def append(self, records: int, body: int, timestamp: int) -> None:
        epoch = max(self.log.epochs.latest, 0)
        batch = append(self.log, records, body, timestamp=timestamp, epoch=epoch)
        self.plain.add(batch)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        flush(self.manager)
        self.cut = False
        self.plain.synced_end = self.plain.log_end
        assert self.log.synced_end == self.plain.log_end

    @rule()
    def begin_a_new_epoch(self) -> None:
        self.log.assign_epoch(self.log.epochs.latest + 1, self.log.log_end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        start = self.plain.log_start + int(part * (self.plain.log_end - self.plain.log_start))
        self.log.advance_log_start(start)
        self.plain.log_start = start
        self.log.apply_retention(NOW, self.log.log_end)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        span = self.plain.log_end - self.plain.log_start
        end = self.plain.log_start + int(part * span)
        if self.plain.log_start < end < self.plain.log_end:
            self.cut = True
            self.log.truncate_to(end)
            self.plain.cut_to(end)
            self.plain.log_start = min(self.plain.log_start, self.log.log_end)
            self.plain.synced_end = min(self.plain.synced_end, self.log.log_end)

    @rule()
    def stop_cleanly(self) -> None:
        self.manager.close()
        self.plain.synced_end = self.plain.log_end
        self.reopened()
        assert self.manager.clean_start
        assert self.manager.reports == []

    @rule()
    def kill(self) -> None:
        if self.cut:
            self.flush()
        self.disk.kill()
        self.reopened()

    @rule(dice=DICE)
    def lose_power(self, dice: list[int]) -> None:
        if self.cut:
            self.flush()
        self.disk.crash(dice)
        self.boots += 1
        self.reopened()
        assert self.log.log_end >= self.plain.synced_end
        self.plain.cut_to(self.log.log_end)
        self.plain.log_start = self.log.log_start
        self.plain.synced_end = min(self.plain.synced_end, self.log.log_end)

    @rule(offset=st.floats(0, 1), end=st.floats(0, 1), bytes_max=st.integers(1, 3_000))
    def read(self, offset: float, end: float, bytes_max: int) -> None:
        span = self.plain.log_end - self.plain.log_start
        first = self.plain.log_start + int(offset * span)
        ends = [last + 1 for _, last, _ in self.plain.batches if last >= first]
        stop = ends[int(end * (len(ends) - 1))] if ends else self.plain.log_end
        found = self.log.read(first, bytes_max, end=stop)
        readable = self.plain.readable(first, stop) if first < stop else []
        assert is_prefix_of_whole_batches(bytes_of(found), readable, bytes_max)
        assert found.length_bytes == len(bytes_of(found))

    @rule(timestamp=st.integers(NOW - 1, NOW + 51))
    def look_up_a_timestamp(self, timestamp: int) -> None:
        found = self.log.batch_for_timestamp(timestamp, end=self.log.log_end)
        assert not isinstance(found, SearchedTo), "the log is short"
        readable = self.plain.readable(self.plain.log_start, self.plain.log_end)
        later = [one for one in readable if int.from_bytes(one[35:43], "big") >= timestamp]
        got = found and found.file.read_at(found.position, found.length)
        assert got == (later[0] if later else None)

    @rule()
    def look_up_the_largest_timestamp(self) -> None:
        found = completed(self.log.max_timestamp_batch(end=self.log.log_end))
        readable = self.plain.readable(self.plain.log_start, self.plain.log_end)
        stamps = [int.from_bytes(one[35:43], "big") for one in readable]
        got = found and found.file.read_at(found.position, found.length)
        assert got == (readable[stamps.index(max(stamps))] if readable else None)

    @invariant()
    def same_bounds(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end == self.plain.log_end
            assert self.log.log_start == self.plain.log_start
            assert self.log.synced_end <= self.log.log_end
            self.log.epochs.check()

    @invariant()
    def same_records(self) -> None:
        if hasattr(self, "log"):
            start, end = self.plain.log_start, self.plain.log_end
            everything = self.log.read(start, 10**9, end=end)
            expected = b"".join(self.plain.readable(start, end)) if start < end else b""
            assert bytes_of(everything) == expected


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
