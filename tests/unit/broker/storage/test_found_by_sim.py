"""Small cases of losses that the simulator found: of records, or of state about them."""

import pytest
from broker.storage.checkpoint import read_offsets, write_offsets
from broker.storage.compaction import CHECKPOINT_NAME
from tidemark.model.ids import TopicId
from tidemark.storage.disk import DiskFullError
from unit.broker.storage.log_worlds import NOW, ORDERS, TINY, append, flush, new_log, opened

LOG = "orders-0/00000000000000000000.log"
LAST_OFFSET_DELTA = 23


@pytest.mark.feature("B05")
@pytest.mark.parametrize("byte", range(LAST_OFFSET_DELTA, LAST_OFFSET_DELTA + 4))
def test_a_flipped_synced_header_does_not_move_the_end_of_the_log(byte: int) -> None:
    disk, manager, log = new_log()
    append(log)
    append(log)
    flush(manager)
    size_bytes = disk.size_of(LOG)
    disk.flip_bit(LOG, byte, 6)
    disk.kill()
    recovered = opened(disk).logs[ORDERS]
    assert recovered.log_end == 2
    assert recovered.damage is not None
    assert disk.size_of(LOG) == size_bytes


def test_deleted_records_that_power_loss_brings_back_have_their_epoch() -> None:
    for kept in range(4):
        disk, manager, log = new_log()
        append(log)
        append(log, epoch=1)
        flush(manager)
        disk.sync_directory("")
        log.advance_log_start(2)
        disk.crash([kept])
        recovered = opened(disk).logs[ORDERS]
        assert recovered.log_start == 2 or recovered.epochs.epoch_of(0) == 0


def test_a_log_start_that_could_not_be_kept_has_not_moved() -> None:
    disk, _, log = new_log()
    append(log)
    disk.capacity_bytes = 1
    with pytest.raises(DiskFullError):
        log.advance_log_start(1)
    assert log.log_start == 0


def test_a_log_start_that_a_crash_took_back_does_not_come_again() -> None:
    disk, _, log = new_log()
    append(log, records=9)
    log.advance_log_start(8)
    disk.sync_directory("")
    disk.crash()
    manager = opened(disk)
    assert (manager.logs[ORDERS].log_start, manager.logs[ORDERS].log_end) == (0, 0)
    append(manager.logs[ORDERS], records=4)
    begun = manager.begin_flush(only_group=False, now_ms=NOW + 10**9)
    assert begun is not None
    for file in begun.syncs[0].files:
        file.sync()
    disk.crash()
    assert opened(disk).logs[ORDERS].log_start == 0


def test_a_recreated_topic_is_not_taken_for_compacted() -> None:
    disk, manager, _ = new_log()
    write_offsets(disk, CHECKPOINT_NAME, {ORDERS: 7}, sync=True)
    manager.delete(ORDERS)
    manager.create(ORDERS, TopicId(bytes(15) + b"\x02"), TINY, NOW)
    assert read_offsets(disk, CHECKPOINT_NAME) == {}


def test_producers_of_batches_that_retention_took_unsynced_are_known_from_a_snapshot() -> None:
    disk, manager, log = new_log()
    append(log, producer_id=5, sequence=0)
    flush(manager)
    append(log, producer_id=5, sequence=1)
    log.roll(NOW)
    log.advance_log_start(2)
    log.apply_retention(NOW, 2)
    disk.crash([len(disk._journal)])
    recovered = opened(disk, boot_id="boot-2").logs[ORDERS]
    assert [one.last_sequence for one in recovered.producers.entries()] == [1]


def test_a_log_that_is_emptied_does_not_begin_later_after_a_power_failure() -> None:
    for kept in range(40):
        disk, manager, log = new_log()
        for _ in range(20):
            append(log)
        flush(manager)
        disk.sync_directory(log.directory)
        log.truncate_fully_and_start_at(0)
        disk.crash([kept])
        recovered = opened(disk, boot_id="boot-2").logs[ORDERS]
        assert recovered.first_base_offset == 0


@pytest.mark.parametrize(("boot_id", "end_lost"), [("boot-1", True), ("boot-2", False)])
def test_a_segment_that_was_cut_off_is_not_read_when_a_power_failure_brings_it_back(
    boot_id: str, *, end_lost: bool
) -> None:
    disk, _, log = new_log()
    for _ in range(12):
        append(log)
    stale = log.segments()[-1].path
    content = disk.read_whole(stale)
    log.truncate_to(4)
    append(log, records=20, epoch=1)
    disk.replace_whole(stale, content)
    disk.kill()
    recovered = opened(disk, boot_id=boot_id).logs[ORDERS]
    assert (recovered.log_end, len(recovered.segments()), disk.exists(stale)) == (24, 1, False)
    assert recovered.health.end_lost == end_lost
