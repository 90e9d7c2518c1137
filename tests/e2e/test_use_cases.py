"""Uses of one cluster side by side: lines of logs from many producers, a bulk load, and calls of
which each waits for the answer to the last.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import confluent_kafka
import pytest
from e2e.clusters import Cluster
from e2e.wire import create_topic
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
SERVERS = 4
PARTITIONS = 4
LINES_MIN = 500
BULK_RECORDS = 2_000
BULK_VALUE = bytes(8 * 1024)
CALLS = 60
FETCH_WAIT_S = 120
"""A fetch that only ended by its time would make one call longer than this."""


def produce(cluster: Cluster, **settings: object) -> confluent_kafka.Producer:
    return confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **settings})


def read(cluster: Cluster, topic: str, count: int) -> Iterator[bytes]:
    """The first values of a topic, as they come."""
    with reading(cluster, topic) as consumer:
        for _ in range(count):
            yield value_of(consumer)


@contextmanager
def reading(cluster: Cluster, topic: str, offset: int = 0) -> Iterator[confluent_kafka.Consumer]:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": FETCH_WAIT_S * 1_000,
        "socket.timeout.ms": FETCH_WAIT_S * 2_000,
    }
    consumer = confluent_kafka.Consumer(settings)
    found = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, offset) for number in found])
    try:
        yield consumer
    finally:
        consumer.close()


def value_of(consumer: confluent_kafka.Consumer) -> bytes:
    message = consumer.poll(FETCH_WAIT_S)
    assert message is not None, "nothing came"
    assert message.error() is None, message.error()
    return message.value() or b""


def aggregate(
    cluster: Cluster, topic: str, server: int, calls_done: threading.Event
) -> list[bytes]:
    """Lines of a server's log, sent for as long as the calls last; those that were taken."""
    producer = produce(cluster, **{"linger.ms": 5})
    sent: list[bytes] = []
    failures: list[object] = []

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            sent.append(message.value() or b"")
        else:
            failures.append(error)

    for number in itertools.count():
        if number >= LINES_MIN and calls_done.is_set():
            break
        line = b"server-%d line %d" % (server, number)
        producer.produce(topic, line, key=b"%d" % server, on_delivery=on_delivery)
        producer.poll(0.001)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []
    return sent


def load_in_bulk(cluster: Cluster, topic: str) -> None:
    """As from a system that is offline otherwise: large batches, as fast as they go."""
    producer = produce(cluster, **{"linger.ms": 50, "batch.size": 1_000_000})
    for number in range(BULK_RECORDS):
        producer.produce(topic, b"%06d" % number + BULK_VALUE, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def call(cluster: Cluster, calls: str, answers: str) -> list[bytes]:
    """Ask, wait for the answer, ask again; another thread answers."""
    asking = produce(cluster, **{"linger.ms": 0})
    answering = produce(cluster, **{"linger.ms": 0})
    heard: list[bytes] = []

    def answer() -> None:
        for value in read(cluster, calls, CALLS):
            answering.produce(answers, b"answer to " + value)
            answering.poll(0)
        assert answering.flush(PATIENCE_S) == 0

    with ThreadPoolExecutor(1) as pool, reading(cluster, answers) as consumer:
        answered = pool.submit(answer)
        for number in range(CALLS):
            asking.produce(calls, b"call %d" % number)
            asking.poll(0)
            heard.append(value_of(consumer))
        answered.result(PATIENCE_S)
    return heard


@pytest.mark.feature("A21", "C04", "C05")
def test_logs_a_bulk_load_and_calls_go_side_by_side(cluster: Cluster, topic_name: Names) -> None:
    logs, bulk, calls, answers = map(topic_name, ("logs", "bulk", "calls", "answers"))
    for topic, partitions in ((logs, PARTITIONS), (bulk, PARTITIONS), (calls, 1), (answers, 1)):
        create_topic(cluster, topic, partitions)
    calls_done = threading.Event()
    with ThreadPoolExecutor(SERVERS + 1) as pool:
        servers = [
            pool.submit(aggregate, cluster, logs, number, calls_done) for number in range(SERVERS)
        ]
        loading = pool.submit(load_in_bulk, cluster, bulk)
        try:
            heard = call(cluster, calls, answers)
        finally:
            calls_done.set()
        lines = [line for server in servers for line in server.result(PATIENCE_S)]
        loading.result(PATIENCE_S)
    assert heard == [b"answer to call %d" % number for number in range(CALLS)]
    assert sorted(read(cluster, logs, len(lines))) == sorted(lines)
    loaded = sorted(value[:6] for value in read(cluster, bulk, BULK_RECORDS))
    assert loaded == [b"%06d" % number for number in range(BULK_RECORDS)]
