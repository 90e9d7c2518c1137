"""A Kafka Streams topology with processing.guarantee=exactly_once_v2, killed, paused and left
without brokers in the middle: each record of its input is counted once. Run by ``make
conformance``.

The topology counts words: a repartition topic, a store with its changelog, and an output topic with
every update of every count. So a word's updates must read 1, 2, 3... without gap or repetition.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from conformance.java_programs import JavaPrograms, RunningProgram, build, started
from e2e.clusters import Cluster
from e2e.transactional_clients import COMMITTED, WAIT_S, create, transactional_cluster
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARTITIONS = 4
WORDS = 40
FEED = 1_000
UPDATES_BEFORE_KILL = 200
PROGRESS_S = PATIENCE_S
QUICK = {"group.initial.rebalance.delay.ms": 100, "zookeeper.session.timeout.ms": 4_000}


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Who kills a process of it starts it again."""
    directory = tmp_path_factory.mktemp("streams")
    with transactional_cluster(
        directory, txn_coordinators=2, overrides={"broker": QUICK}
    ) as running:
        yield running


@dataclass
class Application:
    """The topology with its topics; instances end with the test."""

    programs: JavaPrograms
    cluster: Cluster
    directory: Path
    name: str
    ending: ExitStack
    fed: int = 0

    def start(self, instance: str) -> RunningProgram:
        """An instance keeps its state in a directory of its name."""
        state, log = self.directory / instance, self.directory / f"{uuid.uuid4().hex}.log"
        argv = self.programs.argv("CountingTopology", self.cluster.bootstrap, self.name, str(state))
        return self.ending.enter_context(started(argv, log))

    def feed(self, count: int = FEED) -> None:
        """More words, one after the other."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True}
        )
        for number in range(self.fed, self.fed + count):
            word = f"word-{number % WORDS}"
            producer.produce(f"{self.name}-input", word, partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        self.fed += count

    def wait_for(self, what: str, holds: Callable[[], bool], *runs: RunningProgram) -> None:
        """Poll; too late, tell what the instances wrote."""
        deadline = time.monotonic() + PROGRESS_S
        while not holds():
            stories = "\n---\n".join(run.story() for run in runs)
            assert time.monotonic() < deadline, f"no {what}:\n{stories}"
            time.sleep(0.05)

    def wait_for_updates(self, end: int, *runs: RunningProgram) -> None:
        """Until the output has grown that far: some of what was fed is counted, not all."""
        self.wait_for(f"update {end}", lambda: self.written() > end, *runs)

    def written(self) -> int:
        """Updates in the output so far, those of open and aborted transactions too; and markers.
        Asked again where a leader died, or is new.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return sum(self.ends())
            except (KafkaException, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def ends(self) -> list[int]:
        """Of the output's partitions. With a client of its own: it knows no leader of before."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        output = f"{self.name}-output"
        asked = {TopicPartition(output, one): OffsetSpec.latest() for one in range(PARTITIONS)}
        answers = admin.list_offsets(asked, request_timeout=2.0)
        return [answer.result(5.0).offset for answer in answers.values()]

    def updates(self, topic: str, isolation: str = COMMITTED) -> dict[bytes, list[bytes]]:
        """The values of every key, in order, to the end that this isolation level sees now."""
        reader = confluent_kafka.Consumer(self.reader(isolation))
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: dict[bytes, list[bytes]] = defaultdict(list)
        ended: set[int] = set()
        try:
            while len(ended) < PARTITIONS:
                message = reader.poll(WAIT_S)
                assert message is not None, f"no end of {topic}"
                error = message.error()
                if error is None:
                    found[message.key() or b""].append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
            return found
        finally:
            reader.close()

    def reader(self, isolation: str) -> dict[str, str | bool]:
        """Of no group, to the end of partitions."""
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }

    def counted(self) -> int:
        """Committed updates."""
        return sum(map(len, self.updates(f"{self.name}-output").values()))

    def committed(self) -> int:
        """Input records that the group is done with, of committed transactions."""
        reader = confluent_kafka.Consumer({**self.reader(COMMITTED), "group.id": self.name})
        asked = [TopicPartition(f"{self.name}-input", number) for number in range(PARTITIONS)]
        try:
            return sum(max(0, one.offset) for one in reader.committed(asked, WAIT_S))
        finally:
            reader.close()

    def assert_exactly_once(self, *runs: RunningProgram) -> None:
        """Everything fed is counted; every word's updates are 1, 2, 3...; the changelog agrees."""
        self.wait_for("end of counting", lambda: self.counted() >= self.fed, *runs)
        each = self.fed // WORDS
        expected = {
            f"word-{word}".encode(): [b"%d" % count for count in range(1, each + 1)]
            for word in range(WORDS)
        }
        assert self.updates(f"{self.name}-output") == expected
        changelog = self.updates(f"{self.name}-counts-changelog")
        # A store's value is the count as a Java long, behind nothing or a timestamp of 8 bytes.
        last = {key: int.from_bytes(values[-1][-8:], "big") for key, values in changelog.items()}
        assert last == dict.fromkeys(expected, each)
        self.wait_for("commit of the input", lambda: self.committed() == self.fed, *runs)


@pytest.fixture
def application(programs: JavaPrograms, cluster: Cluster, tmp_path: Path) -> Iterator[Application]:
    name = f"s-{uuid.uuid4().hex[:8]}"
    create(cluster, f"{name}-input", f"{name}-output", partitions=PARTITIONS)
    with ExitStack() as ending:
        yield Application(programs, cluster, tmp_path, name, ending)


@pytest.mark.feature("L02", "L04", "L09", "L10", "L14", "L15", "N01", "N02", "N05", "Y01")
def test_streams_killed_in_the_middle_counts_each_record_once(application: Application) -> None:
    interrupted = 0
    # The last one has no state of its own: it builds it from the changelog.
    for instance in ("one", "one", "two"):
        before = application.written()
        run = application.start(instance)
        application.feed()
        application.wait_for_updates(before + UPDATES_BEFORE_KILL, run)
        run.kill()
        interrupted += application.counted() < application.fed
    assert interrupted > 0, "every kill came too late"
    application.assert_exactly_once(application.start("three"))


@pytest.mark.feature("L02", "L03", "L16", "N04", "Y01")
def test_a_paused_instance_that_wakes_counts_nothing_twice(application: Application) -> None:
    zombie, heir = application.start("one"), application.start("two")
    application.feed()
    application.wait_for_updates(UPDATES_BEFORE_KILL, zombie, heir)
    zombie.pause()
    application.feed()
    application.wait_for("takeover", lambda: application.counted() >= application.fed, zombie, heir)
    application.feed()
    zombie.resume()
    application.feed()
    application.assert_exactly_once(zombie, heir)


@pytest.mark.feature("E03", "L05", "N01", "N03", "Y01")
@pytest.mark.parametrize("kind", ["broker", "txn-coordinator"])
def test_what_it_talks_to_dies_under_it(application: Application, kind: str) -> None:
    cluster, run = application.cluster, application.start("one")
    for victim in (f"{kind}-1", f"{kind}-2"):
        more_is_counted(application, run)
        cluster.kill(victim)
        more_is_counted(application, run)  # others take its place
        cluster.restart(victim)
    application.assert_exactly_once(run)


def more_is_counted(application: Application, run: RunningProgram) -> None:
    """Not all of what is fed: the rest is on its way while something else happens."""
    before = application.written()
    application.feed()
    application.wait_for_updates(before + UPDATES_BEFORE_KILL, run)
