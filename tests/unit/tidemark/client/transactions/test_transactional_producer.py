import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark.client.config import ProducerConfig
from tidemark.client.consumer.group_types import GroupMetadata
from tidemark.client.errors import (
    AbortableTransactionError,
    ClientClosedError,
    ClientConfigError,
    CommitFailedError,
    InvalidTransactionStateError,
    ProducerFencedError,
    RequestTimedOutError,
)
from tidemark.client.producer.producer import Producer
from tidemark.client.share.ack_batches import Decision
from tidemark.client.share.deliveries import PartitionDeliveries
from tidemark.client.transactions.transactional_producer import TransactionalProducer
from tidemark.codec.record_batch import BatchHeader
from tidemark.codec.records import encode_record
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import run
from unit.tidemark.client.memory_transactions import MemoryTransactions
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import LoopClock, pass_time

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = GroupMetadata("g")


def cluster(*, partitions: int = 2) -> MemoryTransactions:
    return MemoryTransactions(MemoryTransport(partitions=partitions))


def producer_on(memory: MemoryTransactions, **settings: Any) -> TransactionalProducer:
    config = ProducerConfig(retry_backoff_ms=1, retry_backoff_max_ms=2, transactional_id="x")
    producer = TransactionalProducer("memory:1", config, clock=LoopClock(), **settings)
    producer._session._make_transport = lambda group: memory.cluster  # type: ignore[method-assign]
    producer._session.kafka = memory.kafka  # type: ignore[method-assign]
    return producer


def headers(memory: MemoryTransactions, partition: TopicPartition) -> list[BatchHeader]:
    return memory.cluster.logs[partition].headers()


@pytest.mark.feature("L09", "L12")
def test_records_of_a_transaction_carry_its_identity_and_end_with_one_marker_each() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            for _ in range(2):
                await producer.begin()
                for partition in (0, 1):
                    await producer.enqueue("t", b"v", partition=partition)
                await producer.commit()

    run(work())
    assert memory.outcomes == [("x", 0, True), ("x", 1, True)]
    for partition in (ZERO, ONE):
        found = headers(memory, partition)
        assert [header.is_control for header in found] == [False, True, False, True]
        assert all(header.is_transactional for header in found)
        assert [header.producer_epoch for header in found] == [0, 1, 1, 2]
        assert [header.base_sequence for header in found[::2]] == [0, 0]
    assert set(memory.cluster.transactional_ids) == {"x"}


def test_a_transaction_without_records_asks_nobody() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            await producer.begin()
            await producer.commit()
            await producer.begin()
            await producer.abort()
            async with producer.transaction():
                await producer.enqueue("t", b"v", partition=0)

    run(work())
    assert memory.outcomes == [("x", 0, True)]


def test_an_abort_fails_what_was_not_sent_and_the_next_transaction_is_clean() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            await producer.init()
            await producer.begin()
            delivery = await producer.enqueue("t", b"never", partition=0)
            await producer.abort()
            with pytest.raises(ClientClosedError, match="aborted before"):
                await delivery
            async with producer.transaction():
                await producer.enqueue("t", b"v", partition=0)

    run(work())
    assert memory.outcomes == [("x", 0, True)], "the coordinator never heard of the first"
    assert memory.cluster.logs[ZERO].records()[0].value == b"v"


def test_a_record_that_fails_makes_the_transaction_abortable_and_no_more() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            await producer.begin()
            memory.cluster.faults.append(ErrorCode.INVALID_TXN_STATE)
            delivery = await producer.enqueue("t", b"v", partition=0)
            with pytest.raises(AbortableTransactionError, match=r"abort\(\)"):
                await producer.commit()
            assert delivery.exception() is not None
            with pytest.raises(AbortableTransactionError):
                await producer.send("t", b"w")
            await producer.abort()
            async with producer.transaction():
                await producer.send("t", b"z", partition=0)

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False, True]


@pytest.mark.feature("L02", "L03")
def test_a_second_producer_of_the_id_fences_the_first_for_ever() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as first, producer_on(memory) as second:
            await first.init()
            await first.begin()
            await first.send("t", b"v", partition=0)
            await second.init()
            with pytest.raises(ProducerFencedError):
                await first.commit()
            with pytest.raises(ProducerFencedError):
                await first.begin()
            async with second.transaction():
                await second.send("t", b"w", partition=0)

    run(work())
    assert memory.outcomes == [("x", 1, True)]


