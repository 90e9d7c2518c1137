import threading
from collections.abc import Iterator
from itertools import islice

import pytest
from tidemark.client.consumer.group_types import NoListener
from tidemark.client.errors import ClientClosedError, ClientConfigError
from tidemark.client.producer import producer as async_producer
from tidemark.client.producer.batches import EncodedRecords
from tidemark.client.sync import Consumer, Producer
from tidemark.client.sync.transactions import TransactionalProducer
from tidemark.client.wire.session import Session
from tidemark.codec.records import encode_record
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.memory_transactions import MemoryTransactions
from unit.tidemark.client.memory_transport import MemoryTransport


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryTransport]:
    """Every client of the test reaches the same cluster in memory; no thread outlives it."""
    transport = MemoryTransport()
    monkeypatch.setattr(Session, "_make_transport", lambda session, group: transport)
    yield transport
    assert not [each for each in threading.enumerate() if each.name.startswith("tidemark-")]


def test_records_sent_are_read_without_await(memory: MemoryTransport) -> None:
    with Producer("h:1", linger_ms=0) as producer:
        assert producer.send("t", b"0").offset == 0
        delivery = producer.enqueue("t", b"1")
        assert delivery.result().offset == 1
        assert [each.offset for each in producer.send_many("t", [(b"k", b"2")] * 3)] == [2, 3, 4]
        producer.flush()
        assert producer.statistics().records_acknowledged == 5
        assert producer.partitions_for("t") == (0,)
    with Consumer("h:1", auto_offset_reset="earliest") as consumer:
        (partition,) = consumer.assign_topic("t")
        assert [record.offset for record in consumer.poll()] == [0, 1, 2, 3, 4]
        consumer.seek(partition, 3)
        assert consumer.position(partition) == 3
        assert consumer.end_offsets([partition]) == {partition: 5}


def test_encoded_records_are_sent_without_await(memory: MemoryTransport) -> None:
    record = encode_record(0, 0, b"k", b"v")
    batch = EncodedRecords(TopicPartition("t", 0), record, 1, 7, 7)
    with Producer("h:1", linger_ms=0) as producer:
        facts = {"count": 1, "first_timestamp": 7, "max_timestamp": 7}
        assert producer.send_encoded(batch.partition, record, **facts).result().offset == 0
        producer.send_encoded_many([batch, batch])
        producer.flush()
        assert producer.statistics().records_acknowledged == 3


def test_iteration_gives_back_what_was_not_seen(memory: MemoryTransport) -> None:
    with Producer("h:1", linger_ms=0) as producer:
        producer.send_many("t", [(None, b"v")] * 5)
    with Consumer("h:1", auto_offset_reset="earliest") as consumer:
        (partition,) = consumer.assign_topic("t")
        records = iter(consumer)
        assert [record.offset for record in islice(records, 2)] == [0, 1]
        records.close()  # type: ignore[attr-defined]
        assert consumer.position(partition) == 2


def test_a_closed_client_says_so_and_closing_again_is_nothing(memory: MemoryTransport) -> None:
    producer = Producer("h:1")
    producer.close()
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send("t", b"v")


def test_a_bad_setting_is_raised_in_the_callers_thread(memory: MemoryTransport) -> None:
    with pytest.raises(ClientConfigError, match="did you mean linger_ms"):
        Producer("h:1", linger=5)


def test_a_failure_at_close_is_raised_in_the_callers_thread(memory: MemoryTransport) -> None:
    memory.held.clear()
    producer = Producer("h:1", linger_ms=0, request_timeout_ms=10, delivery_timeout_ms=20)
    producer.enqueue("t", b"v")
    with pytest.raises(Exception, match="ran out of time"):
        producer.close()


def test_the_async_producer_is_what_runs(memory: MemoryTransport) -> None:
    with Producer("h:1") as producer:
        assert isinstance(producer._target, async_producer.Producer)


def test_a_generator_argument_may_call_the_client(memory: MemoryTransport) -> None:
    with Consumer("h:1", auto_offset_reset="earliest") as consumer:
        zero = consumer.assign_topic("t")[0]
        ends = consumer.end_offsets(zero for _ in range(1) if consumer.position(zero) == 0)
        assert ends == {zero: 0}


@pytest.fixture
def coordinators(memory: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> MemoryTransactions:
    """Of groups and transactions, for every client of the test."""
    found = MemoryTransactions(memory)

    async def kafka(session: Session) -> MemoryTransactions:
        return found

    monkeypatch.setattr(Session, "kafka", kafka)
    return found


def test_a_listener_may_call_its_consumer(coordinators: MemoryTransactions) -> None:
    zero = TopicPartition("t", 0)
    with Producer("h:1", linger_ms=0) as producer:
        producer.send_many("t", [(None, b"v")] * 5)
    with Consumer("h:1", group_id="g", auto_offset_reset="earliest") as consumer:

        class Commits(NoListener):
            def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
                consumer.commit({zero: 3})

        consumer.subscribe(["t"], Commits())
        while not consumer.poll(timeout_ms=50):
            pass
        consumer.unsubscribe()
        assert consumer.committed([zero]) == {zero: (3, "", -1)}
        assert consumer.group_metadata().member_id == ""


def test_transactions_without_await(coordinators: MemoryTransactions) -> None:
    with TransactionalProducer("h:1", transactional_id="x", linger_ms=0) as producer:
        producer.init()
        with producer.transaction():
            producer.send("t", b"1")
            producer.send_many("t", [(None, b"2")])
        with pytest.raises(KeyError):
            fails_midway(producer)
    assert [committed for *_, committed in coordinators.outcomes] == [True, False]


def fails_midway(producer: TransactionalProducer) -> None:
    with producer.transaction():
        producer.send("t", b"3")
        raise KeyError
