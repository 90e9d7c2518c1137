"""Client quotas with Kafka's clients and the command line: lower bounds of time for counted bytes,
as no client may be faster than its quota on any machine.
"""

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from e2e.clusters import Cluster, started_cluster
from e2e.command_line import Cli
from prometheus_client.parser import text_string_to_metric_families
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RATE = 200_000
WINDOW_S = 10
"""Seconds whose bytes a client may send at once: quota.window.num - 1 samples of a second."""
HELD_S = 5
SENT_BYTES = RATE * (WINDOW_S + HELD_S)
RECORD_BYTES = 10_000
TOLERATED = 0.85
ERROR = ExitCode.FAILED


class Place:
    """A cluster, and its command line."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cli = Cli(cluster)

    def quota(self, *words: str, code: ExitCode = ExitCode.OK) -> bytes:
        """Run the command, and return what it has to complain about."""
        done = self.cli.run("quota", *words, *self.cli.kafka)
        assert done.returncode == code, done.stderr.decode()
        return done.stderr

    def quotas(self, *words: str) -> list[tuple[object, ...]]:
        rows = self.cli.json("quota", "list", *words, *self.cli.kafka)
        return [tuple(one.values()) for one in rows]

    def count(self, name: str, quota: str) -> float:
        page = self.cluster.ops("broker-1", "/metrics")
        families = text_string_to_metric_families(page)
        samples = [one for family in families for one in family.samples if one.name == name]
        return next(one.value for one in samples if one.labels == {"quota": quota})

    def throttled_s(self, quota: str) -> float:
        return self.count("tidemark_quota_throttle_seconds_total", quota)

    def client(self, client_id: str, **more: object) -> dict[str, object]:
        """librdkafka's configuration."""
        usual = {"bootstrap.servers": self.cluster.kafka(), "client.id": client_id}
        dotted = {key.replace("_", "."): value for key, value in more.items()}
        return {**usual, **dotted}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    cluster = started_cluster(tmp_path_factory.mktemp("quotas"))
    try:
        yield Place(cluster)
    finally:
        cluster.end()


