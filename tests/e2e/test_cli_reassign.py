"""``tidemark cluster reassign`` against three real brokers: moves under a producer, cancelling,
throttles, and what Kafka's own clients see of it.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.processes import running
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient
from tidemark.client import AlterConfig, ConfigResource
from tidemark.client import TopicPartition as Partition
from tidemark.client import sync as client
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RATE = 400_000
VALUE_BYTES = 20_000
COPY_BYTES = 3_000_000
DOCUMENT = Path(__file__).parents[2] / "docs/operating/reassignment.md"
COMMAND = [sys.executable, "-m", "tidemark.cli.main", "cluster", "reassign"]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    small_fetches = ("--replica.fetch.max.bytes", "65536", "--default.replication.factor", "2")
    # A broker can only be drained where others have room for all replicas: also those of groups.
    drainable = ("--offsets.topic.replication.factor", "2")
    directory = tmp_path_factory.mktemp("moves")
    with running_cluster(directory, 3, *small_fetches, *drainable) as started:
        yield started


class Cli:
    """The command line, and a topic."""

    def __init__(self, brokers: Sequence[BrokerProcess], topic: str, *replicas: list[int]) -> None:
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=list(replicas))
        self._admin.create_topics([new])[topic].result(PATIENCE_S)

    def run(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        argv = [*COMMAND, *words, "--bootstrap", self.bootstrap]
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def done(self, *words: str, stdin: str = "") -> str:
        ended = self.run(*words, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def replicas(self) -> list[list[int]]:
        topic = self._admin.list_topics(self.topic, timeout=PATIENCE_S).topics[self.topic]
        return [list(topic.partitions[number].replicas) for number in sorted(topic.partitions)]

    def addresses(self) -> set[str]:
        """Of the brokers alive."""
        brokers = self._admin.list_topics(timeout=PATIENCE_S).brokers.values()
        return {f"{broker.host}:{broker.port}" for broker in brokers}

    def throttles(self) -> set[str]:
        """Where one is set."""
        with client.Admin(self.bootstrap) as admin:
            resources = [ConfigResource("topic", self.topic)]
            resources += [ConfigResource("broker", str(one)) for one in (1, 2, 3)]
            return {
                f"{resource.kind} {resource.name} {name}"
                for resource, entries in admin.describe_configs(resources).items()
                for name, entry in entries.items()
                if "replication.throttled" in name and entry.source in ("topic", "broker")
            }

    def fill(self, size_bytes: int) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "batch.size": 2 * VALUE_BYTES}
        producer = Producer({**settings, "acks": "all"})
        for _ in range(size_bytes // VALUE_BYTES):
            producer.produce(self.topic, value=os.urandom(VALUE_BYTES), partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def read_all(self, count: int) -> list[bytes]:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "none"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        partitions = range(len(self.replicas()))
        consumer.assign([TopicPartition(self.topic, number, 0) for number in partitions])
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [
                one.value() or b"" for one in consumer.consume(500, 0.5) if one.error() is None
            ]
        consumer.close()
        return values


def json_of(topic: str, *replicas: list[int]) -> str:
    partitions = [
        {"topic": topic, "partition": number, "replicas": each}
        for number, each in enumerate(replicas)
    ]
    return json.dumps({"version": 1, "partitions": partitions})


class Background:
    """A producer with acks=all that goes on until it is stopped."""

    def __init__(self, cli: Cli) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[Any] = []
        self._cli = cli
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._cli.bootstrap, "enable.idempotence": True}
        producer, number = Producer({**settings, "linger.ms": 5}), 0
        while not self._stop.wait(0.002):
            producer.produce(self._cli.topic, value=b"%d" % number, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        assert producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failures.append(error)


@pytest.mark.feature("C08")
def test_a_drained_broker_holds_nothing_and_no_acknowledged_record_is_lost(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    cli = Cli(brokers, "drained", [2, 1], [1, 2], [2, 3], [2, 1])
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    with Background(cli) as sent:
        wait_for(lambda: len(sent.acknowledged) > 500, lambda: str(sent.failures))
        plan.write_text(
            cli.done("plan", "--topic", "drained", "--remove-broker", "2", "-o", "json")
        )
        back.write_text(cli.done("apply", str(plan), "--throttle", "10000000"))
        cli.done("watch", str(plan), "--interval", "0.2")
        count = len(sent.acknowledged)
        wait_for(lambda: len(sent.acknowledged) > count + 500, lambda: str(sent.failures))
    assert sent.failures == []
    assert all(2 not in each for each in cli.replicas())
    assert cli.throttles() == set()
    assert sorted(cli.read_all(len(sent.acknowledged))) == sorted(sent.acknowledged)
    # What apply printed takes everything back.
    cli.done("apply", str(back))
    cli.done("watch", str(back), "--interval", "0.2")
    assert cli.replicas() == [[2, 1], [1, 2], [2, 3], [2, 1]]


def test_a_move_that_is_cancelled_midway_leaves_things_as_they_were(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    cli = Cli(brokers, "cancelled", [1, 2])
    cli.fill(COPY_BYTES)
    plan = tmp_path / "plan.json"
    plan.write_text(json_of("cancelled", [3, 2]))
    cli.done("apply", str(plan), "--throttle", "100000")
    assert len(cli.throttles()) == 8
    argv = [*COMMAND, "watch", "--interval", "0.2", "-o", "json", "--bootstrap", cli.bootstrap]
    with running(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        (row,) = json.loads(watching.stdout.readline())["moving"]
        assert (row["adding"], row["removing"]) == ([3], [1])
        assert row["copies"][0]["percent"] < 100
        refused = cli.run("apply", str(plan))
        assert "are being moved already: cancelled-0" in refused.stderr
        cancelled = json.loads(cli.done("cancel", "cancelled:0", "-o", "json"))
        assert cancelled["cancelled"] == ["cancelled-0"]
        watching.communicate(timeout=PATIENCE_S)
        assert watching.returncode == 0, "it ends once nothing moves"
    assert sorted(cli.replicas()[0]) == [1, 2]  # who comes is taken out, as Kafka does: [2, 1]
    assert cli.throttles() == set()
    again = cli.run("cancel", str(plan))
    assert again.returncode == 1
    assert "no move is under way of cancelled-0" in again.stderr
    watched = cli.run("watch", str(plan))
    assert watched.returncode == 1
    assert "cancelled-0 is on 2,1, not on 3,2" in watched.stderr


def test_kafkas_client_sees_moves_as_kafka_tells_them(brokers: list[BrokerProcess]) -> None:
    cli = Cli(brokers, "told", [1, 2], [2, 1])
    cli.fill(COPY_BYTES)
    cli.done("apply", "-", "--throttle", "100000", stdin=json_of("told", [3, 1]))
    admin = KafkaAdminClient(bootstrap_servers=cli.bootstrap.split(","))
    try:
        ((partition, move),) = admin.list_partition_reassignments().items()
        assert (partition.topic, partition.partition) == ("told", 0)
        assert move["replicas"] == [3, 1, 2]  # the target first, then who goes
        assert (move["adding_replicas"], move["removing_replicas"]) == ([3], [2])
        others = [KafkaTopicPartition("told", 1), KafkaTopicPartition("nowhere", 0)]
        assert admin.list_partition_reassignments(others) == {}
    finally:
        admin.close()
    cli.done("cancel", "--all")
    assert sorted(cli.replicas()[0]) == [1, 2]


def test_a_follower_that_is_throttled_takes_its_time(brokers: list[BrokerProcess]) -> None:
    cli = Cli(brokers, "slow", [1, 2])
    cli.fill(COPY_BYTES)
    replicas = "follower.replication.throttled.replicas"
    rate = "follower.replication.throttled.rate"
    with client.Admin(cli.bootstrap) as admin:
        admin.alter_configs(
            {
                ConfigResource("topic", "slow"): [AlterConfig(replicas, "0:3")],
                ConfigResource("broker", "3"): [AlterConfig(rate, str(RATE))],
            }
        )
        begun = time.monotonic()
        cli.done("apply", "-", stdin=json_of("slow", [1, 3]))
        cli.done("watch", "--interval", "0.2")
        took = time.monotonic() - begun
    # A second's worth is free, and one answer may overdraw.
    assert took > COPY_BYTES / RATE - 2
    assert cli.replicas() == [[1, 3]]
    assert cli.throttles() == set()
    with client.Admin(cli.bootstrap) as admin:
        leader, follower = (
            admin.replica_bounds(one, [Partition("slow", 0)])[Partition("slow", 0)]
            for one in (1, 3)
        )
    assert leader == follower == (0, COPY_BYTES // VALUE_BYTES)


def test_a_broker_that_is_away_is_drained(brokers: list[BrokerProcess], tmp_path: Path) -> None:
    cli = Cli(brokers, "away", [3, 1], [1, 3], [1, 2])
    plan = tmp_path / "plan.json"
    brokers[2].stop()
    try:
        wait_for(lambda: brokers[2].bootstrap not in cli.addresses(), lambda: "it is alive")
        asked = ("plan", "--topic", "away", "--remove-broker", "3")
        plan.write_text(cli.done(*asked, "-o", "json"))
        cli.done("apply", str(plan), "--throttle", "10000000")
        cli.done("watch", str(plan), "--interval", "0.2")
        assert cli.replicas() == [[2, 1], [1, 2], [1, 2]]
    finally:
        brokers[2].start()
        brokers[2].wait_ready()
    cli.done("watch")
    assert cli.throttles() == set()


def test_what_cannot_be_is_refused_with_a_reason(brokers: list[BrokerProcess]) -> None:
    cli = Cli(brokers, "refused", [1, 2])
    cases = [
        (("apply", "-"), '{"version":1,\n "partitions":[}', "stdin, line 2, column 16"),
        (("apply", "-"), '{"version":1}', '"partitions" is missing'),
        (("apply", "-"), json_of("refused", [1, 9]), "broker 9, which is not alive"),
        (("apply", "-"), json_of("refused", [1]), "--allow-replication-factor-change"),
        (("apply", "-"), json_of("refused", [1, 2], [2, 1]), "there is no partition refused-1"),
        (("apply", "-"), json_of("nowhere", [1, 2]), "nowhere"),
        (("apply", "/no/such/file"), "", "/no/such/file cannot be read"),
        (("plan", "--topic", "nowhere"), "", "nowhere"),
        (("plan", "--topic", "refused", "--brokers", "1,9"), "", "broker 9, which is not alive"),
        (("plan", "--topic", "refused", "--brokers", "1"), "", "refused-0 has 2 replicas"),
        (("plan", "--brokers", "1,x"), "", "not a list of broker ids"),
        (("cancel",), "", "name a plan"),
        (("cancel", "refused"), "", "neither a file nor topic:partition"),
        (("cancel", "refused:0"), "", "no move is under way of refused-0"),
    ]
    for words, stdin, told in cases:
        ended = cli.run(*words, stdin=stdin)
        assert ended.returncode not in (0, 70), words
        assert told in ended.stderr, words
        assert "try:" in ended.stderr, words
    assert cli.replicas() == [[1, 2]]


def test_every_command_of_the_document_works_as_written(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    lines = re.findall(r"^    (tidemark .*)$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(lines) > 8
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "TIDEMARK_BOOTSTRAP": brokers[0].bootstrap}
    for line in lines:
        ended = subprocess.run(
            ["bash", "-c", line.replace("/disks/b", brokers[0].log_dirs)],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        finished = " cancel " in line and "no move is under way" in ended.stderr
        assert ended.returncode == 0 or finished, f"{line}\n{ended.stderr}"
