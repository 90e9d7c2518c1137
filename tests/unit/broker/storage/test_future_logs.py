import pytest
from broker.storage.checkpoint import NewerVersionError
from broker.storage.directory_names import future_name, future_of
from broker.storage.future_logs import MOVED_FROM
from broker.storage.log_manager import LogManager
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError, DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    ORDERS_ID,
    TINY,
    append,
    new_log,
    opened,
    remove_due,
    upkeep,
)

FUTURE = future_name(ORDERS, ORDERS_ID)


def with_future() -> tuple[MemDisk, LogManager]:
    disk = MemDisk()
    manager = opened(disk)
    manager.futures.create(ORDERS, ORDERS_ID, TINY, ("x", "y"), NOW)
    return disk, manager


def test_the_name_of_a_directory_says_of_which_partition_it_is() -> None:
    assert future_of(future_name(TopicPartition("a.b-c", 7), ORDERS_ID)) == ("a.b-c", 7)
    for other in ("orders-0", "orders-0.12-future", f"orders.{'0' * 32}-future", "x-future"):
        assert future_of(other) is None


@pytest.mark.feature("AD92")
def test_a_future_log_is_no_log_of_the_directory() -> None:
    disk, manager = with_future()
    append(manager.futures.logs[ORDERS])
    assert not manager.logs
    assert manager.begin_flush(only_group=False, now_ms=NOW + 10**9) is None
    assert upkeep(manager, NOW + 10**12, {ORDERS: 1}) == []
    disk.kill()
    again = opened(disk)
    assert not again.logs
    assert not again.missing
    assert again.futures.logs[ORDERS].log_end == 1


@pytest.mark.feature("AD92")
def test_its_recovery_point_is_in_the_checkpoint_of_its_directory() -> None:
    disk, manager = with_future()
    future = manager.futures.logs[ORDERS]
    append(future, records=3)
    manager.futures.begin_sync(future).run()
    assert manager.futures.finish_sync(future) is None
    manager.checkpoint({})
    disk.kill()
    assert opened(disk).futures.logs[ORDERS].recovery_point == 3


@pytest.mark.feature("AD92")
def test_a_sync_that_fails_takes_the_directory_out_of_service() -> None:
    disk, manager = with_future()
    future = manager.futures.logs[ORDERS]
    append(future)
    disk.syncs_fail = True
    manager.futures.begin_sync(future).run()
    assert manager.futures.finish_sync(future) is not None
    assert manager.failure is not None
    assert future.synced_end == 0


def test_a_sync_that_a_stop_interrupts_is_made_again() -> None:
    disk, manager = with_future()
    future = manager.futures.logs[ORDERS]
    append(future)
    manager.futures.begin_sync(future)
    manager.close()
    disk.crash()
    assert opened(disk).futures.logs[ORDERS].log_end == 1


@pytest.mark.feature("AD92")
def test_what_is_given_up_is_removed_by_the_next_round() -> None:
    disk, manager = with_future()
    manager.futures.discard(ORDERS)
    assert not disk.exists(FUTURE)
    remove_due(manager, NOW + 1)
    assert not [name for name in disk.list("") if name.startswith("orders-0")]
    manager.futures.create(ORDERS, ORDERS_ID, TINY, (), NOW)


@pytest.mark.feature("AD92")
def test_a_damaged_future_log_is_made_again_from_the_start() -> None:
    disk, manager = with_future()
    future = manager.futures.logs[ORDERS]
    append(future)
    manager.futures.begin_sync(future).run()
    manager.futures.finish_sync(future)
    manager.checkpoint({})
    disk.kill()
    disk.overwrite(f"{FUTURE}/{0:020d}.log", 16, b"\x07")
    again = opened(disk)
    assert not again.futures.logs
    assert not disk.exists(FUTURE)


@pytest.mark.feature("AD92")
def test_without_space_nothing_is_begun() -> None:
    disk, manager = with_future()
    manager.futures.discard(ORDERS)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        manager.futures.create(ORDERS, ORDERS_ID, TINY, (), NOW)
    assert not manager.futures.logs


@pytest.mark.feature("AD92")
def test_a_change_of_places_that_fails_changes_nothing() -> None:
    disk, manager = with_future()
    _, _, log = new_log()
    disk.writes_fail = True
    with pytest.raises(DiskError):
        manager.futures.promote(log, 0)
    assert ORDERS in manager.futures.logs
    assert ORDERS not in manager.logs


@pytest.mark.parametrize(
    ("content", "sources"),
    [
        (b"{", set()),
        (b'{"version": 0}', set()),
        (b'{"version": 0, "directories": ["x"]}', {"x"}),
    ],
)
def test_a_note_that_cannot_be_read_names_nothing(content: bytes, sources: set[str]) -> None:
    disk, _, _ = new_log()
    disk.replace_whole(f"{ORDERS}/{MOVED_FROM}", content)
    disk.kill()
    assert opened(disk).futures.moved_from.get(ORDERS, frozenset()) == sources


def test_a_note_of_a_newer_release_is_refused() -> None:
    disk, _, _ = new_log()
    disk.replace_whole(f"{ORDERS}/{MOVED_FROM}", b'{"version": 1}')
    disk.kill()
    with pytest.raises(NewerVersionError):
        opened(disk)
