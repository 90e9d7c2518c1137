"""Log: reads at every offset, rolling, removal, full disks, damage."""

import gc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from broker.storage import checkpoint
from broker.storage.log import LogDamagedError, OffsetOutOfRangeError
from tidemark.model.topic_configs import topic_config
from tidemark.storage.disk import DiskError, DiskFullError
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    TINY,
    NearlyFull,
    append,
    bytes_of,
    completed,
    flush,
    new_log,
    opened,
    remove_due,
    upkeep,
)


@pytest.mark.feature("A01", "A02", "B02")
def test_readers_read_from_any_offset() -> None:
    _, _, log = new_log()
    batches = [append(log, records=3) for _ in range(40)]
    for offset in range(log.log_end):
        found = log.read(offset, 1, end=log.log_end)
        assert bytes_of(found) == batches[offset // 3]
    assert len(log.segments()) > 3
    assert log.read(log.log_end, 1, end=log.log_end).length_bytes == 0


@pytest.mark.feature("A20", "B01", "B07")
def test_the_file_holds_the_bytes_of_the_wire() -> None:
    disk, _, log = new_log()
    batches = append(log, 2) + append(log, 1)
    assert disk.read_whole("orders-0/00000000000000000000.log") == batches


@pytest.mark.parametrize("offset", [-1, 4, 21])
def test_offsets_outside_are_refused(offset: int) -> None:
    _, _, log = new_log()
    for _ in range(20):
        append(log)
    log.advance_log_start(5)
    with pytest.raises(OffsetOutOfRangeError) as refused:
        log.read(offset, 100, end=20)
    assert (refused.value.log_start, refused.value.log_end) == (5, 20)


@pytest.mark.feature("D03")
def test_a_read_goes_over_segments_up_to_its_size() -> None:
    _, _, log = new_log()
    batches = [append(log) for _ in range(40)]
    found = log.read(0, 2_000, end=log.log_end)
    assert len(found.slices) > 1
    assert bytes_of(found) == b"".join(batches[: 2_000 // len(batches[0])])


@pytest.mark.feature("D06")
def test_a_read_ends_at_the_high_watermark() -> None:
    _, _, log = new_log()
    batches = [append(log, records=2) for _ in range(30)]
    for end in range(0, 60, 2):
        assert bytes_of(log.read(0, 10**6, end=end)) == b"".join(batches[: end // 2])


def test_a_large_batch_is_read_whole() -> None:
    _, _, log = new_log()
    append(log)
    large = append(log, body_bytes=5_000)
    append(log)
    assert bytes_of(log.read(1, 10, end=3)) == large


def test_rolling_by_size_timestamp_and_index() -> None:
    for change in ({"segment_bytes": 250}, {"segment_ms": 100}, {"segment_index_bytes": 8}):
        _, _, log = new_log(replace(TINY, **change))  # type: ignore[arg-type]
        for n in range(8):
            append(log, timestamp=NOW + 60 * n)
        bases = [segment.base_offset for segment in log.segments()]
        assert len(bases) > 2, change
        assert bytes_of(log.read(bases[1], 1, end=8))


def test_a_log_that_was_read_first_rolls_as_well() -> None:
    disk, manager, log = new_log()
    append(log)
    manager.close()
    log = opened(disk).logs[ORDERS]
    assert log.read(0, 1, end=1).length_bytes
    for _ in range(20):
        append(log)
    assert len(log.segments()) > 2


def test_an_idle_segment_is_rolled_by_the_clock() -> None:
    _, manager, log = new_log()
    append(log)
    upkeep(manager, NOW + TINY.segment_ms, {})
    assert len(log.segments()) == 1
    upkeep(manager, NOW + TINY.segment_ms + 1, {})
    assert len(log.segments()) == 2


def test_relative_offsets_never_overflow() -> None:
    _, _, log = new_log(replace(TINY, segment_bytes=10**9))
    append(log, records=2**31 - 1)
    append(log, records=2**31 - 1)
    assert [one.base_offset for one in log.segments()] == [0, 2**31 - 1]


def test_a_removed_segment_is_read_to_its_end_by_who_began() -> None:
    disk, manager, log = new_log()
    batches = [append(log) for _ in range(30)]
    begun = log.read(0, 200, end=30)
    log.advance_log_start(25)
    assert upkeep(manager, NOW, {ORDERS: 30}) == []
    assert log.first_base_offset > 20
    assert [name for name in disk.list("orders-0") if name.endswith(".deleted")]
    assert bytes_of(begun) == b"".join(batches[: 200 // len(batches[0])])
    remove_due(manager, NOW + TINY.file_delete_delay_ms)
    assert not [name for name in disk.list("orders-0") if name.endswith(".deleted")]


@pytest.mark.feature("A17")
def test_retention_moves_the_log_start_and_tells() -> None:
    _, manager, log = new_log(replace(TINY, retention_ms=1_000))
    for n in range(20):
        append(log, timestamp=NOW + n * 100)
    assert upkeep(manager, NOW + 1_950, {ORDERS: 20}) == [log]
    assert log.log_start == log.first_base_offset > 0
    upkeep(manager, NOW + 10_000, {ORDERS: 20})
    assert log.log_start == log.log_end == 20
    assert append(log)


@pytest.mark.parametrize("stamps", [range(20), [5] * 20, [9, *range(19)], range(20, 0, -1)])
def test_the_largest_timestamp_is_looked_up_where_it_is(stamps: Sequence[int]) -> None:
    """Not in every segment of a log whose timestamps rise: each would be opened."""
    disk, manager, log = new_log()
    batches = [append(log, body_bytes=300, timestamp=NOW + one) for one in stamps]
    flush(manager)
    log = opened(disk).logs[ORDERS]
    opened_before = {one.base_offset for one in log._segments.segments if one.file is not None}
    found = completed(log.max_timestamp_batch(end=log.log_end))
    assert found is not None
    assert found.file.read_at(found.position, found.length) == batches[stamps.index(max(stamps))]
    warm = {one.base_offset for one in log._segments.segments if one.file is not None}
    assert len(log.segments()) > 5
    assert len(warm - opened_before) <= 1


def test_a_full_disk_takes_no_part_of_a_batch_and_heals() -> None:
    disk, manager, log = new_log()
    kept = [append(log), append(log)]
    used = disk.capacity_bytes - disk.free_bytes()
    disk.capacity_bytes = used + 50
    with pytest.raises(DiskFullError):
        append(log)
    assert manager.is_full
    assert bytes_of(log.read(0, 10**6, end=log.log_end)) == b"".join(kept)
    with pytest.raises(DiskFullError, match="No space left"):
        append(log)
    assert not manager.try_heal()
    disk.capacity_bytes += manager.heal_free_bytes
    assert manager.try_heal()
    kept.append(append(log))
    assert bytes_of(log.read(0, 10**6, end=3)) == b"".join(kept)


def test_a_full_disk_makes_room_by_retention_up_to_the_live_high_watermark() -> None:
    disk, manager, log = new_log(replace(TINY, retention_bytes=1, file_delete_delay_ms=0))
    while log.first_base_offset == log.segments()[-1].base_offset:
        append(log)
    disk.capacity_bytes = disk.capacity_bytes - disk.free_bytes()
    with pytest.raises(DiskFullError):
        append(log)
    upkeep(manager, NOW + 10**6, {})
    assert log.log_start == 0, "no high watermark is known"
    upkeep(manager, NOW + 10**6, {ORDERS: log.log_end})
    assert log.log_start > 0


def test_a_full_disk_that_fails_while_it_makes_room_is_a_failed_disk() -> None:
    disk, manager, log = new_log()
    manager.delete(log.topic_partition, NOW)
    manager.fence(DiskFullError("orders-0/0.log", "No space left on device"))
    disk.writes_fail = True
    with pytest.raises(DiskError) as raised:
        remove_due(manager, NOW + 10**9)
    manager.fence(raised.value)
    assert not manager.try_heal()
    assert manager.begin_removals(NOW + 10**9) is None
    assert "Input/output error" in str(manager.failure)


def test_a_failed_sync_fences_for_good() -> None:
    disk, manager, log = new_log()
    append(log)
    disk.syncs_fail = True
    begun = manager.begin_flush(only_group=False, now_ms=NOW + 10**6)
    assert begun is not None
    begun.run()
    assert manager.finish_flush(begun) == []
    assert log.synced_end == 0
    assert not manager.is_full
    assert not manager.try_heal()
    assert manager.begin_flush(only_group=False, now_ms=NOW + 10**7) is None
    with pytest.raises(DiskError):
        append(log)


def test_damage_of_a_header_is_told_and_spares_the_rest() -> None:
    disk, manager, log = new_log(replace(TINY, index_interval_bytes=10**6))
    for _ in range(6):
        append(log)
    flush(manager)
    manager.close()
    disk.flip_bit("orders-0/00000000000000000000.log", 81 * 2 + 8)
    log = opened(disk, replace(TINY, index_interval_bytes=10**6)).logs[ORDERS]
    assert log.damage is not None
    assert bytes_of(log.read(1, 1, end=2))
    with pytest.raises(LogDamagedError, match="at byte 162"):
        log.read(4, 1, end=6)
    with pytest.raises(LogDamagedError):
        append(log)


def test_a_wrong_index_is_noticed_and_built_anew() -> None:
    disk, manager, log = new_log()
    batches = [append(log) for _ in range(12)]
    manager.close()
    disk.flip_bit("orders-0/00000000000000000000.index", 7, bit=2)
    log = opened(disk).logs[ORDERS]
    for offset, batch in enumerate(batches):
        assert bytes_of(log.read(offset, 1, end=12)) == batch


def test_a_truncated_log_hands_out_new_handles() -> None:
    _, _, log = new_log()
    for _ in range(4):
        append(log)
    (old,) = log.read(2, 10**6, end=4).slices
    log.truncate_to(2)
    assert old.file.truncated_to < old.position + old.length
    again = [append(log, records=5), append(log)]
    (new,) = log.read(2, 10**6, end=8).slices
    assert new.file.truncated_to >= new.position + new.length
    assert bytes_of(log.read(2, 10**6, end=8)) == b"".join(again)


def test_truncation_restores_the_producers() -> None:
    _, _, log = new_log()
    for sequence in range(6):
        append(log, producer_id=7, producer_epoch=0, sequence=sequence)
    log.truncate_to(3)
    (entry,) = log.producers.entries()
    assert [batch.base_offset for batch in entry.batches] == [0, 1, 2]


def test_an_idle_log_is_small_and_holds_no_file() -> None:
    disk, manager, _ = new_log()
    manager.close()
    gc.collect()
    log = opened(disk).logs[ORDERS]
    assert all(segment.file is None for segment in log._segments.segments)


def test_configuration_changes_count_at_once() -> None:
    _, _, log = new_log(topic_config({}))
    append(log, body_bytes=500)
    log.update_config(TINY)
    append(log, body_bytes=500)
    assert len(log.segments()) == 2


@pytest.mark.parametrize("name", [checkpoint.LEADER_EPOCHS, checkpoint.HIGH_WATERMARKS])
def test_a_cut_is_completed_on_a_disk_that_fills_up(name: str) -> None:
    """Otherwise the producers of what was cut stay, and a batch that is not in the log is taken for
    a repeated one, and acknowledged, once this replica leads.
    """
    disk = NearlyFull()
    _, manager, log = new_log(disk=disk)
    for sequence in range(10):
        append(log, epoch=1, producer_id=7, producer_epoch=0, sequence=sequence)
    flush(manager)
    for sequence in range(10, 20):
        append(log, epoch=2, producer_id=7, producer_epoch=0, sequence=sequence)
    manager.checkpoint({ORDERS: 15})
    disk.no_room_for = name
    log.truncate_to(10)
    assert manager.is_full
    (producer,) = log.producers.entries()
    assert producer.batches[-1].last_offset == 9
    assert (log.log_end, log.synced_end, log.epochs.entries()) == (10, 10, ((1, 0),))
    disk.no_room_for = "-"
    assert manager.try_heal()
    append(log, epoch=2)
    assert log.epochs.entries() == ((1, 0), (2, 10))
    assert checkpoint.read_epochs(disk, "orders-0/leader-epoch-checkpoint") == [(1, 0), (2, 10)]
    flush(manager)
    disk.kill()
    assert opened(disk).logs[ORDERS].damage is None
