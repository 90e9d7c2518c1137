"""Hadoop beside a cluster: topics are loaded into HDFS and files of HDFS into topics, and a query
keeps its checkpoint there, while drivers and servers of HDFS are killed. Run by
``make conformance``.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conformance.hadoop.hdfs import Hdfs, running_hdfs, servers_jar
from conformance.maven import NotBuiltError
from e2e.clusters import Cluster, started_cluster, topic_name  # noqa: F401 - a fixture
from pyspark.sql import DataFrame, SparkSession
from spark.conftest import QUICK, ROOT, SPARK_CONF, end_jvm
from spark.reshard_job import PARTITIONS, SERVERS, Job, check_resharded, environment_of, fill
from spark.sink_topics import committed_records
from spark.spark_records import create, numbered, produce, run
from tidemark.client.transactions.transactional_producer import TransactionalProducer
from tidemark_spark.sink.failpoints import Step
from waiting import COMMAND_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RECORDS_EACH = 300
OFFSETS_A_BATCH = 50
LOADER = Path(__file__).parent / "load_topic.py"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Who kills a server starts it again."""
    try:
        jar = servers_jar()
    except NotBuiltError as missing:
        pytest.skip(str(missing))
    with running_hdfs(jar, tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(hdfs: Hdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    del hdfs  # without it there is nothing to run
    directory = tmp_path_factory.mktemp("cluster")
    shared = started_cluster(directory, brokers=2, txn_coordinators=1, overrides=QUICK)
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def spark(cluster: Cluster) -> Iterator[SparkSession]:
    """A session that only looks at what is in HDFS."""
    del cluster
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("SPARK_HOME", raising=False)
        builder = SparkSession.builder.master("local[2]").appName("looks")
        for name, value in SPARK_CONF.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        end_jvm(session)


class Driver:
    """A program with a session of its own."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            env={**os.environ, **environment_of()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill -9 of the driver, its JVM and its workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def finish(self) -> str:
        """Wait for its end; return what it printed."""
        output, _ = self._process.communicate(timeout=COMMAND_S)
        assert self._process.returncode == 0, output[-6_000:]
        return output


def files_in(spark: SparkSession, directory: str) -> int:
    """How many files HDFS lists there."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(directory)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return len(files.listStatus(path)) if files.exists(path) else 0


def loaded(frame: DataFrame) -> list[tuple[int, bytes]]:
    """Partition and value of each row, sorted."""
    rows = frame.select("partition", "value").collect()
    return sorted((row.partition, bytes(row.value)) for row in rows)


async def _abort(cluster: Cluster, topic: str) -> None:
    """Leave records of an aborted transaction in every partition."""
    async with TransactionalProducer(cluster.bootstrap, transactional_id=f"{topic}-t") as producer:
        await producer.init()
        await producer.begin()
        for partition in range(SERVERS):
            await producer.send(topic, b"aborted", partition=partition)
        await producer.abort()


@pytest.mark.feature("W03", "A21")
def test_a_topic_is_loaded_into_hdfs_once_and_the_files_into_another_topic(
    hdfs: Hdfs,
    cluster: Cluster,
    spark: SparkSession,
    topic_name: Callable[[str], str],  # noqa: F811 - the fixture
) -> None:
    topic = create(cluster, topic_name("clicks"), SERVERS)
    wanted = []
    for partition in range(SERVERS):
        values = numbered(RECORDS_EACH, start=partition * RECORDS_EACH)
        produce(cluster, topic, values[: RECORDS_EACH // 2], partition=partition)
        wanted += [(partition, value) for value in values]
    run(_abort(cluster, topic))
    for partition in range(SERVERS):
        values = numbered(RECORDS_EACH, start=partition * RECORDS_EACH)
        produce(cluster, topic, values[RECORDS_EACH // 2 :], partition=partition)
    directory, checkpoint = f"{hdfs.address}/lake/{topic}", f"{hdfs.address}/checkpoints/{topic}"
    load = (LOADER, cluster.grpc(), topic, directory, checkpoint, str(OFFSETS_A_BATCH))

    with ExitStack() as ending:
        first = Driver(*load)
        ending.callback(first.kill)
        wait_for(lambda: files_in(spark, f"{checkpoint}/commits"), "a batch is committed")
    assert 0 < files_in(spark, f"{checkpoint}/commits") < 2 * RECORDS_EACH // OFFSETS_A_BATCH
    hdfs.kill("datanode-1")
    Driver(*load).finish()
    hdfs.start("datanode-1")
    assert loaded(spark.read.parquet(directory)) == sorted(wanted)

    again = create(cluster, topic_name("again"), SERVERS)
    back = [
        *("--bootstrap-servers", cluster.grpc(), "--path", directory, "--format", "parquet"),
        *("--topic", again, "--keep-partitions", "--files-per-batch", "4"),
        *("--checkpoint", f"{hdfs.address}/checkpoints/{again}"),
    ]
    for _ in range(2):  # the second run finds that all is written
        Driver(ROOT / "spark-jobs" / "jobs" / "backfill.py", *back).finish()
        found = committed_records(cluster, again, SERVERS)
        assert sorted((one.partition, one.value) for one in found) == sorted(wanted)


@pytest.mark.feature("W03", "R06", "R07")
def test_a_killed_driver_goes_on_from_its_checkpoint_in_hdfs_which_was_restarted(
    hdfs: Hdfs,
    cluster: Cluster,
    topic_name: Callable[[str], str],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    source = create(cluster, topic_name("by-server"), SERVERS)
    target = create(cluster, topic_name("by-user"), PARTITIONS)
    fill(cluster, source)
    job = Job(cluster, source, target, tmp_path, f"{hdfs.address}/checkpoints/{target}")
    for batch in (0, 1):
        job.faults.arm(Step.COMMIT_AFTER, job.sink_id, batch, "kill-jvm")
        assert job.run().returncode != 0
        hdfs.kill("namenode")
        hdfs.start("namenode")
    assert job.faults.struck(job.sink_id) == {f"{Step.COMMIT_AFTER}.{batch}" for batch in (0, 1)}
    last = job.run()
    assert last.returncode == 0, last.stderr[-2_000:]
    assert "lag 0" in last.stdout.splitlines()[-1]
    check_resharded(committed_records(cluster, target, PARTITIONS))
