import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tidemark.client.config import CompressionType
from tidemark.client.errors import (
    AuthorizationError,
    BufferFullError,
    ClientClosedError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidSequenceNumber,
    MessageTooLargeError,
    NotLeaderError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidemark.client.producer.batches import RecordMetadata
from tidemark.client.producer.partitioner import partition_for_key
from tidemark.client.wire.metadata_cache import ClusterView
from tidemark.client.wire.transport import ProduceItem, ProduceOutcome, ProducerIdentity
from tidemark.codec.records import encode_record
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import producer_on, run
from unit.tidemark.client.memory_transport import MemoryTransport

ZERO = TopicPartition("t", 0)


def values(transport: MemoryTransport, partition: TopicPartition = ZERO) -> list[bytes | None]:
    return [record.value for record in transport.logs[partition].records()]


async def send_all(transport: MemoryTransport, count: int, **settings: Any) -> list[RecordMetadata]:
    async with producer_on(transport, **settings) as producer:
        deliveries = [await producer.enqueue("t", b"%d" % number) for number in range(count)]
        return [await delivery for delivery in deliveries]


@pytest.mark.feature("C01")
def test_send_gives_the_records_place() -> None:
    async def work() -> RecordMetadata:
        async with producer_on(MemoryTransport()) as producer:
            await producer.send("t", b"before")
            return await producer.send("t", b"v", b"k", timestamp_ms=7, headers=[("h", b"1")])

    assert run(work()) == RecordMetadata("t", 0, 1, 7)


@pytest.mark.feature("A12", "C04")
def test_records_taken_together_travel_together() -> None:
    transport = MemoryTransport()
    sent = run(send_all(transport, 100))
    assert [each.offset for each in sent] == list(range(100))
    assert len(transport.logs[ZERO].batches) == 1


@pytest.mark.feature("C02", "C03")
def test_records_go_by_key_by_number_or_by_the_users_rule() -> None:
    transport = MemoryTransport(partitions=4)

    async def work() -> list[int]:
        async with producer_on(transport) as producer:
            by_key = await producer.send("t", b"", b"user-7")
            by_number = await producer.send("t", b"", b"user-7", partition=3)
        async with producer_on(transport, partitioner=lambda *_: 2) as producer:
            by_rule = await producer.send("t", b"", b"user-7")
        return [by_key.partition, by_number.partition, by_rule.partition]

    assert run(work()) == [partition_for_key(b"user-7", 4), 3, 2]


@pytest.mark.feature("K06", "K07")
@pytest.mark.parametrize("fault", ["lost", "unanswered", ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_retried_batch_is_there_once_and_in_order(fault: str | ErrorCode) -> None:
    transport = MemoryTransport()
    transport.faults.extend([fault, fault])
    sent = run(send_all(transport, 500, batch_size=200, linger_ms=0))
    assert [each.offset for each in sent] == list(range(500))
    assert values(transport) == [b"%d" % number for number in range(500)]


class SmallTopic(MemoryTransport):
    """Its batches have at most so many bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes_max = bytes_max
        self.sizes: list[int] = []

    def _append(self, broker_id: int, item: ProduceItem) -> ProduceOutcome:
        self.sizes.append(len(item.batch))
        if len(item.batch) > self.bytes_max:
            return ProduceOutcome(ErrorCode.MESSAGE_TOO_LARGE)
        return super()._append(broker_id, item)


@pytest.mark.parametrize("idempotent", [True, False])
def test_batches_that_are_too_large_for_a_topic_are_split(idempotent: bool) -> None:
    transport = SmallTopic(400)
    sent = run(send_all(transport, 500, enable_idempotence=idempotent))
    assert [each.offset for each in sent] == list(range(500))
    assert values(transport) == [b"%d" % number for number in range(500)]
    assert max(transport.sizes) > 400
    assert min(transport.sizes) > 150, "not smaller than needed"


def test_a_record_that_is_too_large_for_its_topic_fails_alone() -> None:
    transport = SmallTopic(400)

    async def work() -> list[object]:
        async with producer_on(transport) as producer:
            values = [b"0", b"x" * 400, b"2"]
            deliveries = [await producer.enqueue("t", one, timestamp_ms=7) for one in values]
            return await asyncio.gather(*deliveries, return_exceptions=True)

    first, large, last = run(work())
    assert isinstance(large, MessageTooLargeError)
    assert (first, last) == (RecordMetadata("t", 0, 0, 7), RecordMetadata("t", 0, 1, 7))


@pytest.mark.feature("C09", "A16")
def test_a_moved_leader_is_found() -> None:
    transport = MemoryTransport()

    async def work() -> None:
        async with producer_on(transport) as producer:
            await producer.send("t", b"0")
            transport.leaders[ZERO] = 2
            await producer.send("t", b"1")

    run(work())
    assert values(transport) == [b"0", b"1"]


class SlowToElect(MemoryTransport):
    """Its metadata shows another leader only some time after the first was refused."""

    SHOWN_AFTER_S = 0.13

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        view = await super().describe(topics, auto_create=auto_create)
        self.described = (*getattr(self, "described", ()), asyncio.get_running_loop().time())
        return view

    def elect(self) -> None:
        asyncio.get_running_loop().call_later(self.SHOWN_AFTER_S, self.leaders.update, {ZERO: 2})

    async def produce(self, broker_id: int, *rest: Any, **named: Any) -> list[ProduceOutcome]:
        if broker_id == 1 and self.logs[ZERO].end:
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        return await super().produce(broker_id, *rest, **named)


def test_a_new_leader_gets_a_refused_batch_at_once() -> None:
    transport = SlowToElect()

    async def work() -> float:
        async with producer_on(transport, retry_backoff_ms=100, retry_backoff_max_ms=1_000) as one:
            await one.send("t", b"0")
            began = asyncio.get_running_loop().time()
            transport.elect()
            await one.send("t", b"1")
            return asyncio.get_running_loop().time() - began

    assert run(work()) < SlowToElect.SHOWN_AFTER_S + 0.11
    assert values(transport) == [b"0", b"1"]
    assert len(transport.described) <= 4


@pytest.mark.feature("K05")
def test_a_gap_at_the_broker_is_raised_and_later_records_go_on() -> None:
    transport = MemoryTransport()

    async def work() -> None:
        async with producer_on(transport) as producer:
            await producer.send("t", b"0")
            transport.logs[ZERO].producers[1001].next = -5
            with pytest.raises(InvalidSequenceNumber):
                await producer.send("t", b"1")
            await producer.send("t", b"2")

    run(work())
    assert values(transport) == [b"0", b"2"]


@pytest.mark.feature("C05")
def test_full_memory_makes_send_wait_and_send_nowait_raise() -> None:
    transport = MemoryTransport()
    transport.held.clear()

    async def work() -> None:
        slow = {"buffer_memory": 1_000, "linger_ms": 60_000, "delivery_timeout_ms": 120_000}
        async with producer_on(transport, **slow) as producer:
            await producer.partitions_for("t")
            for _ in range(8):
                producer.send_nowait("t", bytes(100))
            with pytest.raises(BufferFullError):
                producer.send_nowait("t", bytes(100))
            asyncio.get_running_loop().call_later(0.01, transport.held.set)
            await producer.enqueue("t", b"waited" + bytes(100))

    run(work())
    assert values(transport)[-1] == b"waited" + bytes(100)


def test_waiting_for_room_ends_at_max_block_ms() -> None:
    transport = MemoryTransport()
    transport.held.clear()

    async def work() -> None:
        producer = await producer_on(transport, buffer_memory=300, max_block_ms=20).start()
        for _ in range(2):
            await producer.enqueue("t", bytes(100))
        with pytest.raises(BufferFullError):
            await producer.enqueue("t", bytes(100))
        await producer.close(timeout_ms=0)

    run(work())


def test_records_that_cannot_be_sent_run_out_of_time() -> None:
    transport = MemoryTransport()
    transport.leaders[ZERO] = -1

    async def work() -> None:
        timing = {"request_timeout_ms": 10, "linger_ms": 0, "delivery_timeout_ms": 30}
        async with producer_on(transport, **timing) as producer:
            with pytest.raises(DeliveryTimeoutError, match=r"waiting to be sent.*no leader"):
                await producer.send("t", b"v", partition=0)

    run(work())


def test_the_last_refusal_is_told_when_time_runs_out() -> None:
    transport = MemoryTransport()
    transport.faults.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000)

    async def work() -> None:
        timing = {"request_timeout_ms": 10, "linger_ms": 0, "delivery_timeout_ms": 30}
        async with producer_on(transport, **timing) as producer:
            with pytest.raises(DeliveryTimeoutError, match="bring replicas back"):
                await producer.send("t", b"v", partition=0)

    run(work())


def test_a_producer_id_that_is_refused_fails_what_waits_for_it() -> None:
    class Refusing(MemoryTransport):
        async def init_producer_id(self) -> ProducerIdentity:
            raise error_for(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "requesting a producer id failed"
            )

    async def work() -> None:
        async with producer_on(Refusing()) as producer:
            with pytest.raises(AuthorizationError):
                await producer.send("t", b"v")

    run(work())


def test_flush_raises_the_failure_nobody_asked_about() -> None:
    transport = MemoryTransport()
    transport.faults.append(ErrorCode.INVALID_RECORD)

    async def work() -> None:
        async with producer_on(transport) as producer:
            await producer.enqueue("t", b"v")
            with pytest.raises(Exception, match="INVALID_RECORD"):
                await producer.flush()
            await producer.flush()

    run(work())


def test_flush_does_not_linger() -> None:
    transport = MemoryTransport()

    async def work() -> None:
        async with producer_on(
            transport, linger_ms=60_000, delivery_timeout_ms=120_000
        ) as producer:
            delivery = await producer.enqueue("t", b"v")
            await producer.flush(timeout_ms=1_000)
            assert delivery.done()

    run(work())


def test_closing_without_waiting_fails_what_is_left() -> None:
    transport = MemoryTransport()
    transport.held.clear()

    async def work() -> None:
        producer = await producer_on(transport).start()
        delivery = await producer.enqueue("t", b"v")
        with pytest.raises(ClientClosedError, match="before the acknowledgement"):
            await producer.close(timeout_ms=10)
        assert isinstance(delivery.exception(), ClientClosedError)
        with pytest.raises(ClientClosedError):
            await producer.send("t", b"v")

    run(work())


def test_what_cannot_be_a_record_is_refused_at_once() -> None:
    async def work() -> None:
        async with producer_on(MemoryTransport(partitions=2)) as producer:
            with pytest.raises(NotLeaderError, match="partitions_for"):
                producer.send_nowait("t", b"v")
            with pytest.raises(TypeError, match="value must be bytes"):
                await producer.send("t", "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="header"):
                await producer.send("t", b"v", headers=[(b"name", b"")])  # type: ignore[list-item]
            with pytest.raises(ValueError, match="timestamp_ms"):
                await producer.send("t", b"v", timestamp_ms=-1)
            with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1, not 2"):
                await producer.send("t", b"v", partition=2)
            await producer.send("t", bytearray(b"bytes of any kind"), memoryview(b"k"))  # type: ignore[arg-type]

    run(work())


def test_a_cancelled_waiter_does_not_disturb_the_others() -> None:
    transport = MemoryTransport()
    transport.held.clear()

    async def work() -> None:
        async with producer_on(transport) as producer:
            delivery = await producer.enqueue("t", b"v")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await delivery
            transport.held.set()
            assert (await delivery).offset == 0

    run(work())


def test_null_values_and_keys_travel() -> None:
    transport = MemoryTransport()

    async def work() -> None:
        async with producer_on(transport) as producer:
            await producer.send("t", None, b"k")
            await producer.send("t", b"", None)

    run(work())
    assert [(each.key, each.value) for each in transport.logs[ZERO].records()] == [
        (b"k", None),
        (None, b""),
    ]


def encoded(*values: bytes, timestamp_ms: int = 1_000) -> tuple[bytes, dict[str, int]]:
    payload = b"".join(
        encode_record(number, number, None, value) for number, value in enumerate(values)
    )
    last = timestamp_ms + len(values) - 1
    return payload, {
        "count": len(values),
        "first_timestamp": timestamp_ms,
        "max_timestamp": last,
    }


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_encoded_records_travel_as_a_batch_of_their_own_in_order(
    compression: CompressionType,
) -> None:
    transport = MemoryTransport()

    async def work() -> RecordMetadata:
        async with producer_on(transport, linger_ms=60_000, compression_type=compression) as some:
            await some.enqueue("t", b"a")
            payload, facts = encoded(b"b", b"c")
            delivery = await some.send_encoded(ZERO, memoryview(payload), **facts)
            await some.enqueue("t", b"d", partition=0)
            await some.flush()
            return delivery.result()

    assert run(work()) == RecordMetadata("t", 0, 1, 1_000)
    assert values(transport) == [b"a", b"b", b"c", b"d"]
    assert [record.timestamp for record in transport.logs[ZERO].records()][1:3] == [1_000, 1_001]


def test_encoded_records_that_are_too_large_are_split_and_delivered_together() -> None:
    transport = SmallTopic(200)
    texts = [b"%04d" % number for number in range(60)]

    async def work() -> int:
        async with producer_on(transport) as producer:
            await producer.send("t", b"before")
            records, told = encoded(*texts)
            delivery = await producer.send_encoded(ZERO, records, **told)
            return (await delivery).offset

    assert run(work()) == 1
    records = transport.logs[ZERO].records()[1:]
    assert [(one.offset, one.value) for one in records] == list(enumerate(texts, start=1))
    assert [one.timestamp for one in records] == list(range(1_000, 1_060))


def test_encoded_records_wait_for_room() -> None:
    transport = MemoryTransport()
    payload, facts = encoded(bytes(600))

    async def work() -> int:
        async with producer_on(transport, buffer_memory=1_000, batch_size=700) as some:
            for _ in range(5):
                await some.send_encoded(ZERO, payload, **facts)
            await some.flush()
            return some.statistics().records_acknowledged

    assert run(work()) == 5


@pytest.mark.parametrize("partition", [ZERO._replace(partition=9), TopicPartition("none", 0)])
def test_encoded_records_for_nowhere_are_refused(partition: TopicPartition) -> None:
    payload, facts = encoded(b"x")

    async def work() -> None:
        transport = MemoryTransport()
        async with producer_on(transport, unknown_topic_grace_ms=1, max_block_ms=200) as producer:
            await producer.send_encoded(partition, payload, **facts)

    with pytest.raises(UnknownTopicOrPartitionError):
        run(work())


def test_encoded_records_beyond_a_request_are_refused() -> None:
    payload, facts = encoded(bytes(2_000))

    async def work() -> None:
        async with producer_on(MemoryTransport(), max_request_size=1_500) as producer:
            await producer.send_encoded(ZERO, payload, **facts)

    with pytest.raises(MessageTooLargeError, match=r"a batch of 2\d\d\d bytes"):
        run(work())


def test_a_deleted_topic_does_not_hold_up_another() -> None:
    async def work() -> float:
        transport, other = MemoryTransport(), MemoryTransport(topic="u")
        transport.partitions += other.partitions
        transport.logs |= other.logs
        transport.leaders |= other.leaders
        async with producer_on(transport) as producer:
            await producer.send("u", b"1")
            await producer.send("t", b"1")
            transport.partitions = [ZERO]
            producer._session.cache.mark_stale()
            began = asyncio.get_running_loop().time()
            await producer.partitions_for("t")
            return asyncio.get_running_loop().time() - began

    assert run(work()) < 1
