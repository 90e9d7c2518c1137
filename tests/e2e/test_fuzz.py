"""Hostile frames against a real broker: whatever comes in, it answers or closes the connection, and
afterwards it is as it was.

``make fuzz SEED=7`` runs another seed, ``FRAMES=...`` sets how many frames.
"""

import contextlib
import os
import random
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.broker_harness import running_broker, topic_image
from e2e.clusters import Cluster, StartCluster
from e2e.fuzz.driver import DEADLINE_S, Driver, FuzzError
from e2e.fuzz.frames import Frame, Frames, Verdict
from e2e.fuzz.values import SHARE_GROUPS, World
from e2e.kafka_wire import Wire, batch, fetch_body, produce_body
from e2e.share_wire import ShareMember
from tidemark.kafka import api_versions, fetch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import request_header
from tidemark.model.topics import INTERNAL_TOPICS
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long]

SEED: Final = int(os.environ.get("SEED") or 20_261_121)
FRAMES: Final = int(os.environ.get("FRAMES") or 20_000)
WARM_UP_FRAMES: Final = 4_000
RSS_GROWTH_BYTES_MAX: Final = 50 * 1024 * 1024
SETTLE_S: Final = PATIENCE_S
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "careful": {"flush": "group", "max.message.bytes": "2000"},
    "squeezed": {"compression.type": "zstd"},
    "unfolded": {"compression.type": "uncompressed"},
    "compacted": {"cleanup.policy": "compact"},
}
COORDINATION: Final = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}
DISPOSABLE: Final = ("fuzz-a", "fuzz-b", "fuzz-c")
GAUGES: Final = {
    "connections": "kafka_server_socket_server_metrics_connection_count",
    "parked": "kafka_server_delayedoperationpurgatory_purgatorysize",
    "tasks": "tidemark_tasks",
}
BUFFERS: Final = "tidemark_buffers_bytes"
UNEXPECTED: Final = re.compile(
    r"Traceback|AssertionError|bug of ours|internal error|[Tt]ask exception|never retrieved"
    r"|never awaited|Fatal error|Unhandled|ERROR|CRITICAL"
)


class Subject:
    """The broker under test, as an operator sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = int(cluster.kafka(1).rpartition(":")[2])

    def gauge(self, name: str) -> float:
        """One metric, summed over its labels."""
        text = self.cluster.ops("broker-1", "/metrics")
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        assert found, f"/metrics has no {name}"
        return sum(map(float, found))

    def gauges(self) -> dict[str, float]:
        """What may be held for clients."""
        return {short: self.gauge(name) for short, name in GAUGES.items()}

    def rss_bytes(self) -> int:
        """Resident memory of the broker process."""
        status = Path(f"/proc/{self.cluster.pid('broker-1')}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found
        return int(found[1]) * 1024

    def wait_settled(self, before: Mapping[str, float]) -> None:
        """Until nothing more is held than ``before``."""

        def settled() -> bool:
            now = self.gauges()
            return all(now[name] <= value for name, value in before.items())

        wait_for(settled, lambda: f"still held: {self.gauges()}, before: {before}")

    def check_log(self) -> None:
        """No traceback, no failed task, no error."""
        for name in ("broker-1", "controller-1"):
            lines = self.cluster.log(name).splitlines()
            bad = [index for index, line in enumerate(lines) if UNEXPECTED.search(line)]
            shown = "\n".join(lines[bad[0] : bad[0] + 40]) if bad else ""
            assert not bad, f"{name} logged {len(bad)} unexpected lines; the first:\n{shown}"


def make_world(subject: Subject) -> World:
    """Topics with some records, and their ids."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": subject.cluster.kafka(1)})
    topics = [
        confluent_kafka.admin.NewTopic(name, 2, 1, config=dict(config))
        for name, config in TOPICS.items()
    ]
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    with Wire(subject.port) as wire:
        for name in TOPICS:
            wire.produce(name, batch(b"one", b"two", b"three", key=b"k"))
        ids = {topic.topic: topic.topic_id for topic in wire.metadata(*TOPICS).topics}
    make_share_groups(subject.port)
    return World({name: ids[name] for name in TOPICS}, DISPOSABLE)


def make_share_groups(port: int) -> None:
    """Groups of which hostile members may read: they outlive the members that make them."""
    for group in SHARE_GROUPS:
        member = ShareMember(port, group, "plain")
        member.join()
        member.wire.socket.close()


