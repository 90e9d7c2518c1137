"""Log.append_run: many batches in one write have the same result as one after the other."""

from dataclasses import replace

import pytest
from broker.storage.log import AppendInfo, Log
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.record_batch import iterate_headers
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import NOW, TINY, bytes_of, make_batch, new_log

BATCHES = st.lists(
    st.tuples(
        st.integers(1, 4),  # records
        st.integers(0, 300),  # bytes of its body
        st.sampled_from([0, 0, 0, 0, 3]),  # offsets that compaction left out before it
        st.sampled_from([0, 0, 0, 0, 1]),  # how much newer its leader epoch is
        st.integers(0, 3 * TINY.segment_ms),
    ),
    min_size=1,
    max_size=12,
)
SMALL_INDEX = replace(TINY, segment_bytes=100_000, segment_index_bytes=24)


def records_of(batches: list[tuple[int, int, int, int, int]]) -> bytes:
    """Batches as a leader sends them."""
    records, offset, epoch = b"", 0, 0
    for count, body_bytes, gap, newer, later_ms in batches:
        offset, epoch = offset + gap, epoch + newer
        records += make_batch(offset, count, body_bytes, epoch=epoch, timestamp=NOW + later_ms)
        offset += count
    return records


def infos_of(records: bytes) -> list[AppendInfo]:
    return [
        AppendInfo(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.partition_leader_epoch,
            header.size_bytes,
        )
        for _, header in iterate_headers(records)
    ]


def state_of(log: Log) -> tuple[object, ...]:
    return log.log_end, log.size_bytes, log.segments(), log.epochs.entries(), log.synced_end


@pytest.mark.feature("B01")
@pytest.mark.parametrize("config", [TINY, SMALL_INDEX])
@settings(max_examples=60)
@given(batches=BATCHES)
def test_a_run_is_its_batches_one_by_one(config: object, batches: list[tuple[int, ...]]) -> None:
    records = records_of(batches)  # type: ignore[arg-type]
    infos = infos_of(records)
    (_, _, log), (_, _, other) = new_log(config), new_log(config)  # type: ignore[arg-type]
    position, left = 0, infos
    while left:
        count = log.append_run(memoryview(records)[position:], left, NOW)
        position += sum(info.size_bytes for info in left[:count])
        left = left[count:]
    position = 0
    for info in infos:
        other.append((records[position : position + info.size_bytes],), info, NOW)
        position += info.size_bytes
    assert state_of(log) == state_of(other)
    for info in infos:
        assert bytes_of(log.read(info.last, 1, end=log.log_end)) == bytes_of(
            other.read(info.last, 1, end=other.log_end)
        )


def test_most_batches_share_a_write() -> None:
    _, _, log = new_log(replace(TINY, segment_bytes=1 << 20))
    records = records_of([(1, 100, 0, 0, 0)] * 9)
    infos = infos_of(records)
    assert log.append_run(memoryview(records), infos, NOW) == 1, "an empty segment is made ready"
    rest = memoryview(records)[infos[0].size_bytes :]
    assert log.append_run(rest, infos[1:], NOW) == len(infos) - 1


def test_a_run_that_does_not_fit_on_the_disk_leaves_nothing() -> None:
    disk = MemDisk()
    _, _, log = new_log(replace(TINY, segment_bytes=1 << 20), disk)
    records = records_of([(1, 100, 0, 0, 0)] * 9)
    infos = infos_of(records)
    log.append_run(memoryview(records), infos, NOW)
    before = state_of(log)
    disk.capacity_bytes = disk.size_of("orders-0/00000000000000000000.log") + 500
    rest = memoryview(records)[infos[0].size_bytes :]
    with pytest.raises(DiskFullError):
        log.append_run(rest, infos[1:], NOW)
    assert state_of(log) == before
