from typing import Any

import pytest
from tidemark.client.consumer.fetched_chunk import FetchedChunk, ReadOptions
from tidemark.client.consumer.range_reader import (
    OffsetRange,
    RangeLostError,
    RangeReader,
    RawBatch,
    raw_batches,
)
from tidemark.client.errors import (
    AuthorizationError,
    ClientError,
    ConnectionLostError,
    CorruptBatchError,
    LogTruncationError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, set_base_offset_and_epoch
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import run
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import LoopClock

PARTITION = TopicPartition("orders", 3)
ZSTD = 4


def batch(base: int, *, producer_id: int = -1, compression: int = 0) -> bytes:
    """Two records."""
    return build_batch(
        [(0, None, b"v", ())] * 2,
        base_offset=base,
        compression=compression,
        producer_id=producer_id,
        attributes_extra=TRANSACTIONAL_BIT if producer_id >= 0 else 0,
    )


def marker(base: int, *, commits: bool) -> bytes:
    built = build_marker(EndTxnMarker(commits, 1), producer_id=7, producer_epoch=0, timestamp=0)
    whole = bytearray(built)
    set_base_offset_and_epoch(whole, 0, Offset(base), LeaderEpoch(0))
    return bytes(whole)


def found(
    stored: bytes, start: int = 0, end: int = 99, aborted: tuple[tuple[int, int], ...] = ()
) -> list[RawBatch]:
    chunk = FetchedChunk(PARTITION, memoryview(stored), ReadOptions(read_committed=True), aborted)
    return list(raw_batches(OffsetRange(PARTITION, start, end), chunk))


def bases(batches: list[RawBatch]) -> list[int]:
    return [each.header.base_offset for each in batches]


def test_only_batches_of_the_range() -> None:
    assert bases(found(b"".join(batch(base) for base in (0, 2, 4, 6)), 3, 5)) == [2, 4]


@pytest.mark.parametrize(("start", "end", "is_cut"), [(2, 4, False), (3, 4, True), (2, 3, True)])
def test_a_batch_knows_whether_it_is_cut(start: int, end: int, *, is_cut: bool) -> None:
    assert [each.is_cut for each in found(batch(2), start, end)] == [is_cut]


def test_records_are_decompressed() -> None:
    plain, packed = found(batch(0)), found(batch(0, compression=ZSTD))
    assert packed[0].records == plain[0].records == batch(0)[HEADER_BYTES:]


def test_what_was_aborted_is_left_out_up_to_its_marker() -> None:
    stored = batch(0, producer_id=7) + marker(2, commits=False) + batch(3, producer_id=7)
    assert bases(found(stored, aborted=((7, 0),))) == [3]


def test_a_marker_is_no_batch_of_the_users() -> None:
    assert bases(found(batch(0, producer_id=7) + marker(2, commits=True))) == [0]


def test_a_damaged_batch_is_named() -> None:
    damaged = bytearray(batch(0) + batch(2))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match=r"offsets 2 to 3 of orders-3 .* checksum"):
        found(bytes(damaged))


def test_bytes_that_do_not_decompress_are_named() -> None:
    stored = bytearray(batch(0))
    stored[22] |= ZSTD  # it is not
    chunk = FetchedChunk(PARTITION, memoryview(stored), ReadOptions(check_crcs=False))
    with pytest.raises(CorruptBatchError, match="offsets 0 to 1 of orders-3"):
        list(raw_batches(OffsetRange(PARTITION, 0, 9), chunk))


def test_a_loss_says_what_is_left() -> None:
    lost = RangeLostError(PARTITION, (3, 9), (5, 20))
    assert "offsets 3 to 9 (exclusive) of orders-3 are not all there: the log holds 5 to 20" in str(
        lost
    )


def reader_on(cluster: MemoryTransport, **settings: Any) -> RangeReader:
    reader = RangeReader("memory:1", clock=LoopClock(), **settings)
    reader._session._make_transport = lambda group: cluster  # type: ignore[method-assign]
    return reader


def test_records_of_an_open_transaction_are_late_and_not_lost() -> None:
    cluster = MemoryTransport()
    (at,) = cluster.partitions
    log = cluster.logs[at]
    for base in (0, 2):
        log.append(batch(base))
    log.stable = 2

    async def work() -> list[RawBatch]:
        async with reader_on(cluster) as reader:
            return [each async for each in reader.read(at, 0, 4, read_committed=True)]

    with pytest.raises(RequestTimedOutError, match=r"offsets 2 to 4 .* of t-0 .* open"):
        run(work())
    log.stable = 4
    assert bases(run(work())) == [0, 2]


def five_batches() -> MemoryTransport:
    cluster = MemoryTransport()
    for base in range(0, 10, 2):
        cluster.logs[cluster.partitions[0]].append(batch(base))
    return cluster


async def elected_after_three(cluster: MemoryTransport, end: int | None) -> list[int]:
    """Offsets of the batches that are read, a batch for each fetch. After three, a leader is
    elected whose log ends earlier.
    """
    (at,) = cluster.partitions
    log = cluster.logs[at]
    async with reader_on(cluster, max_partition_fetch_bytes=1) as reader:
        batches = reader.read(at, 0, 10, read_committed=False)
        found = [await anext(batches) for _ in range(3)]
        log.elect(5, end)
        for base in range(log.end, 12, 2):
            log.append(batch(base))
        return bases(found + [each async for each in batches])


def test_a_range_is_not_put_together_of_two_logs() -> None:
    cluster = five_batches()
    with pytest.raises(LogTruncationError, match=r"t-0 .* other records from offset 2 on") as told:
        run(elected_after_three(cluster, end=2))
    assert told.value.divergent_offset == 2
    assert {(one.leader_epoch, one.epoch) for one in cluster.validated} == {(5, 0)}


@pytest.mark.parametrize(
    "fault",
    [
        None,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost"),
        UnsupportedVersionError(ErrorCode.UNSUPPORTED_VERSION, "cannot be asked"),
    ],
)
def test_a_clean_election_does_not_end_a_read(fault: ErrorCode | ClientError | None) -> None:
    cluster = five_batches()
    if fault is not None:
        cluster.epoch_faults.append(fault)
    assert run(elected_after_three(cluster, end=None)) == [0, 2, 4, 6, 8]
    assert cluster.validated


def test_a_reader_that_may_not_ask_for_epochs_fails() -> None:
    cluster = five_batches()
    cluster.epoch_faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="validating t-0 failed"):
        run(elected_after_three(cluster, end=None))
