"""Real clusters for the end-to-end tests: ZooKeeper, a controller and brokers as processes on free
ports of loopback.

`cluster` is shared by the whole session: a test that uses it leaves it running, and makes topics of
its own names (`topic_name`). A test that hurts processes, or needs other configuration, makes its
own with `start_cluster`.
"""

import gc
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from e2e.built_images import built  # noqa: F401 - a fixture
from e2e.clusters import (  # noqa: F401 - fixtures
    Cluster,
    cluster_defaults,
    start_cluster,
    started_cluster,
    topic_name,
)
from e2e.kafka_python_leak import close_refused_sockets
from e2e.rest_world import rest, rest_cluster  # noqa: F401 - fixtures
from e2e.share_cluster import share_cluster  # noqa: F401 - a fixture
from tidemark.cli.dev.cluster import Config


def pytest_sessionstart() -> None:
    """SIGTERM (a CI's time limit) ends the session as ^C does, so that clusters end with it."""

    def terminated(_number: int, _frame: FrameType | None) -> None:
        pytest.exit("terminated", returncode=128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)


@pytest.fixture(scope="session", autouse=True)
def _kafka_python_closes_its_sockets() -> Iterator[None]:
    """See kafka_python_leak.py."""
    with pytest.MonkeyPatch.context() as patch:
        close_refused_sockets(patch)
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """An exception that a test has looked at keeps the test's frame, and its clients, until the
    garbage collector looks: their threads would ask for brokers that are gone, beside other tests.
    """
    yield
    gc.collect()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, a controller and a txn-coordinator, shared: leave them as they were."""
    shared = started_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, txn_coordinators=1)
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def _mortal_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with short intervals, shared. A test may stop or kill broker-2, and starts it
    again; broker-2 makes no topics by itself, broker-1 makes them with three partitions.
    """
    quick = {
        "zookeeper.session.timeout.ms": 4_000,  # a killed broker's id is free after it
        "log.cleaner.backoff.ms": 300,
        "log.retention.check.interval.ms": 300,
    }
    overrides: dict[str, Config] = {
        "broker": quick,
        "broker-1": {"num.partitions": 3},
        "broker-2": {"auto.create.topics.enable": False},
    }
    shared = started_cluster(tmp_path_factory.mktemp("mortal"), brokers=2, overrides=overrides)
    yield shared
    shared.end()


@pytest.fixture
def mortal_cluster(_mortal_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster with two brokers. A failed test does not leave it with one to the next."""
    yield _mortal_cluster
    if "broker-2" not in _mortal_cluster.running():
        _mortal_cluster.restart("broker-2")
