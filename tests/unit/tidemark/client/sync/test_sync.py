import threading
from collections.abc import Iterator
from itertools import islice

import pytest
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.consumer.group_types import NoListener
from tidemark.client.errors import ClientClosedError, ClientConfigError
from tidemark.client.producer import producer as async_producer
from tidemark.client.producer.batches import EncodedRecords
from tidemark.client.sync import Consumer, Producer
from tidemark.client.sync.transactions import TransactionalProducer
from tidemark.client.wire.session import Session
from tidemark.codec.records import encode_record
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
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


ZERO = TopicPartition("t", 0)
FIVE = b"".join(encode_record(0, delta, None, b"v") for delta in range(5))


@pytest.fixture
def member(memory: MemoryTransport, coordinators: MemoryTransactions) -> Iterator[Consumer]:
    """A member of group g that has two batches of five records to read."""
    with Producer("h:1", linger_ms=0) as producer:
        for _ in range(2):
            producer.send_encoded(ZERO, FIVE, count=5, first_timestamp=7, max_timestamp=7).result()
    with Consumer("h:1", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        yield consumer


def offsets(records: Iterator[ConsumerRecord], count: int) -> list[int]:
    return [record.offset for record in islice(records, count)]


def test_a_commit_within_an_iteration_is_of_what_was_yielded(
    member: Consumer, coordinators: MemoryTransactions
) -> None:
    records = iter(member)
    seen = []
    for count in (2, 4, 3):
        seen += offsets(records, count)
        member.commit()
        assert coordinators.offsets[ZERO][0] == len(seen) == member.position(ZERO)
    assert seen == list(range(9))


def test_a_seek_within_an_iteration_moves_it(member: Consumer) -> None:
    records = iter(member)
    assert offsets(records, 2) == [0, 1]
    member.seek(ZERO, 7)
    assert offsets(records, 2) == [7, 8]
    member.seek(ZERO, 1)
    assert offsets(records, 6) == [1, 2, 3, 4, 5, 6]


def test_a_poll_within_an_iteration_continues_it(member: Consumer) -> None:
    records = iter(member)
    assert offsets(records, 2) == [0, 1]
    assert [record.offset for record in member.poll(2)] == [2, 3]
    assert offsets(records, 3) == [4, 5, 6]


def test_a_consumer_that_is_closed_in_an_iteration_commits_what_was_yielded(
    member: Consumer, coordinators: MemoryTransactions
) -> None:
    assert offsets(iter(member), 3) == [0, 1, 2]
    member.close()
    assert coordinators.offsets[ZERO][0] == 3


class OwnTime(Clock):
    def __init__(self) -> None:
        self.ms = Clock().now_ms()

    def now_ms(self) -> InstantMs:
        return self.ms


def test_each_record_of_an_iteration_counts_as_a_poll(member: Consumer) -> None:
    records = iter(member)
    assert offsets(records, 1) == [0]
    group = member._target._group
    assert group is not None
    clock = group._clock = OwnTime()
    for offset in range(1, 5):
        clock.ms = InstantMs(clock.ms + 1_000)
        assert offsets(records, 1) == [offset]
        assert group._heartbeats.polled_at == clock.ms


def test_an_iteration_serves_the_group_between_two_records(
    member: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when partitions are to be given up, which are then committed up to what was yielded."""
    records = iter(member)
    seen = offsets(records, 2)
    group = member._target._group
    assert group is not None
    positions = []
    attend = group.attend

    async def attends() -> None:
        positions.append(group.positions()[ZERO].offset)
        await attend()

    monkeypatch.setattr(group, "on_next_record", lambda: True)
    monkeypatch.setattr(group, "attend", attends)
    seen += offsets(records, 3)
    assert seen == [0, 1, 2, 3, 4]
    assert positions == [2, 3, 4]


@pytest.mark.parametrize(("cut_off", "position"), [(4, 2), (1, 1)])
def test_a_log_that_was_cut_off_behind_an_iteration_is_read_from_there(
    member: Consumer, cut_off: int, position: int
) -> None:
    """The fetcher goes back by itself, and what was not yielded has to be read again, too."""
    records = iter(member)
    assert offsets(records, 2) == [0, 1]
    member._target._fetcher.states[ZERO].seek(cut_off)
    assert member.position(ZERO) == position
    assert offsets(records, 1) == [position]


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
