"""A cluster whose every process is in a network namespace of its own: ZooKeeper, two controllers,
three brokers. Tests talk to it from the namespace ``client``.
"""

import itertools
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from e2e.kafka_wire import Wire, batch, end_of
from e2e.netns import Names, Network, network
from tidemark.cli.dev.zookeeper import find_jars, find_java
from waiting import PATIENCE_S, wait_for

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
CONTROLLERS: Final = ("controller-1", "controller-2")
ZOOKEEPER: Final = "zookeeper"
CLIENT: Final = "client"
NAMES: Final = (ZOOKEEPER, *CONTROLLERS, *BROKERS, CLIENT)

SESSION_MS: Final = 2_000
LEASE_MS: Final = 2_000
LAG_MS: Final = 1_500
KAFKA_PORT, GRPC_PORT, HTTP_PORT, ZOOKEEPER_PORT = 9_092, 9_292, 8_080, 2_181
ACKS_ALL: Final = -1

READY_S: Final = PATIENCE_S
QUIET_S: Final = 1.5
STOP_S: Final = PATIENCE_S
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class _RemoteWire(Wire):
    """A Wire to an address that is not loopback's."""

    def __init__(self, host: str, timeout_s: float) -> None:
        self.socket = socket.create_connection((host, KAFKA_PORT), timeout_s)
        self._numbers = itertools.count(1)
        self._buffer = bytearray()


