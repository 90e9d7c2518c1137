"""Real clusters as processes on free ports of loopback, and the fixtures that start them."""

import contextlib
import itertools
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from e2e import passes
from e2e.bounded_librdkafka import bound_librdkafka
from e2e.shared_zookeeper import with_shared_zookeeper
from tidemark.cli.dev.cluster import Config, DevCluster
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.cli.failure import CommandError
from waiting import PATIENCE_S

START_SECONDS = PATIENCE_S
STOP_SECONDS = PATIENCE_S
PATIENT = dict.fromkeys(("up", "down"), ("--timeout", f"{PATIENCE_S:g}"))
"""Options of commands of ``tidemark dev`` that wait."""
LOG_LINES_SHOWN = 40

bound_librdkafka()  # before any test module imports the consumer


class Cluster(DevCluster):
    """A DevCluster that knows where its doors are. `kill`, `restart`, `terminate`, `configure`,
    `pid` are inherited. Topics have one replica unless a test asks for more.
    """

    def __init__(self, layout: Layout, *, overrides: Mapping[str, Config] | None = None) -> None:
        given = passes.beneath(overrides or {})
        controller = {"default.replication.factor": 1, **given.get("controller", {})}
        super().__init__(layout, overrides={**given, "controller": controller})

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
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read(), "utf-8")

    def log(self, name: str) -> str:
        """Everything that a process has logged."""
        return self.layout.log_path(name).read_text(encoding="utf-8", errors="replace")

    def data_directory(self, broker: int = 1) -> Path:
        """Where a broker keeps its partitions."""
        return self.layout.data_path(f"broker-{broker}")

    def start(self, timeout_seconds: float = START_SECONDS) -> list[str]:
        """Start what does not run, and wait until everything is well."""
        return super().start(timeout_seconds)

    def terminate(self, name: str, timeout_seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM, and wait; False when it had to be killed."""
        return super().terminate(name, timeout_seconds)

    def restart(self, name: str, timeout_seconds: float = START_SECONDS) -> None:
        """Start a process again and wait for it; one that still runs is stopped first."""
        super().restart(name, timeout_seconds)

    def wait_healthy(self, timeout_seconds: float = START_SECONDS) -> None:
        """Until every process says that it is well."""
        super().wait_healthy(timeout_seconds)

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
        share_coordinators: int = 0,
        overrides: Mapping[str, Config] | None = None,
        has_own_zookeeper: bool = False,
    ) -> Cluster: ...


def started_cluster(
    directory: Path,
    *,
    brokers: int = 1,
    controllers: int = 1,
    txn_coordinators: int = 0,
    share_coordinators: int = 0,
    has_prometheus: bool = False,
    overrides: Mapping[str, Config] | None = None,
    has_own_zookeeper: bool = False,
) -> Cluster:
    """A cluster that is well; the caller ends it. ``has_own_zookeeper``: ZooKeeper is one of its
    processes, which a test may hurt.
    """
    layout = Layout.on_free_ports(
        directory,
        brokers=brokers,
        controllers=controllers,
        txn_coordinators=txn_coordinators,
        share_coordinators=share_coordinators,
        has_prometheus=has_prometheus,
    )
    if not has_own_zookeeper:
        layout = with_shared_zookeeper(layout)
    cluster = Cluster(layout, overrides=overrides)
    try:
        cluster.start(START_SECONDS)
    except BaseException as problem:
        cluster.end()
        problem.add_note(cluster.logs_tail())
        raise
    return cluster


@pytest.fixture
def cluster_defaults() -> Mapping[str, Config]:
    """Configuration of every cluster that ``start_cluster`` starts; a folder may have its own."""
    return {}


@pytest.fixture
def start_cluster(tmp_path: Path, cluster_defaults: Mapping[str, Config]) -> Iterator[StartCluster]:
    """Clusters of the test's own, ended with it whatever it did to them."""
    numbers = itertools.count(1)
    with contextlib.ExitStack() as ending:

        def start(
            *,
            brokers: int = 1,
            controllers: int = 1,
            txn_coordinators: int = 0,
            share_coordinators: int = 0,
            overrides: Mapping[str, Config] | None = None,
            has_own_zookeeper: bool = False,
        ) -> Cluster:
            own = started_cluster(
                tmp_path / f"cluster-{next(numbers)}",
                brokers=brokers,
                controllers=controllers,
                txn_coordinators=txn_coordinators,
                share_coordinators=share_coordinators,
                overrides={**cluster_defaults, **(overrides or {})},
                has_own_zookeeper=has_own_zookeeper,
            )
            ending.callback(own.end)
            return own

        yield start


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that nothing else of the session uses: ``topic_name("orders")``."""
    test = "".join(char if char.isalnum() else "-" for char in request.node.name)
    unique = uuid.uuid4().hex[:6]
    return lambda name: f"{test[:80]}.{unique}.{name}"
