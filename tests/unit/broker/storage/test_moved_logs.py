"""Moves of a log between two directories, interrupted between any two calls of the disks: there is
one valid log afterwards, and it has every record.
"""

from dataclasses import dataclass, field

import pytest
from broker.core.directory_move import (
    Advance,
    Copy,
    Cut,
    DirectoryMove,
    FutureView,
    LogView,
    Restart,
    Swap,
    Sync,
)
from broker.storage.directory_names import future_name
from broker.storage.disk_failures import DiskFailures
from broker.storage.future_logs import MOVED_FROM
from broker.storage.log import Log
from broker.storage.log_copy import append_chunk, begin_at, read_chunk
from broker.storage.log_manager import LogManager
from broker.storage.moved_logs import change_places, settle_moves
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    ORDERS_ID,
    TINY,
    append,
    bytes_of,
    flush,
    opened,
)
from unit.broker.storage.test_compaction_crashes import CutOffDisk, CutOffError

CHUNK_BYTES = 500
FUTURE = future_name(ORDERS, ORDERS_ID)


@dataclass
class Broker:
    """A broker with two directories, and a log in the first."""

    disks: tuple[CutOffDisk, CutOffDisk] = field(
        default_factory=lambda: (CutOffDisk(), CutOffDisk())
    )
    written: list[bytes] = field(default_factory=list)
    synced: int = 0
    """Records that count as synced."""

    def __post_init__(self) -> None:
        self.start()
        self.managers[0].create(ORDERS, ORDERS_ID, TINY, NOW)
        for _ in range(12):
            self.write()
        flush(self.managers[0])
        self.synced = self.log.log_end

    def start(self) -> None:
        failures = DiskFailures(self.disks)
        self.managers = tuple(
            opened(disk, directory_id=name, failures=failures)
            for disk, name in zip(self.disks, "ab", strict=True)
        )
        settle_moves(self.managers, all_open=True)

    @property
    def homes(self) -> list[LogManager]:
        return [manager for manager in self.managers if ORDERS in manager.logs]

    @property
    def log(self) -> Log:
        (home,) = self.homes
        return home.logs[ORDERS]

    def write(self, **fields: int) -> None:
        self.written.append(append(self.log, epoch=1, **fields))

    def step(self, move: DirectoryMove) -> bool:
        """Take one step of the broker's worker. Return False after the last one."""
        source, target = self.managers
        log, future = source.logs[ORDERS], target.futures.logs[ORDERS]
        step = move.next_step(
            LogView(log.log_start, log.log_end, self.synced, log.cut_to),
            FutureView(future.log_start, future.log_end, future.synced_end),
        )
        if isinstance(step, Cut):
            future.truncate_to(step.end)
            log.cut_to = 2**63 - 1
        elif isinstance(step, Restart):
            begin_at(future, log, step.start)
        elif isinstance(step, Advance):
            future.advance_log_start(step.start)
            future.apply_retention(NOW, future.log_start)
        elif isinstance(step, Copy):
            read = log.read(step.offset, CHUNK_BYTES, end=log.log_end)
            append_chunk(future, read_chunk(read), NOW)
        elif isinstance(step, Sync):
            target.futures.begin_sync(future).run()
            assert target.futures.finish_sync(future) is None
            move.synced()
        elif isinstance(step, Swap):
            change_places(source, target, log, self.synced)
            self.write()
            target.disk.sync_directory("")
            source.remove_files(log, NOW)
            source.disk.sync_directory("")
            target.futures.forget_sources(ORDERS)
            return False
        return True

    def move(self) -> None:
        source, target = self.managers
        config, sources = self.log.config, (source.stamp.directory_id,)
        target.futures.create(ORDERS, ORDERS_ID, config, sources, NOW)
        self.go_on(DirectoryMove())

    def go_on(self, move: DirectoryMove) -> None:
        while self.step(move):
            pass

    def records(self) -> bytes:
        log = self.log
        return bytes_of(log.read(log.log_start, 1 << 30, end=log.log_end))


def interrupted(at: int, *, power_fails: bool) -> tuple[Broker, bool]:
    """Return a broker whose move dies before that change of a disk, and whether it did."""
    broker = Broker()
    left = [at]
    for disk in broker.disks:
        disk.__class__ = _shared_cut(left)
    try:
        broker.move()
        died = False
    except CutOffError:
        died = True
    for disk in broker.disks:
        disk.__class__ = CutOffDisk
        if power_fails:
            disk.crash(())
        else:
            disk.kill()
    return broker, died


def _shared_cut(left: list[int]) -> type[CutOffDisk]:
    """Disks of one machine: the count of changes is theirs together."""

    class SharedCut(CutOffDisk):
        def check(self, path: str, call: str) -> None:
            if call != "read":
                if left[0] == 0:
                    raise CutOffError(path)
                left[0] -= 1
            MemDisk.check(self, path, call)

    return SharedCut