class Member:
    """One process in its namespace."""

    def __init__(self, net: Network, name: str, argv: Sequence[str], directory: Path) -> None:
        self.name = name
        self.address = net.address(name)
        self.log_path = directory / f"{name}.log"
        self._argv = net.argv(name, argv)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def number(self) -> int:
        """Of broker-2, 2."""
        return int(self.name.rpartition("-")[2])

    def start(self) -> None:
        """Start it; nothing is waited for."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 while nobody answers."""
        try:
            with _DIRECT.open(f"http://{self.address}:{HTTP_PORT}{path}", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def log_tail(self) -> str:
        """Its last lines."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return f"--- {self.name}\n{text[-3_000:]}"


class Broker(Member):
    """A broker: what a client sees of it."""

    def __init__(self, net: Network, name: str, keeping: Sequence[str], directory: Path) -> None:
        self.data = directory / f"data-{name}"
        address = net.address(name)
        argv = [sys.executable, "-P", "-m", "broker", "--broker.id", name[-1], "--node", name]
        argv += [*keeping, "--log.format", "json"]
        argv += ["--listeners", f"CLIENT://{address}:{KAFKA_PORT}"]
        argv += [
            "--grpc.listen",
            f"{address}:{GRPC_PORT}",
            "--ops.listen",
            f"{address}:{HTTP_PORT}",
        ]
        argv += ["--replica.lag.time.max.ms", str(LAG_MS), "--replica.fetch.backoff.ms", "200"]
        argv += ["--replica.socket.timeout.ms", "2000", "--log.dirs", str(self.data)]
        super().__init__(net, name, argv, directory)

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients connect."""
        return f"{self.address}:{KAFKA_PORT}"

    def wire(self, timeout_s: float = PATIENCE_S) -> Wire:
        """A bare connection."""
        return _RemoteWire(self.address, timeout_s)

    def log_bytes(self, topic: str) -> bytes:
        """What is on disk of its replica of partition 0."""
        segments = sorted((self.data / f"{topic}-0").glob("*.log"))
        return b"".join(segment.read_bytes() for segment in segments)


class Controller(Member):
    """A controller replica: what its REST door says."""

    def __init__(self, net: Network, name: str, keeping: Sequence[str], directory: Path) -> None:
        address = net.address(name)
        argv = [sys.executable, "-P", "-m", "controller", "--controller.id", name[-1]]
        argv += [*keeping, "--log.format", "json"]
        # A leader changes only by what a test does.
        argv += ["--auto.leader.rebalance.enable", "false"]
        argv += ["--grpc.listen", f"{address}:{GRPC_PORT}"]
        argv += ["--rest.listen", f"{address}:{HTTP_PORT}", "--rest.private.network", "true"]
        super().__init__(net, name, argv, directory)

    @property
    def grpc(self) -> str:
        """Where it serves brokers."""
        return f"{self.address}:{GRPC_PORT}"

    def cluster(self) -> dict[str, Any]:
        """What GET /v3/clusters says of this replica."""
        status, body = self.http("/v3/clusters")
        return dict(json.loads(body)["data"][0]) if status == 200 else {}

    @property
    def is_active(self) -> bool:
        """Whether it says that it is the active controller."""
        return bool(self.cluster().get("active"))


class Cluster:
    """All of it. ``net`` cuts and heals."""

    def __init__(self, net: Network, directory: Path, *, session_ms: int, lease_ms: int) -> None:
        keeping = ["--zookeeper.connect", f"{net.address(ZOOKEEPER)}:{ZOOKEEPER_PORT}"]
        keeping += ["--zookeeper.session.timeout.ms", str(session_ms), "--lease.ms", str(lease_ms)]
        self.net = net
        self.zookeeper = Member(net, ZOOKEEPER, _zookeeper_argv(net, directory), directory)
        self.controllers = [Controller(net, name, keeping, directory) for name in CONTROLLERS]
        self.brokers = [Broker(net, name, keeping, directory) for name in BROKERS]
        self.topics: list[Topic] = []
        self.cutting_at = self.cut_at = 0.0

    @property
    def members(self) -> list[Member]:
        """In the order in which they start."""
        return [self.zookeeper, *self.controllers, *self.brokers]

    @property
    def bootstrap(self) -> str:
        """Of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, number: int) -> Broker:
        """By its id."""
        return self.brokers[number - 1]

    def others(self, *numbers: int) -> list[Broker]:
        """All brokers but these."""
        return [broker for broker in self.brokers if broker.number not in numbers]

    def active(self) -> Controller | None:
        """The controller that says it is active, where exactly one does."""
        active = [one for one in self.controllers if one.is_active]
        return active[0] if len(active) == 1 else None

    def cut(self, *pairs: tuple[Names, Names], one_way: bool = False) -> float:
        """Cut between them, or from the first of each pair to the second; the instant after. One
        after the other, which takes its time.
        """
        self.cutting_at = time.monotonic()
        for one, other in pairs:
            if one_way:
                self.net.cut_one_way(one, other)
            else:
                self.net.cut(one, other)
        self.cut_at = time.monotonic()
        return self.cut_at

    def since_cut(self) -> float:
        """Seconds, from when everything was cut."""
        return time.monotonic() - self.cut_at

    def since_first_cut(self) -> float:
        """Seconds, from before anything was cut."""
        return time.monotonic() - self.cutting_at

    def problem(self) -> str | None:
        """What is not as it is in a cluster that nobody has hurt; None when all is."""
        if self.active() is None:
            return f"controllers: {[one.cluster() for one in self.controllers]}"
        for broker in self.brokers:
            if broker.http("/readyz")[0] != 200:
                return f"{broker.name} is not ready"
            try:
                with broker.wire() as wire:
                    seen = wire.metadata(*(topic.name for topic in self.topics))
            except OSError as failure:
                return f"{broker.name}: {failure}"
            if len(seen.brokers) != len(self.brokers):
                return f"{broker.name} sees {len(seen.brokers)} brokers"
            hurt = [
                one.topic
                for one in seen.topics
                if not one.partitions or len(one.partitions[0].isr) < len(BROKERS)
            ]
            if hurt:
                return f"{broker.name} sees out of sync: {hurt}"
        return None

    def wait_whole(self) -> None:
        """Until nothing is amiss."""
        wait_for(lambda: self.problem() is None, self._story)

    def settle(self) -> None:
        """Until nothing is left of earlier cuts. Connections that broke meanwhile may still be
        found to be broken, and brokers be fenced for that: whole is who stays so.
        """
        quiet_at = time.monotonic()
        deadline = quiet_at + READY_S
        while time.monotonic() < quiet_at + QUIET_S:
            if self.problem() is not None:
                quiet_at = time.monotonic()
                assert quiet_at < deadline, self._story()
            time.sleep(0.1)

    def heal(self) -> None:
        """End all cuts, and wait until the cluster is whole."""
        self.net.heal()
        self.wait_whole()

    def _story(self) -> str:
        return "\n".join([str(self.problem()), *(one.log_tail() for one in self.members)])

    def topic(self, name: str, replicas: Sequence[int] = (1, 2, 3), *, min_isr: int = 2) -> "Topic":
        """A topic of one partition, led by the first of ``replicas``, with all in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        # Bare batches carry an old timestamp: time must not remove them.
        config = {"min.insync.replicas": str(min_isr), "retention.ms": "-1"}
        new = NewTopic(name, num_partitions=1, replica_assignment=[list(replicas)], config=config)
        admin.create_topics([new])[name].result(PATIENCE_S)
        made = Topic(self, name)
        self.topics.append(made)
        self.wait_whole()
        return made


class Topic:
    """One topic of one partition, as clients see it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def state(self, witness: Broker) -> Any:
        """The partition as one broker describes it."""
        with witness.wire() as wire:
            return wire.metadata(self.name).topics[0].partitions[0]

    def wait_isr(self, witness: Broker, *members: int) -> None:
        """Until a broker says that the ISR is this one."""
        wait_for(
            lambda: sorted(self.state(witness).isr) == sorted(members),
            lambda: f"{self.name}: wanted ISR {members}: {self.state(witness)}",
        )

    def wait_leader(self, witness: Broker, *candidates: int) -> Any:
        """Until a broker says that one of these leads; the state that it showed."""
        wait_for(
            lambda: self.state(witness).leader_id in candidates,
            lambda: f"{self.name}: wanted leader {candidates}: {self.state(witness)}",
        )
        return self.state(witness)

    def produce(self, broker: Broker, value: bytes, *, acks: int, timeout_ms: int = 60_000) -> int:
        """One record to one broker; the error code."""
        with broker.wire() as wire:
            answer = wire.produce(
                self.name, batch(value), version=10, acks=acks, timeout_ms=timeout_ms
            )
        return answer.error_code

    def end(self, broker: Broker) -> int:
        """Where consumers' reading ends: the high watermark."""
        with broker.wire() as wire:
            return end_of(wire, self.name)

    def wait_logs_agree(self) -> None:
        """Until all replicas are the same, byte by byte."""
        wait_for(
            lambda: len({broker.log_bytes(self.name) for broker in self.cluster.brokers}) == 1,
            lambda: (
                f"{self.name}: {[len(one.log_bytes(self.name)) for one in self.cluster.brokers]}"
            ),
        )


def _zookeeper_argv(net: Network, directory: Path) -> list[str]:
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime=500\ndataDir={directory / 'zookeeper-data'}\nclientPort={ZOOKEEPER_PORT}\n"
        f"clientPortAddress={net.address(ZOOKEEPER)}\nmaxClientCnxns=0\n"
        "minSessionTimeout=1000\nmaxSessionTimeout=60000\n"
        # A test's data need not outlive the machine.
        "forceSync=no\n",
        encoding="utf-8",
    )
    argv = [find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    argv += ["-Dzookeeper.admin.enableServer=false", "-cp", f"{find_jars()}/*"]
    return [*argv, "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]


@contextmanager
def cut_cluster(
    directory: Path, *, session_ms: int = SESSION_MS, lease_ms: int = LEASE_MS
) -> Iterator[Cluster]:
    """A whole cluster, seen from the client's namespace; all ended with the block."""
    with ExitStack() as ending:
        net = ending.enter_context(network(NAMES))
        cluster = Cluster(net, directory, session_ms=session_ms, lease_ms=lease_ms)
        ending.enter_context(net.inside(CLIENT))
        for member in cluster.members:
            ending.callback(member.kill)
        for member in cluster.members:
            member.start()
        try:
            cluster.wait_whole()
        except BaseException as problem:
            problem.add_note("\n".join(member.log_tail() for member in cluster.members))
            raise
        yield cluster
