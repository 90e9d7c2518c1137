"""A compacted log in place of the old one: same last values before, after, and after any crash."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from broker.storage.compaction import (
    CleaningResult,
    clean_segments,
    is_current,
    job_for,
    last_data_offsets,
    plan_cleaning,
)
from broker.storage.log import AppendInfo, Log
from broker.storage.log_manager import LogManager
from tidemark.codec.record_batch import iterate_headers, read_header
from tidemark.codec.records import Record, build_batch, read_records
from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.mem_disk import MemDisk

ORDERS = TopicPartition("orders", 0)
CONFIG = topic_config({"cleanup.policy": "compact", "index.interval.bytes": "100"})
NOW = 1_700_000_000_000


def opened(disk: MemDisk) -> LogManager:
    return LogManager.open(
        disk,
        cluster_id="c",
        broker_id=1,
        directory_id="d",
        boot_id="b",
        now_ms=NOW,
        config_of=lambda _: CONFIG,
    )


def append(log: Log, pairs: Sequence[tuple[bytes, bytes | None]], sequence: int) -> None:
    inputs = [(NOW, key, value, ()) for key, value in pairs]
    batch = build_batch(
        inputs,
        base_offset=log.log_end,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        leader_epoch=1,
    )
    header = read_header(batch)
    info = AppendInfo(header.base_offset, header.last_offset, header.max_timestamp, 1, len(batch))
    log.append([batch], info, NOW)
    log.producers.appended(header, header.base_offset, NOW)


def filled(disk: MemDisk) -> tuple[LogManager, Log]:
    """Four rolled segments over ten keys, some deleted, and an active one; all of it synced."""
    manager = opened(disk)
    log = manager.create(ORDERS, TopicId(bytes(16)), CONFIG, NOW)
    for number in range(40):
        value = None if number % 7 == 0 else b"%d" % number
        append(log, [(b"key-%d" % (number % 10), value), (b"last", b"%d" % number)], 2 * number)
        if number % 9 == 8:
            log.roll(NOW)
    flush = manager.begin_flush(only_group=False, now_ms=NOW + 10**9)
    assert flush is not None
    flush.run()
    manager.finish_flush(flush)
    return manager, log


def cleaned(disk: MemDisk, log: Log, *, segment_bytes_max: int = 1 << 30) -> CleaningResult:
    plan = plan_cleaning(
        log.segments(),
        log_start=0,
        last_stable=log.log_end,
        checkpoint=None,
        config=CONFIG,
        now_ms=NOW,
    )
    assert plan is not None
    offsets = last_data_offsets(log.producers.entries())
    job = job_for(plan, ORDERS, CONFIG, now_ms=NOW, last_data_offsets=offsets)
    assert job.last_data_offsets == {7: 79}
    return clean_segments(lambda: disk, replace(job, segment_bytes_max=segment_bytes_max))


def swap(log: Log, result: CleaningResult) -> None:
    assert result.damage is None
    for group in result.groups:
        assert log.swap_segments(group.old_base_offsets, group.path)


def records_of(log: Log) -> list[Record]:
    """Read the log as a fetch does."""
    records: list[Record] = []
    offset = log.log_start
    while offset < log.log_end:
        read = log.read(offset, 300, end=log.log_end)
        assert read.length_bytes > 0
        for piece in read.slices:
            data = piece.file.read_at(piece.position, piece.length)
            for position, header in iterate_headers(data):
                batch = memoryview(data)[position : position + header.size_bytes]
                records += [r for r in read_records(batch, header) if r.offset >= offset]
                offset = header.last_offset + 1
    return records


def last_values(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    values = {record.key: record.value for record in records}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.feature("A19")
def test_readers_of_the_compacted_log_see_the_last_values() -> None:
    disk = MemDisk()
    _, log = filled(disk)
    before, ends = records_of(log), (log.log_start, log.log_end)
    result = cleaned(disk, log)
    assert is_current(result, {one.base_offset: one.size_bytes for one in log.segments()})
    swap(log, result)
    after = records_of(log)
    assert len(after) < len(before) / 3
    assert last_values(after) == last_values(before)
    assert (log.log_start, log.log_end) == ends
    assert len(log.segments()) == 2
    append(log, [(b"key-1", b"more")], 80)
    assert records_of(log)[-1].value == b"more"


@pytest.mark.feature("B04")
def test_a_compacted_segment_reaches_up_to_the_next_one() -> None:
    """A log whose cleaner checkpoint is lost in a power failure must not count as damaged."""
    disk = MemDisk()
    _, log = filled(disk)
    before = records_of(log)
    swap(log, cleaned(disk, log, segment_bytes_max=1))
    assert len(log.segments()) > 3
    disk.kill()
    log = opened(disk).logs[ORDERS]
    assert last_values(records_of(log)) == last_values(before)
    assert not any(one.may_end_early for one in log.segments())


def test_a_read_from_any_offset_finds_the_next_batch() -> None:
    disk = MemDisk()
    _, log = filled(disk)
    swap(log, cleaned(disk, log, segment_bytes_max=1))
    ends = {record.offset for record in records_of(log)}
    for offset in range(log.log_end):
        piece = log.read(offset, 1, end=log.log_end).slices[0]
        header = read_header(piece.file.read_at(piece.position, piece.length))
        assert header.last_offset >= offset
        assert not [end for end in ends if offset <= end < header.base_offset]


def test_after_a_round_nothing_is_due() -> None:
    disk = MemDisk()
    _, log = filled(disk)
    result = cleaned(disk, log)
    swap(log, result)
    plan = plan_cleaning(
        log.segments(),
        log_start=0,
        last_stable=log.log_end,
        checkpoint=result.clean_end,
        config=CONFIG,
        now_ms=NOW,
    )
    assert plan is not None
    assert plan.dirty_bytes == 0
    assert not plan.is_due(CONFIG)


@pytest.mark.feature("A19")
@pytest.mark.parametrize("segment_bytes_max", [1, 1 << 30])
def test_a_crash_at_any_rename_leaves_a_valid_log(segment_bytes_max: int) -> None:
    kept, changes = 0, 1
    while kept <= changes:
        disk = MemDisk()
        _, log = filled(disk)
        expected, log_end = last_values(records_of(log)), log.log_end
        result = cleaned(disk, log, segment_bytes_max=segment_bytes_max)
        assert len(result.groups) == (4 if segment_bytes_max == 1 else 1)
        swap(log, result)
        changes = len(disk._journal)
        disk.crash([kept])
        log = opened(disk).logs[ORDERS]
        assert log.damage is None
        assert log.log_end == log_end
        assert last_values(records_of(log)) == expected
        assert not [name for name in disk.list("orders-0") if name.endswith((".cleaned", ".swap"))]
        kept += 1
    assert changes > 4


def test_producers_survive_compaction_and_a_restart() -> None:
    disk = MemDisk()
    manager, log = filled(disk)
    swap(log, cleaned(disk, log))
    for name in disk.list("orders-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"orders-0/{name}")
    disk.kill()
    recovered = opened(disk).logs[ORDERS]
    (before,), (after,) = manager.logs[ORDERS].producers.entries(), recovered.producers.entries()
    assert after.batches[-1] == before.batches[-1]