def served_by(subject: Subject) -> dict[int, tuple[int, int]]:
    """First and last version by API, from the broker itself."""
    with Wire(subject.port) as wire:
        body = wire.ask(ApiKey.API_VERSIONS, 0, b"")
    table = api_versions.read_api_versions_response(body, 0).api_versions
    return {one.api_key: (one.min_version, one.max_version) for one in table}


def harmless(draw: Callable[[], Frame]) -> Frame:
    """The first frame drawn that may be sent."""
    while (frame := draw()).verdict is Verdict.HARMFUL:
        pass
    return frame


def run_frames(driver: Driver, frames: Frames, dice: random.Random, count: int) -> None:
    """``count`` frames of the mix; one in five hundred of those that are answered comes slowly."""
    kinds: dict[Callable[[], Frame], int] = {
        frames.well_formed: 56,
        frames.mutated: 30,
        frames.noise: 4,
        frames.unknown_version: 3,
        frames.wrong_length: 4,
        frames.half_sent: 3,
    }
    drawn = dice.choices(list(kinds), list(kinds.values()), k=count)
    for draw in drawn:
        frame = harmless(draw)
        if frame.verdict is Verdict.ANSWER and dice.random() < 0.002:
            driver.give_slowly(frame)
        else:
            driver.give(frame)


def hostile_connections(port: int) -> None:
    """Many at once; some silent, some in the middle of a huge frame, some gone without a word."""
    opened = [socket.create_connection(("127.0.0.1", port), DEADLINE_S) for _ in range(800)]
    for index, one in enumerate(opened):
        if index % 4 == 1:
            one.sendall(struct.pack(">i", 90_000_000) + b"\0" * 3)
        elif index % 40 == 2:
            one.sendall(struct.pack(">i", 90_000_000) + bytes(1_000_000))
        elif index % 4 == 3:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for one in opened:
        one.close()


def flood(subject: Subject, frame: bytes, frames_max: int) -> None:
    """Pipeline one request without reading an answer until the broker takes no more; then read all
    answers.
    """
    before = subject.rss_bytes()
    with socket.create_connection(("127.0.0.1", subject.port), 1.0) as client:
        data = frame * 100
        sent = 0
        try:
            while sent < frames_max * len(frame):
                sent += client.send(data[sent % len(frame) :])
        except TimeoutError:
            pass  # the broker has stopped reading
        time.sleep(1.0)
        grown = subject.rss_bytes() - before
        assert grown < RSS_GROWTH_BYTES_MAX, f"a client that does not read cost {grown:,} bytes"
        client.settimeout(DEADLINE_S)
        client.shutdown(socket.SHUT_WR)
        assert count_answers(client) == sent // len(frame)


def count_answers(client: socket.socket) -> int:
    """How many whole frames come until the broker ends."""
    count, held = 0, bytearray()
    while chunk := client.recv(1 << 20):
        held += chunk
        position = 0
        while len(held) - position >= 4:
            end = position + 4 + int(struct.unpack_from(">i", held, position)[0])
            if end > len(held):
                break
            count, position = count + 1, end
        del held[:position]
    return count


def flood_frame(key: int, version: int, body: bytes) -> bytes:
    """One whole frame."""
    data = request_header(key, version, 7, "flood") + body
    return struct.pack(">i", len(data)) + data


def check_normal_clients(cluster: Cluster, port: int) -> None:
    """librdkafka and the bare wire produce and read back on the same broker."""
    topic = f"after-{time.monotonic_ns()}"
    bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.kafka(1)}
    admin = confluent_kafka.admin.AdminClient(bootstrap)
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    producer = confluent_kafka.Producer({**bootstrap, "enable.idempotence": True})
    for number in range(500):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**bootstrap, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read: list[bytes | None] = []
    while len(read) < 500:
        message = consumer.poll(10)
        assert message is not None, f"only {len(read)} of 500 records came"
        assert message.error() is None, message.error()
        read.append(message.value())
    del consumer  # close() would look long for a group coordinator, which nothing here needs
    assert read == [b"%d" % number for number in range(500)]
    with Wire(port) as wire:
        assert wire.produce(topic, batch(b"last")).base_offset == 500
        assert wire.offset(topic, 0, -1).offset == 501
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


