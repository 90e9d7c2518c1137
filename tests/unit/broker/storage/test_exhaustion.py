"""Without free descriptors nothing is fenced, nothing is left half done, and all continues
afterwards.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS_ID,
    TINY,
    append,
    flush,
    new_log,
    opened,
    remove_due,
    upkeep,
)

GROUP = replace(TINY, flush="group")


def with_segments() -> tuple[MemDisk, LogManager, Log]:
    """Several segments, of which the older ones are closed."""
    disk, manager, log = new_log()
    for _ in range(30):
        append(log)
    flush(manager)
    disk, manager = disk, opened(disk)
    return disk, manager, next(iter(manager.logs.values()))


CALLS: dict[str, Callable[[LogManager, Log], object]] = {
    "read": lambda _, log: log.read(0, 10_000, end=log.log_end),
    "append": lambda _, log: append(log, body_bytes=600),
    "roll": lambda _, log: log.roll(NOW),
    "truncate": lambda _, log: log.truncate_to(3),
    "truncate all": lambda _, log: log.truncate_fully_and_start_at(500),
    "delete records": lambda _, log: log.advance_log_start(7),
    "new epoch": lambda _, log: append(log, epoch=9),
    "new topic": lambda manager, _: manager.create(TopicPartition("new", 0), ORDERS_ID, TINY, NOW),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_refused_and_works_afterwards(call: str) -> None:
    disk, manager, log = with_segments()
    ends = (log.log_start, log.log_end)
    disk.exhausted = True
    with pytest.raises(ExhaustedError):
        CALLS[call](manager, log)
    assert manager.fenced is None
    assert (log.log_start, log.log_end) == ends
    disk.exhausted = False
    CALLS[call](manager, log)
    assert manager.fenced is None


def test_a_change_that_is_half_done_counts_as_a_failed_disk() -> None:
    disk, manager, log = with_segments()
    disk.expect_room = lambda: setattr(disk, "exhausted", True)  # type: ignore[method-assign]
    with pytest.raises(DiskError) as raised:
        log.truncate_to(3)
    assert not isinstance(raised.value, ExhaustedError)
    assert manager.fenced is not None


def test_a_round_that_cannot_open_the_directory_is_made_up_for_by_the_next() -> None:
    disk, manager, log = new_log(GROUP)
    append(log)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    disk.exhausted = True
    begun.run()
    assert manager.finish_flush(begun) == []
    assert (manager.fenced, log.synced_end) == (None, 0)
    assert manager.begin_flush(only_group=True, now_ms=NOW) is None
    disk.exhausted = False
    append(log)
    flush(manager)
    assert log.synced_end == log.log_end == 2


def test_a_round_without_descriptors_puts_off_only_what_needed_one() -> None:
    """The directory of a new log has to be opened. Other logs are synced, and acknowledged."""
    disk, manager, old = new_log(GROUP)
    append(old)
    flush(manager)
    new = manager.create(TopicPartition("new", 0), ORDERS_ID, GROUP, NOW)
    for log in (new, old):
        append(log)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    disk.exhausted = True
    begun.run()
    assert manager.finish_flush(begun) == [(old, 2)]
    assert (manager.fenced, new.synced_end) == (None, 0)
    disk.exhausted = False
    flush(manager)
    assert new.synced_end == 1
    disk.crash()
    assert {log.log_end for log in opened(disk).logs.values()} == {1, 2}


def test_maintenance_goes_on() -> None:
    disk, manager, log = with_segments()
    marks = {log.topic_partition: log.log_end}
    manager.delete(log.topic_partition, NOW)
    disk.exhausted = True
    manager.checkpoint(marks)
    with pytest.raises(ExhaustedError):
        remove_due(manager, NOW + 10**9)
    assert upkeep(manager, NOW + 10**9, marks) == []
    disk.exhausted = False
    remove_due(manager, NOW + 10**9)
    assert manager.fenced is None
    assert not any(name.endswith("-delete") for name in disk.list(""))


def test_a_failed_sync_is_a_failed_disk_whatever_it_fails_by() -> None:
    disk, manager, log = new_log(GROUP)
    append(log)
    begun = manager.begin_flush(only_group=True, now_ms=NOW)
    assert begun is not None
    disk.syncs_fail = True
    begun.run()
    manager.finish_flush(begun)
    assert manager.fenced is not None