@pytest.mark.feature("AD92")
def test_a_log_moves_with_all_that_belongs_to_it() -> None:
    broker = Broker()
    table, epochs = broker.log.producers, broker.log.epochs
    expected = broker.records()
    broker.move()
    assert broker.homes == [broker.managers[1]]
    assert broker.records()[: len(expected)] == expected
    assert broker.log.producers is table
    assert broker.log.epochs is epochs
    assert broker.log.directory == str(ORDERS)
    assert not broker.disks[0].exists(str(ORDERS))
    assert not broker.disks[1].exists(f"{ORDERS}/{MOVED_FROM}")


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("power_fails", [False, True])
def test_a_crash_at_any_moment_leaves_one_log_with_every_record(power_fails: bool) -> None:
    at, died, moved = 0, True, set()
    while died:
        broker, died = interrupted(at, power_fails=power_fails)
        broker.start()
        log = broker.log
        assert log.damage is None
        assert not log.health.end_lost, at
        kept = broker.synced if power_fails else len(broker.written)
        assert broker.records()[: sum(map(len, broker.written[:kept]))] == b"".join(
            broker.written[:kept]
        ), at
        moved.add(broker.homes[0] is broker.managers[1])
        broker.write()
        at += 1
    assert moved == {False, True}
    assert at > 30


@pytest.mark.feature("AD92", "K07")
@pytest.mark.parametrize("power_fails", [False, True])
def test_producers_whose_batches_are_deleted_are_known_after_a_move(power_fails: bool) -> None:
    broker = Broker()
    broker.write(producer_id=7, producer_epoch=0, sequence=0)
    broker.log.advance_log_start(broker.log.log_end)
    flush(broker.managers[0])
    broker.move()
    flush(broker.managers[1])
    expected = broker.log.producers.state()
    for disk in broker.disks:
        if power_fails:
            disk.crash()
        else:
            disk.kill()
    broker.start()
    assert broker.homes == [broker.managers[1]]
    assert broker.log.producers.state() == expected


@pytest.mark.feature("AD92")
def test_a_copy_that_was_interrupted_goes_on_where_it_was() -> None:
    broker = Broker()
    target = broker.managers[1]
    target.futures.create(ORDERS, ORDERS_ID, TINY, ("a",), NOW)
    move = DirectoryMove()
    for _ in range(2):
        broker.step(move)
    copied = target.futures.logs[ORDERS].log_end
    for disk in broker.disks:
        disk.kill()
    broker.start()
    assert 0 < copied == broker.managers[1].futures.logs[ORDERS].log_end
    assert broker.homes == [broker.managers[0]]


@pytest.mark.feature("AD92")
def test_a_stop_in_order_keeps_a_copy() -> None:
    broker = Broker()
    target = broker.managers[1]
    target.futures.create(ORDERS, ORDERS_ID, TINY, ("a",), NOW)
    broker.step(DirectoryMove())
    copied = target.futures.logs[ORDERS].log_end
    for manager in broker.managers:
        manager.close()
    broker.start()
    assert broker.managers[1].clean_start
    assert broker.managers[1].futures.logs[ORDERS].log_end == copied


@pytest.mark.feature("AD92")
def test_a_copy_on_a_disk_that_failed_is_not_trusted() -> None:
    broker = Broker()
    target = broker.managers[1]
    target.futures.create(ORDERS, ORDERS_ID, TINY, ("a",), NOW)
    target.failures.note("b", target.disk, OSError("EIO"))  # type: ignore[arg-type]
    for disk in broker.disks:
        disk.kill()
    broker.start()
    assert not broker.managers[1].futures.logs
    assert not broker.disks[1].exists(FUTURE)
    assert broker.homes == [broker.managers[0]]


@pytest.mark.feature("AD92")
def test_what_was_cut_or_deleted_meanwhile_does_not_come_back() -> None:
    broker = Broker()
    target = broker.managers[1]
    target.futures.create(ORDERS, ORDERS_ID, TINY, ("a",), NOW)
    move = DirectoryMove()
    for _ in range(2):
        broker.step(move)
    future, log = target.futures.logs[ORDERS], broker.log
    cut = future.log_end - 2
    log.truncate_to(cut)
    broker.synced = min(broker.synced, cut)
    append(log, epoch=2, body_bytes=77)
    log.advance_log_start(3)
    broker.go_on(move)
    moved = target.logs[ORDERS]
    assert moved.log_start == 3
    assert [tuple(entry) for entry in moved.epochs.entries()][-1] == (2, cut)
    header = moved.read(cut, 1, end=moved.log_end)
    assert header.length_bytes == 61 + 77


@pytest.mark.feature("AD92")
def test_a_log_that_comes_back_with_its_directory_is_void() -> None:
    broker = Broker()
    target = broker.managers[1]
    target.futures.create(ORDERS, ORDERS_ID, TINY, ("a",), NOW)
    broker.disks[0].changes_left = 0
    with pytest.raises(CutOffError):
        broker.go_on(DirectoryMove())
    broker.disks[0].changes_left = None
    for disk in broker.disks:
        disk.kill()
    alone = opened(broker.disks[1], directory_id="b")
    settle_moves([alone], all_open=False)
    assert broker.disks[1].exists(f"{ORDERS}/{MOVED_FROM}")
    broker.start()
    assert broker.homes == [broker.managers[1]]
    assert not broker.disks[1].exists(f"{ORDERS}/{MOVED_FROM}")
