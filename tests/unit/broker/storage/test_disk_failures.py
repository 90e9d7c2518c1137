import pytest
from broker.storage.checkpoint import NewerVersionError
from broker.storage.disk_failures import FAILED_DISKS, DiskFailures
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError, DiskFullError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    ORDERS_ID,
    TINY,
    append,
    flush,
    new_log,
    opened,
)

EIO = DiskError("orders-0/0.log", "Input/output error")


@pytest.mark.feature("Y10")
def test_a_failure_is_noted_before_anything_else_and_survives_kill_9() -> None:
    disk, manager, _ = new_log()
    manager.fence(EIO)
    disk.kill()
    again = opened(disk)
    assert (again.distrusted, again.clean_start, again.fenced) == (str(EIO), False, None)


def test_a_full_disk_is_no_failure() -> None:
    disk, manager, _ = new_log()
    manager.fence(DiskFullError("orders-0/0.log", "No space left on device"))
    assert not disk.exists(FAILED_DISKS)
    assert manager.failure is None


def test_the_note_goes_with_the_answer_of_the_controller() -> None:
    disk, manager, _ = new_log()
    manager.fence(EIO)
    disk.kill()
    opened(disk)
    disk.kill()
    manager = opened(disk)
    assert manager.distrusted == str(EIO), "started, but not registered"
    manager.join_cluster("c")
    disk.kill()
    assert opened(disk).distrusted is None


def test_a_directory_that_failed_before_the_answer_stays_distrusted() -> None:
    disk, manager, _ = new_log()
    manager.fence(EIO)
    manager.join_cluster("c")
    disk.kill()
    assert opened(disk).distrusted is not None


def test_another_directory_keeps_the_note_that_the_failed_one_did_not_take() -> None:
    failing, healthy = MemDisk(), MemDisk()
    failures = DiskFailures([failing, healthy])
    failing.writes_fail = failing.syncs_fail = True
    failures.note("a", failing, EIO)
    healthy.crash()
    assert DiskFailures([MemDisk(), healthy]).reason("a") == str(EIO)


@pytest.mark.feature("Y10")
def test_memory_keeps_the_note_that_no_disk_takes() -> None:
    disk, memory = MemDisk(), MemDisk()
    manager = opened(disk, failures=DiskFailures([disk], memory))
    disk.writes_fail = disk.syncs_fail = True
    manager.fence(EIO)
    disk.kill()
    disk.repair()
    disk.remount()
    manager = opened(disk, failures=DiskFailures([disk], memory))
    assert manager.distrusted == str(EIO)
    manager.join_cluster("c")
    assert opened(disk, failures=DiskFailures([disk], memory)).distrusted is None


def test_a_note_in_memory_that_cannot_be_read_is_one_all_the_same() -> None:
    memory = MemDisk()
    DiskFailures([], memory).note("a", MemDisk(), EIO)
    memory.reads_fail = True
    assert DiskFailures([], memory).reason("a") is not None


def test_a_new_directory_that_has_a_note_of_another_one_is_empty() -> None:
    failed, new = MemDisk(), MemDisk()
    DiskFailures([failed, new]).note("a", failed, EIO)
    assert opened(new, directory_id="b").stamp.directory_id == "b"


def test_a_note_of_a_newer_release_is_refused() -> None:
    disk = MemDisk()
    disk.replace_whole(FAILED_DISKS, b'{"version": 1, "directories": {}}')
    with pytest.raises(NewerVersionError):
        DiskFailures([disk])


@pytest.mark.parametrize("content", [b"", b'{"version": 0, "dir', b'{"version": 0}'])
def test_a_note_that_cannot_be_read_is_one_all_the_same(content: bytes) -> None:
    disk = MemDisk()
    disk.replace_whole(FAILED_DISKS, content)
    failures = DiskFailures([disk, MemDisk()])
    assert failures.reason("a") == failures.reason("b") is not None
    failures.note("b", MemDisk(), EIO)
    assert DiskFailures([disk]).reason("a") is not None
    failures.forget("a")
    assert (failures.reason("a"), failures.reason("b")) == (None, str(EIO))
    assert DiskFailures([disk]).reason("b") == str(EIO)


def test_a_process_without_descriptors_does_not_overlook_a_note() -> None:
    disk = MemDisk()
    disk.exhausted = True
    with pytest.raises(ExhaustedError):
        DiskFailures([disk])


class Interleaved(MemDisk):
    """Let another thread record its directory while the first note is written."""

    noted_meanwhile: DiskFailures | None = None

    def replace_whole(self, path: str, content: bytes, *, sync: bool = True) -> None:
        failures, self.noted_meanwhile = self.noted_meanwhile, None
        if failures is not None:
            failures.note("b", self, EIO)
        super().replace_whole(path, content, sync=sync)


@pytest.mark.feature("Y10")
def test_two_directories_that_fail_at_once_are_both_noted() -> None:
    disk = Interleaved()
    disk.noted_meanwhile = failures = DiskFailures([disk])
    failures.note("a", disk, EIO)
    again = DiskFailures([disk])
    assert (again.reason("a"), again.reason("b")) == (str(EIO), str(EIO))


@pytest.mark.feature("Y10")
def test_a_tail_that_a_failed_sync_left_out_is_written_again_at_the_next_start() -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    append(log, records=3)
    disk.syncs_fail = disk.drops_pages = True
    flush(manager)
    assert manager.failure is not None
    disk.repair()
    disk.kill()
    again = opened(disk)
    flush(again)
    disk.crash()
    assert opened(disk).logs[ORDERS].log_end == 4


@pytest.mark.feature("Y10")
def test_a_start_on_a_full_disk_syncs_every_tail_once_there_is_space() -> None:
    """The index of the second log needs space, when the first one is part of the round already."""
    disk, manager, log = new_log()
    other = manager.create(TopicPartition("payments", 0), ORDERS_ID, TINY, NOW)
    flush(manager)
    append(log)
    for _ in range(5):
        append(other)
    manager.fence(EIO)
    disk.kill()
    disk.leave(0)
    again = opened(disk)
    assert again.is_full
    disk.unbound()
    assert again.try_heal()
    flush(again)
    disk.crash()
    ends = {one: log.log_end for one, log in opened(disk).logs.items()}
    assert ends == {ORDERS: 1, TopicPartition("payments", 0): 5}


def test_a_disk_that_fails_while_its_cluster_is_written_down_is_fenced() -> None:
    disk = MemDisk()
    manager = opened(disk, cluster_id=None)
    disk.writes_fail = disk.syncs_fail = True
    manager.join_cluster("c")
    assert manager.failure is not None


def test_a_sync_that_fails_in_a_thread_is_noted_there() -> None:
    disk, manager, log = new_log()
    append(log)
    begun = manager.begin_flush(only_group=False, now_ms=NOW + 10**9)
    assert begun is not None
    disk.syncs_fail = True
    begun.run()  # and the process is killed before the loop has seen it
    disk.repair()
    disk.kill()
    assert opened(disk).distrusted is not None


def test_a_sync_that_fails_while_a_torn_tail_is_cut_is_noted() -> None:
    disk, manager, log = new_log()
    append(log)
    flush(manager)
    append(log, records=2)
    path = log.segments()[-1].path
    disk.open(path).truncate(disk.size_of(path) - 1)
    disk.kill()
    disk.syncs_fail, disk.fails_under = True, "orders-0/"
    with pytest.raises(DiskError):
        opened(disk)
    disk.repair()
    assert opened(disk).distrusted is not None
