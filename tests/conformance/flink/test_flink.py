"""A Flink job that copies a topic exactly once, killed while it writes and commits, and left
without a broker and a coordinator. Run by ``make conformance``.

Flink's sink is a two-phase commit over Kafka's producer: a transaction is flushed at a checkpoint
and committed after it. If the job dies in between, another process takes the transaction over, by
its producer id and epoch, and commits it.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from conformance.java_programs import JavaPrograms, RunningProgram, build, started
from e2e.clusters import Cluster
from e2e.transactional_clients import COMMITTED, UNCOMMITTED, WAIT_S, create, transactional_cluster
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARTITIONS = 4
FEED = 2_000
KILLS = 4
WRITTEN_BEFORE_KILL = 200
QUICK = {"zookeeper.session.timeout.ms": 4_000}
# Flink serializes with reflection, and its connector takes over transactions with it.
OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.util.concurrent", "java.nio", "java.time")
]


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build(Path(__file__).parent)


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Who kills a process of it starts it again."""
    directory = tmp_path_factory.mktemp("flink")
    with transactional_cluster(
        directory, txn_coordinators=2, overrides={"broker": QUICK}
    ) as running:
        yield running


@dataclass
class Job:
    """The job with its topics and checkpoints; its processes end with the test."""

    programs: JavaPrograms
    cluster: Cluster
    directory: Path
    naming: str
    name: str
    ending: ExitStack
    fed: int = 0

    def start(self) -> RunningProgram:
        """Start it; it goes on from its last checkpoint."""
        log = self.directory / f"{uuid.uuid4().hex}.log"
        checkpoints = str(self.directory / "checkpoints")
        topics = (f"{self.name}-from", f"{self.name}-to")
        java, *rest = self.programs.argv(
            "ExactlyOnceCopy", self.cluster.bootstrap, *topics, checkpoints, self.naming
        )
        return self.ending.enter_context(started([java, *OPENED, *rest], log))

    def feed(self) -> None:
        """Write further records, each with a value of its own."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True}
        )
        for number in range(self.fed, self.fed + FEED):
            producer.produce(f"{self.name}-from", str(number), partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        self.fed += FEED

    def read(self, isolation: str = COMMITTED) -> list[bytes]:
        """Values of the target, to the end that this isolation level sees now."""
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "nobody",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        target = f"{self.name}-to"
        reader.assign([TopicPartition(target, number, 0) for number in range(PARTITIONS)])
        found: list[bytes] = []
        ended: set[int | None] = set()
        try:
            while len(ended) < PARTITIONS:
                message = reader.poll(WAIT_S)
                assert message is not None, f"no end of {target}"
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
            return found
        finally:
            reader.close()

    def wait_written(self, count: int, run: RunningProgram) -> None:
        """Wait until the target has so many records, committed or not."""
        wait_for(lambda: len(self.read(UNCOMMITTED)) >= count, run.story)

    def wait_committed(self, count: int, run: RunningProgram) -> None:
        """Wait until readers of committed records see so many."""
        wait_for(lambda: len(self.read()) >= count, run.story)

    def assert_exactly_once(self, run: RunningProgram) -> None:
        """Everything that was fed is in the target once."""
        self.wait_committed(self.fed, run)
        assert Counter(self.read()) == Counter(str(number).encode() for number in range(self.fed))


@pytest.fixture(params=["INCREMENTING", "POOLING"])
def job(
    request: pytest.FixtureRequest, programs: JavaPrograms, cluster: Cluster, tmp_path: Path
) -> Iterator[Job]:
    """With each way in which Flink names its transactions. POOLING lists those that are open."""
    name = f"f-{uuid.uuid4().hex[:8]}"
    create(cluster, f"{name}-from", f"{name}-to", partitions=PARTITIONS)
    with ExitStack() as ending:
        yield Job(programs, cluster, tmp_path, request.param, name, ending)


@pytest.mark.feature("L02", "L04", "L09", "L10", "N01", "N02", "W03", "Y01")
def test_flink_killed_in_the_middle_copies_each_record_once(job: Job) -> None:
    for _ in range(KILLS):
        before = len(job.read(UNCOMMITTED))
        run = job.start()
        job.feed()
        job.wait_written(before + WRITTEN_BEFORE_KILL, run)
        run.kill()
    job.assert_exactly_once(job.start())


@pytest.mark.feature("E03", "L05", "N03", "W03", "Y01")
@pytest.mark.parametrize("kind", ["broker", "txn-coordinator"])
def test_what_flink_talks_to_dies_under_it(job: Job, kind: str) -> None:
    run = job.start()
    for victim in (f"{kind}-1", f"{kind}-2"):
        before = len(job.read(UNCOMMITTED))
        job.feed()
        job.wait_written(before + WRITTEN_BEFORE_KILL, run)
        job.cluster.kill(victim)
        job.feed()
        job.wait_committed(job.fed, run)
        job.cluster.restart(victim)
    job.assert_exactly_once(run)
