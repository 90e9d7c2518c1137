"""Idempotent producers from outside: sequences, repetitions, gaps, fences, and what outlives a
broker.
"""

from collections.abc import Callable

import pytest
from e2e.client_matrix import CLIENTS, Message, installed
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire, produce_body
from e2e.wire import ask, connect, create_topic, stored, stored_records, to_leader
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.produce import ProducePartitionResult
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import wait_for

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
SEQUENCE_MAX = 2**31 - 1
INIT_PRODUCER_ID_VERSION = 4


def new_producer_id(cluster: Cluster, broker: int = 1) -> int:
    """As a producer gets it when it starts."""
    fields = {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    with connect(cluster.kafka(broker)) as wire:
        answer = ask(wire, ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, fields)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    return int(answer.producer_id)


class Idempotent:
    """One producer's batches to one partition, any sequence it likes."""

    def __init__(self, wire: Wire, topic: str, producer_id: int, partition: int = 0) -> None:
        self.wire = wire
        self.topic = topic
        self.producer_id = producer_id
        self.partition = partition

    def batch(self, sequence: int, *values: bytes, epoch: int = 0, codec: int = 0) -> bytes:
        return build_batch(
            [(Clock().wall_ms(), None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            compression=codec,
        )

    def send(
        self, sequence: int, *values: bytes, epoch: int = 0, codec: int = 0
    ) -> ProducePartitionResult:
        batch = self.batch(sequence, *values, epoch=epoch, codec=codec)
        return self.wire.produce(self.topic, batch, partition=self.partition, acks=-1)

    def accepted(self, sequence: int, *values: bytes, epoch: int = 0, codec: int = 0) -> int:
        """The offset of the first record."""
        result = self.send(sequence, *values, epoch=epoch, codec=codec)
        assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
        return result.base_offset

    def refused(self, sequence: int, *values: bytes, epoch: int = 0) -> ErrorCode:
        return ErrorCode(self.send(sequence, *values, epoch=epoch).error_code)


def values_in(wire: Wire, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in stored_records(wire, topic, partition)]


@pytest.mark.feature("K01")
def test_producer_ids_are_unique_whichever_broker_is_asked(cluster: Cluster) -> None:
    ids = [new_producer_id(cluster, broker) for broker in (1, 2, 3) for _ in range(4)]
    assert len(set(ids)) == len(ids)


@pytest.mark.feature("K01", "K02")
@pytest.mark.parametrize("name", CLIENTS)
def test_a_clients_batches_count_their_records_from_0(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("counted")
    create_topic(cluster, topic, 2)
    messages = [Message(None, b"%d" % number, (), number // 60) for number in range(120)]
    client.write(client.bootstrap(cluster), topic, messages)
    for partition in range(2):
        with to_leader(cluster, topic, partition) as wire:
            headers = [batch.header for batch in stored(wire, topic, partition)]
        expected = 0
        for header in headers:
            assert header.base_sequence == expected
            expected += header.record_count
        assert expected == 60
        producers = {header.producer_id for header in headers}
        assert len(producers) == 1
        assert producers.pop() >= 0


@pytest.mark.feature("K03", "K04", "K06", "K07")
@pytest.mark.parametrize("codec", [0, 4])
def test_any_of_the_last_five_batches_is_acknowledged_again_with_its_first_offset(
    cluster: Cluster, topic_name: Names, codec: int
) -> None:
    topic = topic_name("repeated")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        producer = Idempotent(wire, topic, new_producer_id(cluster))
        for number in range(7):
            assert producer.accepted(2 * number, b"%d" % number, b"+", codec=codec) == 2 * number
        for number in (2, 6, 4, 3, 5):
            assert producer.accepted(2 * number, b"%d" % number, b"+", codec=codec) == 2 * number
        assert len(stored_records(wire, topic)) == 14
        assert producer.accepted(14, b"next") == 14


@pytest.mark.feature("K05", "K06")
def test_a_gap_and_a_forgotten_sequence_are_refused_and_nothing_is_written(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("gap")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        producer = Idempotent(wire, topic, new_producer_id(cluster))
        for sequence in range(7):
            producer.accepted(sequence, b"%d" % sequence)
        assert producer.refused(8, b"gap") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.refused(0, b"0") in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
        # Not one of the five: it begins where one does, and ends elsewhere.
        assert producer.refused(6, b"6", b"more") is not ErrorCode.NONE
        assert values_in(wire, topic) == [b"%d" % sequence for sequence in range(7)]
        assert producer.accepted(7, b"7") == 7


@pytest.mark.feature("K02", "K04")
def test_sequences_go_from_the_largest_int32_back_to_0(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("wrap")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        producer = Idempotent(wire, topic, new_producer_id(cluster))
        assert producer.accepted(SEQUENCE_MAX - 3, b"a", b"b") == 0
        assert producer.accepted(SEQUENCE_MAX - 1, b"c", b"d", b"e") == 2  # max - 1, max, 0
        assert producer.refused(0, b"f") is not ErrorCode.NONE
        assert producer.accepted(SEQUENCE_MAX - 1, b"c", b"d", b"e") == 2
        assert producer.accepted(1, b"f") == 5
        assert values_in(wire, topic) == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.feature("K08", "K03")
def test_sequences_are_counted_per_producer_and_partition(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("apart")
    create_topic(cluster, topic, leaders=[1, 1])
    first, second = new_producer_id(cluster), new_producer_id(cluster)
    with connect(cluster.kafka(1)) as wire:
        for producer_id in (first, second):
            for partition in (0, 1):
                producer = Idempotent(wire, topic, producer_id, partition)
                producer.accepted(0, b"0")
                producer.accepted(1, b"1")
        assert values_in(wire, topic, 0) == values_in(wire, topic, 1) == [b"0", b"1", b"0", b"1"]


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("epochs")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        producer = Idempotent(wire, topic, new_producer_id(cluster))
        producer.accepted(0, b"epoch 0")
        assert producer.refused(1, b"no", epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.accepted(0, b"epoch 1", epoch=1) == 1
        assert producer.refused(1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert values_in(wire, topic) == [b"epoch 0", b"epoch 1"]


@pytest.mark.feature("K03", "K07", "K09")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_sequences_outlive_the_broker(mortal_cluster: Cluster, topic_name: Names, how: str) -> None:
    topic = topic_name("kept")
    create_topic(mortal_cluster, topic, leaders=[2])
    producer_id = new_producer_id(mortal_cluster)
    with connect(mortal_cluster.kafka(2)) as wire:
        producer = Idempotent(wire, topic, producer_id)
        for sequence in range(6):
            producer.accepted(sequence, b"%d" % sequence)
    if how == "stopped":
        assert mortal_cluster.terminate("broker-2")
    else:
        mortal_cluster.kill("broker-2")
    mortal_cluster.restart("broker-2")
    with connect(mortal_cluster.kafka(2)) as wire:
        producer = Idempotent(wire, topic, producer_id)
        for sequence in (1, 3, 5):
            assert producer.accepted(sequence, b"%d" % sequence) == sequence
        assert producer.refused(7, b"gap") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.accepted(6, b"6") == 6
        assert values_in(wire, topic) == [b"%d" % sequence for sequence in range(7)]


@pytest.mark.feature("K07", "K09", "C09")
def test_a_write_whose_answer_was_lost_in_a_crash_is_there_once_after_the_retry(
    mortal_cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("lost-answer")
    create_topic(mortal_cluster, topic, leaders=[2])
    producer_id = new_producer_id(mortal_cluster)
    with connect(mortal_cluster.kafka(2)) as wire, connect(mortal_cluster.kafka(2)) as reader:
        producer = Idempotent(wire, topic, producer_id)
        body = produce_body(topic, producer.batch(0, b"once"), acks=-1)
        wire.send(ApiKey.PRODUCE, 9, body)
        wait_for(lambda: stored(reader, topic), "the record is in the log")
        mortal_cluster.kill("broker-2")  # the answer was never read
    mortal_cluster.restart("broker-2")
    with connect(mortal_cluster.kafka(2)) as wire:
        producer = Idempotent(wire, topic, producer_id)
        assert producer.accepted(0, b"once") == 0
        assert producer.accepted(1, b"after") == 1
        assert values_in(wire, topic) == [b"once", b"after"]
