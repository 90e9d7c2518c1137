"""Real clusters for the end-to-end tests: ZooKeeper, a controller and brokers as processes on free
ports of loopback.

`cluster` is shared by the whole session: a test that uses it leaves it running, and makes topics of
its own names (`topic_name`). A test that hurts processes, or needs other configuration, makes its
own with `start_cluster`.
"""

import contextlib
import itertools
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol

import pytest
from e2e.bounded_librdkafka import bound_librdkafka
from e2e.kafka_python_leak import close_refused_sockets
from tidemark.cli.dev.cluster import Config, DevCluster
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.cli.failure import CommandError

START_SECONDS = 60.0
STOP_SECONDS = 20.0
LOG_LINES_SHOWN = 40

bound_librdkafka()  # before any test module imports the consumer


def pytest_sessionstart() -> None:
    """SIGTERM (a CI's time limit) ends the session as ^C does, so that clusters end with it."""

    def terminated(_number: int, _frame: FrameType | None) -> None:
        pytest.exit("terminated", returncode=128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)


class Cluster(DevCluster):
    """A DevCluster that knows where its doors are. `kill`, `restart`, `terminate`, `configure`,
    `pid` are inherited.
    """

    def kafka(self, broker: int = 1) -> str:
        """host:port of one broker's Kafka listener."""
        return f"{HOST}:{self.layout.member(f'broker-{broker}').ports['client']}"

    def grpc(self, broker: int = 1) -> str:
        """host:port of one broker's gRPC server."""
        return f"{HOST}:{self.layout.member(f'broker-{broker}').ports['grpc']}"

    def controller_grpc(self, controller: int = 1) -> str:
        """host:port of one controller's gRPC server."""
        return f"{HOST}:{self.layout.member(f'controller-{controller}').ports['grpc']}"

    def ops(self, name: str, path: str) -> str:
        """What a process answers at its ops port: `cluster.ops("broker-1", "/metrics")`."""
        url = f"http://{HOST}:{self.layout.member(name).ports['ops']}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read(), "utf-8")

    def log(self, name: str) -> str:
        """Everything that a process has logged."""
        return self.layout.log_path(name).read_text(encoding="utf-8", errors="replace")

    def data_directory(self, broker: int = 1) -> Path:
        """Where a broker keeps its partitions."""
        return self.layout.data_path(f"broker-{broker}")

    def end(self) -> None:
        """Stop everything, and what does not stop is killed: nothing outlives the test."""
        try:
            self.stop(STOP_SECONDS)
        finally:
            for name in self.running():
                with contextlib.suppress(CommandError):
                    self.kill(name)

    def logs_tail(self) -> str:
        """The last lines of every process, for a test's report."""
        tails = []
        for member in self.layout.members():
            with contextlib.suppress(FileNotFoundError):
                lines = self.log(member.name).splitlines()[-LOG_LINES_SHOWN:]
                tails.append(f"--- {member.name}\n" + "\n".join(lines))
        return "\n".join(tails)


@pytest.fixture(scope="session", autouse=True)
def _kafka_python_closes_its_sockets() -> Iterator[None]:
    """See kafka_python_leak.py."""
    with pytest.MonkeyPatch.context() as patch:
        close_refused_sockets(patch)
        yield


class StartCluster(Protocol):
    """Starts a cluster that ends with the test. ``overrides``: keys by process or kind
    (``broker-1``, ``broker``).
    """

    def __call__(
        self,
        *,
        brokers: int = 1,
        controllers: int = 1,
        txn_coordinators: int = 0,
        overrides: Mapping[str, Config] | None = None,
    ) -> Cluster: ...


def _started(
    directory: Path,
    brokers: int,
    controllers: int,
    overrides: Mapping[str, Config] | None,
    txn_coordinators: int = 0,
) -> Cluster:
    layout = Layout.on_free_ports(
        directory, brokers=brokers, controllers=controllers, txn_coordinators=txn_coordinators
    )
    cluster = Cluster(layout, overrides=overrides)
    try:
        cluster.start(START_SECONDS)
    except BaseException as problem:
        cluster.end()
        problem.add_note(cluster.logs_tail())
        raise
    return cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, a controller and a txn-coordinator, shared: leave them as they were."""
    shared = _started(tmp_path_factory.mktemp("cluster"), 3, 1, None, txn_coordinators=1)
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def mortal_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers with short intervals, shared. A test may stop or kill broker-2, and starts it
    again; broker-2 makes no topics by itself, broker-1 makes them with three partitions.
    """
    quick = {
        "zookeeper.session.timeout.ms": 4_000,  # a killed broker's id is free after it
        "log.cleaner.backoff.ms": 100,
        "log.retention.check.interval.ms": 100,
    }
    overrides: dict[str, Config] = {
        "broker": quick,
        "broker-1": {"num.partitions": 3},
        "broker-2": {"auto.create.topics.enable": False},
    }
    shared = _started(tmp_path_factory.mktemp("mortal"), 2, 1, overrides)
    yield shared
    shared.end()


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Clusters of the test's own, ended with it whatever it did to them."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as ending:

        def start(
            *,
            brokers: int = 1,
            controllers: int = 1,
            txn_coordinators: int = 0,
            overrides: Mapping[str, Config] | None = None,
        ) -> Cluster:
            directory = tmp_path / f"cluster-{next(numbers)}"
            own = _started(directory, brokers, controllers, overrides, txn_coordinators)
            ending.callback(own.end)
            return own

        yield start


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test of the session uses: ``topic_name("orders")``."""
    test = "".join(char if char.isalnum() else "-" for char in request.node.name)
    return lambda name: f"{test[:100]}.{name}"