def send(place: Place, topic: str, client_id: str, told: list[float]) -> float:
    """Send SENT_BYTES in small requests, of which the last one matters little. Return the seconds
    that it took. ``told`` gets the throttle times.
    """
    settings = place.client(client_id, batch_size=3 * RECORD_BYTES, linger_ms=5)
    producer = Producer({**settings, "throttle_cb": lambda event: told.append(event.throttle_time)})
    began_s = time.monotonic()
    for _ in range(SENT_BYTES // RECORD_BYTES):
        producer.produce(topic, b"v" * RECORD_BYTES, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return time.monotonic() - began_s


@pytest.mark.feature("SE20", "SE22")
def test_a_producer_and_a_consumer_are_held_to_their_rates(place: Place) -> None:
    admin, told = AdminClient({"bootstrap.servers": place.cluster.kafka()}), list[float]()
    admin.create_topics([NewTopic("held", 1, 1)])["held"].result(PATIENCE_S)
    place.quota("set", "--client-id", "slow", f"producer_byte_rate={RATE}")
    place.quota("set", "--client-id", "slow", f"consumer_byte_rate={RATE}")
    took_s = send(place, "held", "slow", told)
    assert took_s >= HELD_S * TOLERATED
    throttled_s = place.throttled_s("produce")
    # Each is a sum of whole milliseconds: in floats their last digits differ.
    assert 0 < sum(told) <= throttled_s + 0.0005
    assert throttled_s <= took_s + WINDOW_S
    consumer = Consumer(
        place.client("slow", group_id="held", max_partition_fetch_bytes=3 * RECORD_BYTES)
    )
    consumer.assign([TopicPartition("held", 0, 0)])
    began_s = time.monotonic()
    for _ in range(SENT_BYTES // RECORD_BYTES):
        assert consumer.poll(PATIENCE_S) is not None
    consumer.close()
    assert time.monotonic() - began_s >= HELD_S * TOLERATED
    assert place.throttled_s("fetch") > 0


@pytest.mark.feature("SE20")
def test_without_a_quota_of_its_own_a_client_is_not_throttled(place: Place) -> None:
    place.quota("set", "--client-id", "other", "producer_byte_rate=1")
    before, told = place.throttled_s("produce"), list[float]()
    send(place, "free", "free", told)
    assert place.throttled_s("produce") == before
    place.quota("remove", "--client-id", "other", "--yes")
    send(place, "free", "other", told)
    assert place.throttled_s("produce") == before
    assert told == []


@pytest.mark.feature("SE21")
def test_the_command_line_sets_lists_and_removes_quotas(place: Place) -> None:
    place.quota("set", "--user", "alice", "producer_byte_rate=1000", "controller_mutation_rate=2.5")
    place.quota("set", "--user", "alice", "--client-id-default", "consumer_byte_rate=5")
    place.quota("set", "--ip", "10.1.2.3", "connection_creation_rate=7")
    default = ("alice", "<default>", None, "consumer_byte_rate", 5.0)
    rate = ("alice", None, None, "producer_byte_rate", 1_000.0)
    share = ("alice", None, None, "controller_mutation_rate", 2.5)
    assert place.quotas("--user", "alice") == [share, rate, default]
    assert (None, None, "10.1.2.3", "connection_creation_rate", 7.0) in place.quotas()
    assert place.quotas("--user-default") == []
    place.quota("remove", "producer_byte_rate", "--user", "alice", "--yes")
    assert place.quotas("--user", "alice") == [share, default]
    words = place.quota("remove", "producer_byte_rate", "--user", "alice", "--yes", code=ERROR)
    assert b"user alice has no quota producer_byte_rate" in words
    place.quota("set", "--user", "alice", "producer_byte_rate=-1", code=ExitCode.USAGE)
    place.quota("set", "--ip", "10.1.2.3", "request_percentage=5", code=ExitCode.USAGE)


@pytest.mark.feature("SE21")
def test_quotas_outlive_a_controller(place: Place) -> None:
    place.quota("set", "--user-default", "producer_byte_rate=123456")
    place.cluster.restart("controller-1")
    place.quota("set", "--user-default", "consumer_byte_rate=5")
    found = [one[3:] for one in place.quotas("--user-default")]
    assert found == [("consumer_byte_rate", 5.0), ("producer_byte_rate", 123_456.0)]
    place.quota("remove", "--user-default", "--yes")


def ask_metadata(port: int, client_id: str, count: int) -> list[int]:
    """Ask for the metadata (3, version 3) so often, one request after the other, and wait for no
    throttle time. Return the throttle times in ms.
    """
    name, told = client_id.encode(), []
    request = struct.pack(">hhih", 3, 3, 0, len(name)) + name + struct.pack(">i", -1)
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as one:
        for _ in range(count):
            one.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", one.recv(4, socket.MSG_WAITALL))
            told.append(struct.unpack(">4xi", one.recv(size, socket.MSG_WAITALL)[:8])[0])
    return told


@pytest.mark.feature("SE20", "SE22")
def test_a_client_that_floods_a_broker_is_held_to_its_share_of_the_time(place: Place) -> None:
    port = place.cluster.layout.member("broker-1").ports["client"]
    place.quota("set", "--client-id", "flood", "request_percentage=0.01")
    began_s, told = time.monotonic(), list[int]()
    while len([one for one in told if one]) < 3:
        told += ask_metadata(port, "flood", 20)
    # Whoever does not wait is muted: two whole throttle times, as only the last one may be cut.
    assert time.monotonic() - began_s >= sum(sorted(told)[-3:-1]) / 1_000 * TOLERATED
    assert 0 < max(told) <= 1_000
    assert not any(ask_metadata(port, "other", 100))
    assert place.throttled_s("request") > 0
    place.quota("remove", "--client-id", "flood", "--yes")
    assert not any(ask_metadata(port, "flood", 20))


@pytest.mark.feature("SE20")
def test_topics_are_created_at_the_rate_of_the_quota(place: Place) -> None:
    """The bucket holds 11 partitions; 15 leave a debt of four seconds: no topic is made then."""
    place.quota("set", "--client-id-default", "controller_mutation_rate=1")
    began_s = time.monotonic()
    made = place.cli.run("topic", "create", "many", "--partitions", "15", *place.cli.kafka)
    assert made.returncode == 0, made.stderr.decode()
    late = place.cli.run("topic", "create", "late", "--partitions", "1", *place.cli.kafka)
    took_s = time.monotonic() - began_s
    refused = b"THROTTLING_QUOTA_EXCEEDED" in late.stderr
    assert refused or took_s >= 4 * TOLERATED
    assert not refused or place.throttled_s("mutation") > 0, "only a refusal has a throttle time"
    place.quota("remove", "--client-id-default", "--yes")


def first_answer(port: int) -> bytes:
    """Connect, send ApiVersions (18, version 0), and return the size of the answer; b"" when the
    broker closes the connection instead.
    """
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as one:
        one.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        return one.recv(4)


@pytest.mark.feature("SE20")
def test_connections_of_an_address_are_held_to_their_rate(place: Place) -> None:
    """Two a second: 20 at once, and more only as time passes. Others are closed unserved."""
    port = place.cluster.layout.member("broker-1").ports["client"]
    place.quota("set", "--ip-default", "connection_creation_rate=2")
    began_s = time.monotonic()
    answers = [first_answer(port) for _ in range(25)]
    took_s = time.monotonic() - began_s
    served = sum(one != b"" for one in answers)
    refused = place.count("tidemark_quota_throttles_total", "connection")
    assert served <= 2 * (WINDOW_S + 1 + took_s)
    assert refused >= 25 - served
    place.cluster.restart("broker-1")
    assert first_answer(port) != b"", "a new broker has seen nobody yet"
    place.quota("remove", "--ip-default", "--yes")