@pytest.mark.parametrize("fault", ["lost", "unanswered", ErrorCode.CONCURRENT_TRANSACTIONS])
def test_a_commit_is_asked_for_until_it_is_answered_and_happens_once(fault: Any) -> None:
    memory = cluster()
    memory.faults[ApiKey.END_TXN].extend([fault] * 3)

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)

    run(work())
    assert memory.outcomes == [("x", 0, True)]
    assert len(memory.requests(ApiKey.END_TXN)) == 4


def test_a_commit_of_unknown_outcome_can_only_be_asked_for_again() -> None:
    memory = cluster()
    memory.faults[ApiKey.END_TXN].extend(["unanswered"] * 1_000)

    async def work() -> None:
        async with producer_on(memory, max_block_ms=20) as producer:
            await producer.init()
            await producer.begin()
            await producer.send("t", b"v", partition=0)
            with pytest.raises(RequestTimedOutError):
                await producer.commit()
            with pytest.raises(InvalidTransactionStateError):
                await producer.abort()
            memory.faults[ApiKey.END_TXN].clear()
            await producer.commit()

    run(work())
    assert memory.outcomes == [("x", 0, True)]


@pytest.mark.feature("L10")
def test_offsets_are_committed_with_the_transaction_or_not_at_all() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            await producer.begin()
            await producer.send_offsets({ZERO: 3}, GROUP)
            await producer.abort()
            assert memory.offsets == {}
            async with producer.transaction():
                await producer.send_offsets({ZERO: 5}, GROUP)

    run(work())
    assert memory.offsets == {ZERO: (5, "")}
    assert memory.requests(ApiKey.TXN_OFFSET_COMMIT)[0].transactional_id == "x"


@pytest.mark.feature("E14")
def test_offsets_of_a_fenced_member_can_only_be_aborted() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            await producer.begin()
            with pytest.raises(CommitFailedError):
                await producer.send_offsets({ZERO: 3}, GroupMetadata("g", 4, "a zombie"))
            with pytest.raises(AbortableTransactionError):
                await producer.commit()
            await producer.abort()

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False]


