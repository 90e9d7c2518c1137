"""LogManager: creation, deletion, strays, flush rounds, checkpoints, a bounded number of files."""

from dataclasses import replace

import pytest
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    ORDERS_ID,
    TINY,
    append,
    bytes_of,
    flush,
    new_log,
    opened,
    remove_due,
    upkeep,
)

OTHER_ID = TopicId(bytes(15) + b"\x02")
GROUP = replace(TINY, flush="group")


@pytest.mark.parametrize("when", ["live", "killed", "crashed"])
def test_a_recreated_topic_never_shows_the_old_ones_records(when: str) -> None:
    disk, manager, log = new_log()
    append(log, 50)
    log.advance_log_start(40)
    flush(manager)
    disk.sync_directory("")
    manager.delete(ORDERS)
    manager.create(ORDERS, OTHER_ID, TINY, NOW)
    new = append(manager.logs[ORDERS])
    if when == "killed":
        disk.kill()
    elif when == "crashed":
        flush(manager)
        disk.crash()
    if when != "live":
        manager = opened(disk)
    log = manager.logs[ORDERS]
    assert (log.topic_id, log.log_start, log.log_end, log.damage) == (OTHER_ID, 0, 1, None)
    assert bytes_of(log.read(0, 10**6, end=1)) == new
    assert manager.high_watermarks.get(ORDERS, 0) <= 1


def test_a_deleted_directory_goes_after_the_delay() -> None:
    disk, manager, log = new_log()
    append(log)
    manager.delete(ORDERS, NOW)
    (name,) = (one for one in disk.list("") if one.endswith("-delete"))
    assert name == f"orders-0.{ORDERS_ID.hex()}-delete"
    remove_due(manager, NOW + TINY.file_delete_delay_ms - 1)
    assert disk.exists(name)
    remove_due(manager, NOW + TINY.file_delete_delay_ms)
    assert not disk.exists(name)


def test_a_deletion_cut_short_is_finished_after_a_restart() -> None:
    disk, manager, _ = new_log()
    manager.delete(ORDERS)
    disk.kill()
    again = opened(disk)
    assert again.logs == {}
    remove_due(again, NOW)
    assert not [name for name in disk.list("") if name.endswith("-delete")]


def test_another_topics_directory_is_a_stray() -> None:
    disk, manager, log = new_log()
    append(log)
    manager.close()
    again = opened(disk, topic_ids=lambda _: OTHER_ID)
    assert again.logs == {}
    assert again.strays == [f"orders-0.{ORDERS_ID.hex()}-stray"]
    assert opened(disk).strays == again.strays


def test_a_stray_is_kept_and_not_served() -> None:
    disk, manager, log = new_log()
    append(log)
    name = manager.mark_stray(ORDERS)
    assert manager.logs == {}
    assert "00000000000000000000.log" in disk.list(name)
    assert manager.create(ORDERS, OTHER_ID, TINY, NOW).log_end == 0


def test_records_without_a_topic_id_are_not_served_and_empty_ones_go() -> None:
    disk, manager, log = new_log()
    append(log)
    manager.create(TopicPartition("empty", 0), OTHER_ID, TINY, NOW)
    manager.close()
    disk.remove("orders-0/partition.metadata")
    disk.remove("empty-0/partition.metadata")
    again = opened(disk)
    assert again.logs == {}
    assert again.strays == ["orders-0-stray"]
    assert not disk.exists("empty-0")


def test_a_stop_during_a_round_syncs_it_all() -> None:
    disk, manager, log = new_log(GROUP)
    append(log)
    manager.begin_flush(only_group=True, now_ms=NOW)
    append(log)
    manager.close()
    disk.crash()
    assert opened(disk).logs[ORDERS].log_end == 2


def test_a_stop_that_cannot_sync_is_not_clean() -> None:
    disk, manager, log = new_log()
    append(log)
    disk.syncs_fail = True
    manager.close()
    disk.syncs_fail = False
    assert not opened(disk).clean_start


@pytest.mark.feature("B11")
def test_open_files_are_bounded() -> None:
    disk, manager, log = new_log()
    batches = [append(log) for _ in range(200)]
    flush(manager)
    manager.close()
    manager = opened(disk, open_files_max=4)
    log = manager.logs[ORDERS]
    for offset, batch in enumerate(batches):
        assert bytes_of(log.read(offset, 1, end=200)) == batch
        assert sum(one.file is not None for one in log._segments.segments) <= 4


def test_high_watermarks_are_told_after_a_restart() -> None:
    disk, manager, log = new_log()
    append(log, 5)
    manager.checkpoint({ORDERS: 4})
    disk.kill()
    assert opened(disk).high_watermarks == {ORDERS: 4}


def test_a_segment_whose_file_is_gone_does_not_stop_retention() -> None:
    disk, manager, log = new_log()
    for _ in range(20):
        append(log, 1, 200, timestamp=-1)
    flush(manager)
    manager.close()
    manager = opened(disk)
    log = manager.logs[ORDERS]
    second = log._segments.segments[1].base_offset
    disk.remove(f"{log.directory}/{second:020d}.log")
    log.advance_log_start(3 * second)
    upkeep(manager, NOW + 1, {ORDERS: log.log_end})
    assert log.first_base_offset == 3 * second
