import asyncio
from collections.abc import Iterable

import pytest
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.consumer.offset_lookup import OffsetAndTimestamp
from tidemark.client.errors import (
    AuthorizationError,
    ClientClosedError,
    ClientConfigError,
    ClientError,
    ConnectionLostError,
    CorruptBatchError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import consumer_on, run
from unit.tidemark.client.memory_transport import MemoryTransport
from waiting import until

ZERO = TopicPartition("t", 0)


def filled(counts: Iterable[int], *, partitions: int = 1) -> MemoryTransport:
    """One batch of so many records each in every partition; timestamps are offsets times ten."""
    transport = MemoryTransport(partitions=partitions)
    for log in transport.logs.values():
        for count in counts:
            first = log.end
            log.append(
                build_batch(
                    [(10 * (first + n), None, b"%d" % (first + n), ()) for n in range(count)]
                )
            )
    return transport


async def read(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        offsets += [record.offset for record in await consumer.poll(timeout_ms=1_000)]
    return offsets


@pytest.mark.feature("D01", "D02", "D03")
def test_records_are_pulled_from_every_partition_in_order() -> None:
    transport = filled([3, 4], partitions=3)

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            assert len(await consumer.assign_topic("t")) == 3
            records: list[ConsumerRecord] = []
            while len(records) < 21:
                records += await consumer.poll()
            for number in range(3):
                assert [r.offset for r in records if r.partition == number] == list(range(7))

    run(work())


@pytest.mark.feature("A02", "A18")
def test_seeks_go_anywhere_and_back() -> None:
    async def work() -> None:
        async with consumer_on(filled([10])) as consumer:
            consumer.assign([("t", 0)])
            assert await read(consumer, 10) == list(range(10))
            consumer.seek(("t", 0), 7)
            assert await read(consumer, 3) == [7, 8, 9]
            consumer.seek_to_beginning()
            assert await consumer.position(ZERO) == 0
            consumer.seek_to_end(ZERO)
            assert await consumer.position(ZERO) == 10
            consumer.seek_to_timestamp(35)
            assert await read(consumer, 6) == [4, 5, 6, 7, 8, 9]
            consumer.seek_to_timestamp(1_000)
            assert await consumer.position(ZERO) == 10

    run(work())


@pytest.mark.feature("D04")
def test_a_poll_waits_for_records_and_comes_back_without_at_its_time() -> None:
    transport = filled([1])

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            assert await read(consumer, 1) == [0]
            assert await consumer.poll(timeout_ms=30) == []
            asyncio.get_running_loop().call_later(0.01, append_late)
            assert await read(consumer, 1) == [1]

    def append_late() -> None:
        transport.logs[ZERO].append(build_batch([(0, None, b"late", ())]))

    run(work())


def test_at_most_max_records_come_at_once() -> None:
    async def work() -> list[int]:
        async with consumer_on(filled([10]), max_poll_records=4) as consumer:
            consumer.assign([ZERO])
            return [len(await consumer.poll(timeout_ms=500)) for _ in range(3)]

    assert run(work()) == [4, 4, 2]


def test_iteration_moves_the_position_record_by_record() -> None:
    async def work() -> None:
        async with consumer_on(filled([5, 5])) as consumer:
            consumer.assign([ZERO])
            async for record in consumer:
                if record.offset == 6:
                    break
            assert await consumer.position(ZERO) == 7
            assert await read(consumer, 3) == [7, 8, 9]

    run(work())


def test_records_polled_and_not_used_can_be_read_again() -> None:
    async def work() -> None:
        async with consumer_on(filled([5])) as consumer:
            consumer.assign([ZERO])
            records = await consumer.poll()
            consumer.rewind(records[2:])
            assert await read(consumer, 3) == [2, 3, 4]

    run(work())


def test_paused_partitions_give_nothing() -> None:
    async def work() -> None:
        async with consumer_on(filled([2], partitions=2)) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            consumer.pause(("t", 0))
            assert consumer.paused() == (ZERO,)
            assert {r.partition for r in await consumer.poll(timeout_ms=200)} == {1}
            consumer.resume(("t", 0))
            assert {r.partition for r in await consumer.poll(timeout_ms=200)} == {0}

    run(work())


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_position_outside_the_log_goes_where_it_is_told(reset: str) -> None:
    transport = filled([10])
    transport.logs[ZERO].start = 4

    async def work() -> None:
        async with consumer_on(transport, auto_offset_reset=reset) as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 1)
            if reset == "none":
                with pytest.raises(OffsetOutOfRangeError, match="offset 1 of t-0"):
                    await consumer.poll()
                consumer.seek(ZERO, 9)
                assert await read(consumer, 1) == [9]
            elif reset == "earliest":
                assert (await read(consumer, 6))[0] == 4
            else:
                await consumer.poll(timeout_ms=50)
                assert await consumer.position(ZERO) == 10

    run(work())


@pytest.mark.feature("A16")
@pytest.mark.parametrize("fault", ["lost", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_failed_fetch_is_tried_again(fault: str | ErrorCode) -> None:
    transport = filled([3])
    transport.faults.extend([fault, fault])

    async def work() -> list[int]:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            return await read(consumer, 3)

    assert run(work()) == [0, 1, 2]


def test_a_moved_leader_is_found() -> None:
    transport = filled([3])

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            assert await read(consumer, 3) == [0, 1, 2]
            transport.leaders[ZERO] = 2
            transport.logs[ZERO].append(build_batch([(0, None, b"", ())]))
            assert await read(consumer, 1) == [3]

    run(work())


def test_an_error_that_no_retry_mends_is_raised() -> None:
    transport = filled([3])
    transport.faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            with pytest.raises(Exception, match="fetching t-0 from offset 0 failed at memory"):
                await consumer.poll()
            assert await read(consumer, 3) == [0, 1, 2]

    run(work())


def test_offsets_of_logs_are_looked_up() -> None:
    transport = filled([10])
    transport.logs[ZERO].start = 2

    async def work() -> None:
        async with consumer_on(transport, unknown_topic_grace_ms=10) as consumer:
            assert await consumer.beginning_offsets([ZERO]) == {ZERO: 2}
            assert await consumer.end_offsets([("t", 0)]) == {ZERO: 10}
            found = await consumer.offsets_for_times({ZERO: 35})
            assert found == {ZERO: OffsetAndTimestamp(4, 40, -1)}
            assert await consumer.offsets_for_times({ZERO: 1_000}) == {ZERO: None}
            with pytest.raises(UnknownTopicOrPartitionError):
                await consumer.end_offsets([("t", 9)])

    run(work())


def test_what_needs_a_group_says_so() -> None:
    async def work() -> None:
        async with consumer_on(filled([1])) as consumer:
            with pytest.raises(ClientConfigError, match=r"subscribe\(\) needs a group_id"):
                consumer.subscribe(["t"])
            with pytest.raises(ClientConfigError, match=r"commit\(\) needs a group_id"):
                await consumer.commit()

    run(work())


def test_wrong_calls_are_refused() -> None:
    async def work() -> None:
        consumer = consumer_on(filled([1]))
        with pytest.raises(ClientClosedError):
            await consumer.poll()
        async with consumer:
            with pytest.raises(UnknownTopicOrPartitionError, match="not assigned"):
                consumer.seek(ZERO, 0)
            consumer.assign([ZERO])
            for wrong in (-1, 2**63):
                with pytest.raises(ValueError, match="negative or too large"):
                    consumer.seek(ZERO, wrong)
                with pytest.raises(ValueError, match="negative or too large"):
                    consumer.seek_to_timestamp(wrong)
                with pytest.raises(ValueError, match="negative or too large"):
                    await consumer.offsets_for_times({ZERO: wrong})
            with pytest.raises(ValueError, match="max_records"):
                await consumer.poll(0)

    run(work())


def test_reassigning_keeps_positions() -> None:
    async def work() -> None:
        async with consumer_on(filled([4], partitions=2)) as consumer:
            consumer.assign([("t", 0)])
            await read(consumer, 4)
            consumer.assign([("t", 0), ("t", 1)])
            assert await consumer.position(("t", 0)) == 4
            assert await read(consumer, 4) == [0, 1, 2, 3]
            assert consumer.assignment() == (("t", 0), ("t", 1))

    run(work())


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


async def read_on(consumer: Consumer, seen: list[tuple[int, int]]) -> None:
    while True:
        seen += [(record.partition, record.offset) for record in await consumer.poll()]


@pytest.mark.parametrize("partitions", [1, 2])
def test_records_before_a_damaged_batch_are_returned_first(partitions: int) -> None:
    transport = filled([3, 4], partitions=partitions)
    last = transport.logs[TopicPartition("t", partitions - 1)]
    last.batches[1] = damaged(last.batches[1])

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([("t", number) for number in range(partitions)])
            seen: list[tuple[int, int]] = []
            for _ in range(2):
                with pytest.raises(CorruptBatchError):
                    await read_on(consumer, seen)
            whole = {(0, offset) for offset in range(7)} if partitions == 2 else set()
            assert sorted(seen) == sorted(whole | {(partitions - 1, n) for n in range(3)})

    run(work())


def test_a_partition_without_a_leader_does_not_hold_up_the_others() -> None:
    transport = filled([5], partitions=2)
    transport.leaders[TopicPartition("t", 1)] = -1

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([("t", 0), ("t", 1)])
            assert len(await consumer.poll(timeout_ms=1_000)) == 5
            consumer.seek_to_beginning(("t", 0))
            assert len(await consumer.poll(timeout_ms=1_000)) == 5
            transport.leaders[TopicPartition("t", 1)] = 1
            assert len(await consumer.poll(timeout_ms=60_000)) == 5

    run(work())


def test_a_partition_that_does_not_exist_is_told() -> None:
    async def work() -> None:
        async with consumer_on(filled([5])) as consumer:
            consumer.assign([("t", 0), ("t", 7)])
            assert len(await consumer.poll(timeout_ms=1_000)) == 5
            with pytest.raises(UnknownTopicOrPartitionError, match="t-7 does not exist"):
                await consumer.poll(timeout_ms=60_000)

    run(work())


def test_polls_that_do_not_wait_let_the_fetches_run() -> None:
    async def work() -> None:
        async with consumer_on(filled([5])) as consumer:
            consumer.assign([("t", 0)])
            for _ in range(1_000):
                if await consumer.poll(timeout_ms=0):
                    return
            pytest.fail("no records")

    run(work())


def test_fetched_records_are_returned_before_a_position_outside_the_log_is_reset() -> None:
    transport = filled([3, 4])
    log = transport.logs[ZERO]

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([("t", 0)])
            assert len(await consumer.poll(1)) == 1
            log.batches, log.start, log.end = [], 20, 20
            await until(lambda: transport.outside)
            offsets = [one.offset for _ in range(3) for one in await consumer.poll(timeout_ms=100)]
            assert offsets == [1, 2, 3, 4, 5, 6]
            log.append(build_batch([(1, None, b"x", ())]))
            assert await read(consumer, 1) == [20]

    run(work())


# -- truncation


async def elected_uncleanly(consumer: Consumer, transport: MemoryTransport) -> None:
    """Read ten records, of which an unclean election replaces the last four."""
    consumer.assign([ZERO])
    assert await read(consumer, 10) == list(range(10))
    log = transport.logs[ZERO]
    log.elect(5, end=6)
    log.append(build_batch([(0, None, b"new", ())] * 7))


def test_after_an_unclean_election_reading_goes_back_to_where_logs_differ() -> None:
    transport = filled([2] * 5)

    async def work() -> list[tuple[int, bytes | None]]:
        async with consumer_on(transport) as consumer:
            await elected_uncleanly(consumer, transport)
            records = await consumer.poll(timeout_ms=1_000)
            return [(record.offset, record.value) for record in records]

    assert run(work()) == [(offset, b"new") for offset in range(6, 13)]


def test_without_a_reset_policy_a_truncated_log_is_an_error_until_a_seek() -> None:
    transport = filled([2] * 5)

    async def work() -> list[int]:
        async with consumer_on(transport, auto_offset_reset="none") as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 0)
            await elected_uncleanly(consumer, transport)
            for _ in range(2):
                with pytest.raises(LogTruncationError, match="other records from offset 6") as told:
                    await read(consumer, 1)
            assert told.value.divergent_offset == 6
            consumer.seek(ZERO, 6)
            return await read(consumer, 7)

    assert run(work()) == list(range(6, 13))


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost"),
        UnsupportedVersionError(ErrorCode.UNSUPPORTED_VERSION, "cannot be asked"),
    ],
)
def test_a_clean_election_is_not_noticed(fault: ErrorCode | ClientError) -> None:
    transport = filled([2] * 5)

    async def work() -> list[int]:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 10)
            transport.epoch_faults.append(fault)
            transport.logs[ZERO].elect(5)
            transport.logs[ZERO].append(build_batch([(0, None, b"new", ())]))
            return await read(consumer, 1)

    assert run(work()) == [10]
    assert {(one.leader_epoch, one.epoch) for one in transport.validated} == {(5, 0)}


def test_a_consumer_that_may_not_ask_for_epochs_fails() -> None:
    transport = filled([2])

    async def work() -> None:
        async with consumer_on(transport) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 2)
            transport.epoch_faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            transport.logs[ZERO].elect(5)
            with pytest.raises(AuthorizationError, match="validating t-0 failed"):
                await read(consumer, 1)

    run(work())
