"""Logs that lack whole batches, although every byte that is left is correct."""

import pytest
from broker.storage import checkpoint
from broker.storage.compaction import CHECKPOINT_NAME
from broker.storage.directory import LogDamagedError
from broker.storage.log import AppendInfo, Log
from broker.storage.log_manager import LogManager
from broker.storage.scrubber import ScrubSegment, ScrubTask, scrub_range
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    append,
    bytes_of,
    flush,
    make_batch,
    new_log,
    opened,
)

BATCH_BYTES = 81


def written(batches: int) -> tuple[MemDisk, LogManager, Log]:
    """Batches of one record, eight in a segment, all on disk."""
    disk, manager, log = new_log()
    for _ in range(batches):
        append(log)
    flush(manager)
    return disk, manager, log


def cut_last_of(disk: MemDisk, log: Log, segment: int, batches: int = 1) -> None:
    view = log.segments()[segment]
    disk.cut_file(view.path, view.size_bytes - batches * BATCH_BYTES)


def restarted(disk: MemDisk) -> Log:
    disk.kill()
    return opened(disk).logs[ORDERS]


@pytest.mark.feature("B04", "B09")
def test_a_start_sees_that_the_segment_before_an_empty_one_lacks_its_end() -> None:
    disk, manager, log = written(5)
    log.roll(NOW)
    flush(manager)
    cut_last_of(disk, log, 0)
    log = restarted(disk)
    assert (log.health.damage_at, log.health.end_lost, log.log_end) == (4, False, 5)
    assert log.damage is not None
    assert log.damage.endswith("ends at offset 4, the next segment begins at 5")


@pytest.mark.feature("B04", "B09")
@pytest.mark.parametrize("missing", [1, 3])
def test_a_start_sees_that_a_segment_it_scans_lacks_its_end(missing: int) -> None:
    disk, _, log = written(5)
    append(log)
    log.roll(NOW)
    append(log)
    cut_last_of(disk, log, 0, missing)
    log = restarted(disk)
    assert (log.health.damage_at, log.health.end_lost, log.log_end) == (6 - missing, False, 7)


@pytest.mark.feature("B04", "B09")
def test_a_reader_is_not_led_over_batches_that_are_missing() -> None:
    disk, _, log = written(20)
    cut_last_of(disk, log, 0, 2)
    log = restarted(disk)
    assert log.damage is None, "a start does not look at old segments"
    assert len(bytes_of(log.read(0, 10**6, end=20))) == 6 * BATCH_BYTES
    with pytest.raises(LogDamagedError, match="ends at offset 6"):
        log.read(6, 10**6, end=20)
    assert (log.damage is not None, log.health.damage_at) == (True, 0)


def test_a_reader_gets_what_is_before_a_segment_s_damaged_end() -> None:
    disk, _, log = written(20)
    disk.flip_bit(log.segments()[0].path, 7 * BATCH_BYTES + 16)
    log = restarted(disk)
    for offset in range(7):
        assert bytes_of(log.read(offset, 10**6, end=20)).startswith(make_batch(offset, 1))


def test_a_reader_goes_over_the_ends_of_whole_segments() -> None:
    disk, _, log = written(20)
    log = restarted(disk)
    assert len(bytes_of(log.read(0, 10**6, end=20))) == 20 * BATCH_BYTES
    log.truncate_to(7)
    for _ in range(7):
        append(log)
    assert len(bytes_of(log.read(0, 10**6, end=14))) == 14 * BATCH_BYTES


@pytest.mark.feature("B04")
@pytest.mark.parametrize("missing", [0, 1])
def test_the_scrubber_sees_that_a_segment_lacks_its_end(missing: int) -> None:
    disk, _, log = written(20)
    cut_last_of(disk, log, 1, missing)
    log = restarted(disk)
    segment = ScrubSegment.of(ORDERS, log.segments()[1])
    outcome = scrub_range(disk.open(segment.path), ScrubTask(segment, 0, 8, 10**6))
    assert (outcome.damage is not None) == bool(missing)
    if outcome.damage is not None:
        assert (outcome.damage.offset, outcome.damage.position) == (15, 7 * BATCH_BYTES)


def test_a_repair_fetches_what_is_missing_and_what_follows() -> None:
    disk, _, log = written(20)
    cut_last_of(disk, log, 0)
    log = restarted(disk)
    log.health.report("ends at offset 7", 7)
    log.repair()
    assert (log.log_end, log.damage) == (7, None)
    append(log)
    assert bytes_of(log.read(6, 10**6, end=8))


def test_segments_that_were_compacted_may_end_early() -> None:
    disk, _, log = written(20)
    cut_last_of(disk, log, 0)
    checkpoint.write_offsets(disk, CHECKPOINT_NAME, {ORDERS: 8}, sync=False)
    log = restarted(disk)
    assert len(bytes_of(log.read(0, 10**6, end=20))) == 19 * BATCH_BYTES
    assert [one.may_end_early for one in log.segments()] == [True, False, False]


def test_a_checkpoint_of_the_compaction_that_cannot_be_read_excuses_every_segment() -> None:
    disk, _, log = written(20)
    cut_last_of(disk, log, 1)
    disk.replace_whole(CHECKPOINT_NAME, b"nonsense")
    log = restarted(disk)
    assert len(bytes_of(log.read(0, 10**6, end=20))) == 19 * BATCH_BYTES


def test_a_log_that_is_cut_in_a_gap_ends_where_its_batches_do() -> None:
    """Otherwise its next start would report batches missing that a compacted leader never sent."""
    disk, manager, log = written(2)
    batch = make_batch(6, 1)
    log.append([batch], AppendInfo(6, 6, NOW, 0, len(batch)), NOW)
    log.truncate_to(4)
    assert log.log_end == 2
    flush(manager)
    assert restarted(disk).damage is None
