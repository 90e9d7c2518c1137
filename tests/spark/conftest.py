"""One local Spark session and one real cluster for all tests of the Spark data source.

Both are shared by the whole session: a test leaves them running, makes topics of its own names
(`topic_name`) and puts its checkpoints under `tmp_path`. A test that hurts processes makes a
cluster of its own with `start_cluster`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
from e2e.clusters import Cluster, start_cluster, started_cluster, topic_name  # noqa: F401 - fixtures
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tidemark.cli.dev.cluster import Config
from tidemark_spark import worker_clients

ROOT: Final = Path(__file__).parents[2]
WORKER_PATH: Final = ("gen", "lib", "spark-jobs", "tests")
"""What Spark's Python processes import from, below the root: the tests too, for fault hooks."""
TASK_TRIES: Final = 3
JVM_END_SECONDS: Final = 120.0
QUICK: Final[Mapping[str, Config]] = {
    "broker": {
        "zookeeper.session.timeout.ms": 4_000,  # a killed broker's id is free after it
        "replica.lag.time.max.ms": 4_000,  # a dead follower holds acks=all until it left the ISR
        "log.cleaner.backoff.ms": 300,
        "log.retention.check.interval.ms": 300,
    },
    "txn-coordinator": {"zookeeper.session.timeout.ms": 4_000},
}
SPARK_CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    # A class cache and a warm-up that tests of a minute do not earn back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
}


def pytest_sessionstart() -> None:
    """SIGTERM (a CI's time limit) ends the session as ^C does, so that clusters and the JVM end
    with it.
    """

    def terminated(_number: int, _frame: FrameType | None) -> None:
        pytest.exit("terminated", returncode=128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves sockets to the garbage collector, and pyspark its own old ways."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for ignored in (
                "ignore::ResourceWarning",
                "ignore::DeprecationWarning",
                "ignore::FutureWarning",
                "ignore::UserWarning:pyspark",
            ):
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores in this machine, and as on a cluster a task may fail; format ``tidemark`` is
    registered. Its JVM ends with the session.
    """
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        _set_environment(patch)
        builder = SparkSession.builder.master(f"local[2,{TASK_TRIES}]").appName("tidemark-tests")
        for name, value in SPARK_CONF.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.local.dir", str(directory / "local"))
        session = builder.config(
            "spark.sql.warehouse.dir", str(directory / "warehouse")
        ).getOrCreate()
        register_source(session)
        try:
            yield session
        finally:
            end_jvm(session)


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """Readers and writers that ran in this process: gRPC's threads end with its last channel, and
    tests in a network namespace need threads of their own.
    """
    yield
    worker_clients.close_all()


def register_source(session: SparkSession) -> None:
    """Let a session know the format; again when its processes are to have another environment."""
    from tidemark_spark import register

    register(session)


@contextlib.contextmanager
def configured(session: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The shared session with settings of a test's own, which then are what they were. No session
    from ``newSession``: Spark looks sources up in the thread's active one, which it would stay.
    """
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield session
    finally:
        for name, former in before.items():
            if former is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, former)


def end_jvm(session: SparkSession) -> None:
    """Stop the session, and the JVM that it started, which outlives ``stop`` otherwise."""
    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    jvm = gateway.proc
    if jvm.stdin is not None:
        jvm.stdin.close()  # the JVM ends when its parent lets go of its input
    try:
        jvm.wait(JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _set_environment(patch: pytest.MonkeyPatch) -> None:
    path = [str(ROOT / part) for part in WORKER_PATH]
    patch.setenv("PYTHONPATH", os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]))
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    patch.delenv("SPARK_HOME", raising=False)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, a controller and a txn-coordinator, shared: leave them as they were."""
    shared = started_cluster(
        tmp_path_factory.mktemp("cluster"), brokers=2, txn_coordinators=1, overrides=QUICK
    )
    yield shared
    shared.end()


@pytest.fixture
def cluster_defaults() -> Mapping[str, Config]:
    """Short intervals."""
    return QUICK