FLOODS: Final = (
    (ApiKey.API_VERSIONS, 4, b"\x02a\x02a\x00", 20_000),
    (ApiKey.METADATA, 1, struct.pack(">i", -1), 30_000),
    (ApiKey.DESCRIBE_CONFIGS, 1, struct.pack(">ibh", 1, 4, 1) + b"1" + b"\xff" * 4 + b"\1", 3_000),
    (ApiKey.FETCH, 12, fetch_body(("plain", 0, 0), version=12), 20_000),
    (ApiKey.PRODUCE, 9, produce_body("plain", batch(b"flood")), 20_000),
)
"""API, version, body, and how many are pipelined at most."""


@pytest.mark.feature("Y01")
def test_hostile_frames_leave_a_broker_as_it_was(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    print(f"SEED={SEED} FRAMES={FRAMES}")
    subject = Subject(
        start_cluster(txn_coordinators=1, share_coordinators=1, overrides={"broker": COORDINATION})
    )
    world = make_world(subject)
    dice = random.Random(SEED)
    frames = Frames(dice, world, served_by(subject))

    def remember(_: Frame, response: object) -> None:
        if isinstance(response, fetch.FetchResponse) and response.session_id:
            world.session_ids[1:] = [*world.session_ids[1:][-20:], response.session_id]

    def bombard(count: int) -> Driver:
        driver = Driver(subject.port, remember)
        try:
            for pair in frames.pairs:
                driver.give(harmless(partial(frames.well_formed, pair)))
            run_frames(driver, frames, dice, count)
            driver.finish()
        except FuzzError as failure:
            for number, frame in enumerate(failure.frames):
                (tmp_path / f"frame-{number}.bin").write_bytes(frame.data)
            failure.add_note(f"SEED={SEED}; whole frames in {tmp_path}")
            raise
        return driver

    bombard(WARM_UP_FRAMES)
    check_normal_clients(subject.cluster, subject.port)
    time.sleep(0.5)
    held, rss = subject.gauges(), subject.rss_bytes()
    began = time.monotonic()
    driver = bombard(FRAMES)
    seconds = time.monotonic() - began
    hostile_connections(subject.port)
    for key, version, body, count in FLOODS:
        flood(subject, flood_frame(key, version, body), count)
    subject.wait_settled(held)
    grown = subject.rss_bytes() - rss
    print(f"{FRAMES:,} frames in {seconds:.0f} s, RSS {grown / 2**20:+.1f} MiB, then settled")
    for kind, sent in sorted(driver.sent.items()):
        print(f"{sent:>9,}  {kind}")
    assert driver.pairs.keys() >= set(frames.pairs), "an API or version was left out"
    check_normal_clients(subject.cluster, subject.port)
    with Wire(subject.port) as wire:
        assert {one.topic for one in wire.metadata().topics} <= {
            *TOPICS,
            *DISPOSABLE,
            *INTERNAL_TOPICS,
        }
    subject.check_log()
    assert grown < RSS_GROWTH_BYTES_MAX


# -- what the frames have found


def test_an_unanswered_produce_of_a_client_that_has_ended_closes(tmp_path: Path) -> None:
    compacted = topic_image("compacted", 1, {"cleanup.policy": "compact"})
    with running_broker(tmp_path, {"compacted": compacted}) as broker, Wire(broker.port) as wire:
        wire.send(ApiKey.PRODUCE, 9, produce_body("compacted", batch(b"v", key=b"k"), acks=0))
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()


def test_a_long_poll_does_not_outlive_its_client(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"t": 1}, connections_max_idle_ms=1_000) as broker:
        with Wire(broker.port) as wire:
            wire.send(ApiKey.FETCH, 12, fetch_body(("t", 0, 0), wait_ms=2**31 - 1))
        wait_for(lambda: broker.server.limits.connections == 0)
        assert broker.server.partitions.parked.requests.count == 0


def test_a_client_that_does_not_read_is_idle(tmp_path: Path) -> None:
    with (
        running_broker(tmp_path, {"t": 1}, connections_max_idle_ms=1_000) as broker,
        Wire(broker.port, timeout_s=0.3) as wire,
    ):
        # On a slow machine the broker may close the connection before the client's sends block.
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                wire.send(ApiKey.METADATA, 12, b"\0\0\0\0")
        wait_for(lambda: broker.server.limits.connections == 0)