async def cancelled(call: Coroutine[Any, Any, object]) -> None:
    """Make a call, and cancel it while it waits."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(call)
        await pass_time(1)
        assert not task.done()
        task.cancel()


def test_offsets_whose_call_was_cancelled_can_only_be_aborted() -> None:
    memory = cluster()
    memory.faults[ApiKey.TXN_OFFSET_COMMIT].extend(["lost"] * 10_000)

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            await producer.begin()
            await producer.send("t", b"v", partition=0)
            await cancelled(producer.send_offsets({ZERO: 3}, GROUP))
            with pytest.raises(AbortableTransactionError, match="send_offsets was cancelled"):
                await producer.commit()
            await producer.abort()
            memory.faults[ApiKey.TXN_OFFSET_COMMIT].clear()
            async with producer.transaction():
                await producer.send_offsets({ZERO: 3}, GROUP)

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False, True]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_offsets_that_are_being_added_hold_the_commit_back(is_cancelled: bool) -> None:
    memory = cluster()
    memory.faults[ApiKey.TXN_OFFSET_COMMIT].extend(["lost"] * 10_000)

    async def work() -> None:
        async with producer_on(memory) as producer, asyncio.TaskGroup() as tasks:
            await producer.init()
            await producer.begin()
            await producer.send("t", b"v", partition=0)
            adding = tasks.create_task(producer.send_offsets({ZERO: 3}, GROUP))
            await pass_time(1)
            if is_cancelled:
                adding.cancel()  # the task itself hears of it only later
            with pytest.raises(InvalidTransactionStateError, match="send_offsets has not returned"):
                await producer.commit()
            assert not memory.requests(ApiKey.END_TXN)
            memory.faults[ApiKey.TXN_OFFSET_COMMIT].clear()
            await asyncio.wait([adding])
            await (producer.abort if is_cancelled else producer.commit)()

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [not is_cancelled]
    assert memory.offsets == ({} if is_cancelled else {ZERO: (3, "")})


async def leaves_offsets_behind(producer: TransactionalProducer, tasks: asyncio.TaskGroup) -> None:
    async with producer.transaction():
        adding = tasks.create_task(producer.send_offsets({ZERO: 3}, GROUP))
        await pass_time(1)
        adding.cancel()


def test_a_block_that_leaves_offsets_behind_is_aborted() -> None:
    memory = cluster()
    memory.faults[ApiKey.TXN_OFFSET_COMMIT].extend(["lost"] * 10_000)

    async def work() -> None:
        async with producer_on(memory) as producer, asyncio.TaskGroup() as tasks:
            await producer.init()
            with pytest.raises(InvalidTransactionStateError):
                await leaves_offsets_behind(producer, tasks)
            await producer.begin()

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False]


class SilentLeaders:
    """Leaders of share partitions that never answer an acknowledgement."""

    def holder(self, *_: object) -> None: ...

    async def send(self, *_: object) -> None:
        await asyncio.Event().wait()


def test_acknowledgements_whose_call_was_cancelled_can_only_be_aborted() -> None:
    memory = cluster()
    held = PartitionDeliveries(b"t" * 16)
    consumer: Any = SimpleNamespace(
        config=SimpleNamespace(group_id="g"),
        member_id="m",
        take_out=lambda records, kind: {ZERO: (held, {0: Decision(kind)})},
    )

    async def work() -> None:
        async with producer_on(memory) as producer:
            producer._shares = SilentLeaders()  # type: ignore[assignment]
            await producer.init()
            await producer.begin()
            await cancelled(producer.acknowledge(consumer, []))
            with pytest.raises(AbortableTransactionError, match="acknowledge was cancelled"):
                await producer.commit()
            await producer.abort()

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False]


def test_a_record_whose_send_was_cancelled_is_committed_or_the_transaction_aborted() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
            await producer.init()
            async with producer.transaction():
                await cancelled(producer.send("t", b"buffered", partition=0))
            await producer.begin()
            await cancelled(producer.send("a topic that nobody makes", b"not buffered"))
            with pytest.raises(AbortableTransactionError, match="send was cancelled"):
                await producer.commit()
            await producer.abort()

    run(work())
    assert memory.cluster.logs[ZERO].records()[0].value == b"buffered"
    assert [header.is_control for header in headers(memory, ZERO)] == [False, True]
    assert memory.outcomes == [("x", 0, True)], "the coordinator never heard of the second"


async def fails_midway(producer: TransactionalProducer) -> None:
    async with producer.transaction():
        await producer.send("t", b"v", partition=0)
        raise KeyError


def test_an_exception_in_the_block_aborts_and_so_does_close() -> None:
    memory = cluster()

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            with pytest.raises(KeyError):
                await fails_midway(producer)
            await producer.begin()
            await producer.send("t", b"v", partition=0)

    run(work())
    assert [outcome for *_, outcome in memory.outcomes] == [False, False]


def test_calls_out_of_order_are_refused() -> None:
    async def work() -> None:
        async with producer_on(cluster()) as producer:
            with pytest.raises(InvalidTransactionStateError, match="while the producer is new"):
                await producer.begin()
            await producer.init()
            with pytest.raises(InvalidTransactionStateError):
                await producer.send("t", b"v")
            with pytest.raises(InvalidTransactionStateError):
                await producer.init()

    run(work())


def test_encoded_records_belong_to_the_open_transaction() -> None:
    memory = cluster()
    record = encode_record(0, 0, None, b"v")
    facts = {"count": 1, "first_timestamp": 7, "max_timestamp": 7}

    async def work() -> None:
        async with producer_on(memory) as producer:
            await producer.init()
            with pytest.raises(InvalidTransactionStateError):
                await producer.send_encoded(TopicPartition("t", 1), record, **facts)
            async with producer.transaction():
                await producer.send_encoded(TopicPartition("t", 1), record, **facts)

    run(work())
    batch, marker = headers(memory, TopicPartition("t", 1))
    assert (batch.is_transactional, batch.base_sequence, batch.record_count) == (True, 0, 1)
    assert marker.is_control


def test_a_transactional_id_is_for_this_producer_alone_and_needs_idempotence() -> None:
    with pytest.raises(ClientConfigError, match="TransactionalProducer"):
        Producer("h:1", transactional_id="x")
    with pytest.raises(ClientConfigError, match="needs one"):
        TransactionalProducer("h:1")
    with pytest.raises(ClientConfigError, match="acks='all'"):
        TransactionalProducer("h:1", transactional_id="x", acks=1)


def test_a_failure_fails_at_once_what_waits_behind_it() -> None:
    memory = cluster(partitions=1)

    async def work() -> None:
        async with producer_on(memory, batch_size=1, linger_ms=0) as producer:
            await producer.init()
            await producer.begin()
            memory.cluster.faults.append(ErrorCode.INVALID_TXN_STATE)
            deliveries = [await producer.enqueue("t", b"v") for _ in range(5)]
            with pytest.raises(AbortableTransactionError):
                await producer.commit()
            assert [delivery.exception() is not None for delivery in deliveries] == [True] * 5
            await producer.abort()
            await producer.begin()

    run(work())
