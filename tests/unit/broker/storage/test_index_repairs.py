"""Indexes that were lost or are wrong, and are made again."""

from dataclasses import replace

import pytest
from broker.storage.index_repairs import IndexMissingError
from broker.storage.log import LogSlice
from broker.storage.log_manager import LogManager
from tidemark.storage.disk import DiskError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk, MemFile
from unit.broker.storage.log_worlds import (
    NOW,
    ORDERS,
    TINY,
    append,
    bytes_of,
    completed,
    flush,
    make_batch,
    new_log,
    opened,
)

LARGE = replace(TINY, segment_bytes=50_000)
INDEX = f"orders-0/{0:020d}.index"


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> MemDisk:
    """A disk with a rolled segment that counts as large, after a clean stop."""
    monkeypatch.setattr("broker.storage.directory.INDEX_GAP_BYTES", 2_000)
    monkeypatch.setattr("broker.storage.directory.INDEX_GAP_BATCHES", 100)
    disk, manager, log = new_log(LARGE)
    for offset in range(400):
        append(log, timestamp=NOW + offset)
    append(log, body_bytes=9_000)
    log.roll(NOW)
    flush(manager)
    manager.close()
    return disk


def remade(manager: LogManager) -> bool:
    """Run the repairs that are wanted, as the broker's loop and its thread do."""
    was_one = False
    while (begun := manager.index_repairs.begin()) is not None:
        begun.run()
        manager.index_repairs.finish(begun)
        was_one = True
    return was_one


@pytest.mark.parametrize("harm", ["removed", "rotten", "none, with a large batch at the end"])
def test_an_index_that_was_lost_is_made_again_once(
    closed: MemDisk, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """Otherwise each read walks the segment from its beginning, on the event loop. So does the
    repair: it is for a thread, and until it is done a read is refused without a look.
    """
    if harm == "removed":
        closed.remove(INDEX)
    elif harm == "rotten":
        closed.overwrite(INDEX, 3 * 8, bytes(8))
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    reads, read_at = list[int](), MemFile.read_at

    def noted(file: MemFile, position: int, length: int) -> bytes:
        reads.append(position)
        return read_at(file, position, length)

    monkeypatch.setattr(MemFile, "read_at", noted)
    if harm in {"removed", "rotten"}:
        with pytest.raises(IndexMissingError):
            log.read(300, 1, end=log.log_end)
        assert len(reads) < 5
        reads.clear()
        with pytest.raises(IndexMissingError):
            log.read(300, 1, end=log.log_end)
        assert not reads
        assert manager.fenced is None
        assert remade(manager)
    assert bytes_of(log.read(300, 1, end=log.log_end)) == make_batch(300, 1, timestamp=NOW + 300)
    reads.clear()
    assert log.read(300, 1, end=log.log_end).slices
    assert len(reads) < 5
    manager.close()
    manager = opened(closed, LARGE)
    assert manager.logs[ORDERS].read(300, 1, end=301).slices, "the file has it again"
    assert not remade(manager)


def test_an_entry_that_is_wrong_is_passed_over(
    closed: MemDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it leads there as well: the segment is not walked."""
    for last_byte in (2 * 8 + 7, 3 * 8 + 7):
        (value,) = closed.read_whole(INDEX)[last_byte : last_byte + 1]
        closed.overwrite(INDEX, last_byte, bytes([value ^ 1]))
    log = opened(closed, LARGE).logs[ORDERS]
    log.read(0, 1, end=401)
    reads, read_at = list[int](), MemFile.read_at

    def noted(file: MemFile, position: int, length: int) -> bytes:
        reads.append(position)
        return read_at(file, position, length)

    monkeypatch.setattr(MemFile, "read_at", noted)
    found = bytes_of(log.read(8, 1, end=401))
    assert found == make_batch(8, 1, timestamp=NOW + 8)
    assert len(reads) < 10


def test_a_time_index_that_was_lost_is_made_again_too(closed: MemDisk) -> None:
    closed.remove(f"orders-0/{0:020d}.timeindex")
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    assert log.segments()[0].max_timestamp == -1, "not known"
    for _ in range(2):
        with pytest.raises(IndexMissingError):
            log.batch_for_timestamp(NOW + 300, end=401)
        with pytest.raises(IndexMissingError):
            completed(log.max_timestamp_batch(end=401))
    assert remade(manager)
    assert log.segments()[0].max_timestamp == NOW + 399
    found = log.batch_for_timestamp(NOW + 300, end=401)
    assert isinstance(found, LogSlice)
    assert found.file.read_at(found.position, found.length) == make_batch(
        300, 1, timestamp=NOW + 300
    )


def test_a_log_is_cut_only_once_it_has_the_index(closed: MemDisk) -> None:
    """A refusal between the steps of the cut would count as a failed disk."""
    closed.remove(INDEX)
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    for _ in range(2):
        with pytest.raises(IndexMissingError):
            log.truncate_to(300)
    assert (manager.fenced, log.log_end) == (None, 401)
    assert remade(manager)
    log.truncate_to(300)
    assert log.log_end == 300


def test_producers_are_known_before_a_cut_also_without_an_index(closed: MemDisk) -> None:
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    for sequence in range(5):
        append(log, producer_id=7, producer_epoch=0, sequence=sequence)
    log.roll(NOW)
    flush(manager)
    manager.close()
    closed.remove(INDEX)
    log = opened(closed, LARGE).logs[ORDERS]
    with pytest.raises(IndexMissingError):
        log.read(300, 1, end=406)
    for name in closed.list("orders-0"):
        if name.endswith(".snapshot"):
            closed.remove(f"orders-0/{name}")
    replay = log.history.begin_replay(403, 406)
    replay.run()
    assert replay.is_done
    (producer,) = replay.table.entries()
    assert producer.batches[-1].last_offset == 402


def test_a_segment_that_leaves_the_log_needs_no_index(closed: MemDisk) -> None:
    closed.remove(INDEX)
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    with pytest.raises(IndexMissingError):
        log.read(300, 1, end=401)
    begun = manager.index_repairs.begin()
    assert begun is not None
    log.truncate_fully_and_start_at(500)
    begun.run()
    manager.index_repairs.finish(begun)
    assert begun.segment.file is None
    assert not remade(manager)


def test_a_repair_of_what_was_cut_meanwhile_is_void(closed: MemDisk) -> None:
    closed.remove(INDEX)
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    repairs, (segment, *_) = manager.index_repairs, log._segments.segments
    with pytest.raises(IndexMissingError):
        log.read(300, 1, end=401)
    begun = repairs.begin()
    assert begun is not None
    repairs.forget(segment)  # as a step does that cannot be put off
    repairs.want(segment)
    begun.run()
    repairs.finish(begun)
    assert segment.file is None
    assert remade(manager)
    assert segment.file is not None


def test_a_disk_that_fails_under_a_repair_and_one_without_descriptors(closed: MemDisk) -> None:
    closed.remove(INDEX)
    manager = opened(closed, LARGE)
    log = manager.logs[ORDERS]
    with pytest.raises(IndexMissingError):
        log.read(300, 1, end=401)
    closed.exhausted = True
    with pytest.raises(ExhaustedError):
        manager.index_repairs.begin()
    closed.exhausted = False
    begun = manager.index_repairs.begin()
    assert begun is not None
    closed.reads_fail = True
    begun.run()
    with pytest.raises(DiskError, match="Input/output error"):
        manager.index_repairs.finish(begun)
    assert manager.index_repairs.begin() is None, "the next read wants it again"
