"""The processes: a broker and a controller as ``process`` of each service builds and runs them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Final, NamedTuple

from broker.config import BrokerConfig
from broker.shell.broker_service import BrokerService
from broker.shell.replication.leader_connection import LeaderConnection
from broker.shell.seams import Seams
from broker.shell.start import OpenedDirectories, load_directories
from controller.config import ControllerConfig
from controller.shell.node import ControllerNode
from tidemark.model.ids import InstantMs, WallMs
from tidemark.model.metadata import Endpoint
from tidemark.runtime.clock import Clock
from tidemark.storage.mem_disk import MemDisk

from sim.cluster.leader_connection import SimLeaderConnection
from sim.cluster.listening import SimServer
from sim.cluster.network import Host, Network
from sim.cluster.rpc import Directory, SimChannelPool, SimControllerClient, grpc_server_maker
from sim.cluster.wire_socket import connect
from sim.cluster.workers import SimWorkers
from sim.dice import Dice
from sim.loop import SimLoop
from sim.zk_adapter import SimZkSession
from sim.zookeeper import SimSession, SimZooKeeper

WALL_START_MS: Final = 1_700_000_000_000
INTERNAL: Final = "INTERNAL"
PORT: Final = 9092
STORE_OPS_MAX: Final = 2
"""One operation and the check of the epoch: every larger change takes several transactions, as
changes of hundreds of partitions do.
"""


class SimClock(Clock):
    """Clocks of a machine: the simulator's time, at the rate of that machine's quartz."""

    def __init__(self, host: Host, rate_permille: int) -> None:
        self._host = host
        self._rate_permille = rate_permille

    def now_ms(self) -> InstantMs:
        """Return the monotonic time."""
        return InstantMs(self._host.now)

    def precise_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self._host.now / 1_000

    def boot_ms(self) -> InstantMs:
        """Return the time that leases are measured with."""
        return InstantMs(self._host.now * self._rate_permille // 1_000)

    def wall_ms(self) -> WallMs:
        """Return the time for timestamps."""
        return WallMs(WALL_START_MS + self._host.now)


def new_loop(host: Host, dice: Dice) -> SimLoop:
    """Return the loop of one process."""
    loop = SimLoop(host)  # type: ignore[abstract]  # I/O is left out on purpose
    loop.failures = host.failures
    host.inside = loop.inside
    loop.thread_ms = lambda: dice.between(0, 4)
    return loop


class Timing(NamedTuple):
    """Durations of a cluster, with the proportions of production."""

    session_ms: int = 1_500
    lease_ms: int = 600
    lag_ms: int = 700
    fence_ms: int = 150
    fetch_wait_ms: int = 100
    fetch_backoff_ms: int = 50
    socket_timeout_ms: int = 400
    keepalive_ms: int = 1_500
    deserted_ms: int = 2_500


PRODUCTION: Final = Timing(9_000, 3_000, 10_000, 500, 500, 1_000, 30_000, 15_000, 20_000)
"""Timing with the defaults."""


def addresses(host: str) -> dict[str, Any]:
    """Return the addresses of the broker on a host, as configuration."""
    return {"listeners": (f"{INTERNAL}://{host}:{PORT}",), "node": host}


@cache
def broker_config(number: int, timing: Timing) -> BrokerConfig:
    """Return the configuration of one broker."""
    return BrokerConfig(
        broker_id=number,
        **addresses(f"b{number}"),
        replica_lag_time_max_ms=timing.lag_ms,
        replica_fetch_wait_max_ms=timing.fetch_wait_ms,
        replica_fetch_backoff_ms=timing.fetch_backoff_ms,
        replica_socket_timeout_ms=timing.socket_timeout_ms,
        lease_ms=timing.lease_ms,
        zookeeper_session_timeout_ms=timing.session_ms,
        log_flush_interval_ms=200,
        log_flush_offset_checkpoint_interval_ms=300,
        log_cleaner_backoff_ms=100,
        controlled_shutdown_deadline_ms=1_000,
        shutdown_deadline_ms=3_000,
    )


@cache
def controller_config(number: int, timing: Timing) -> ControllerConfig:
    """Return the configuration of one controller."""
    return ControllerConfig(
        controller_id=number,
        lease_ms=timing.lease_ms,
        zookeeper_session_timeout_ms=timing.session_ms,
        feed_lost_fence_ms=timing.fence_ms,
        feed_deserted_resign_ms=timing.deserted_ms,
        auto_leader_rebalance_enable=False,
    )


class ControllerProcess:
    """Process of one replica of the controller, from start to end."""

    def __init__(
        self, host: Host, zookeeper: SimZooKeeper, dice: Dice, number: int, timing: Timing
    ) -> None:
        self.host = host
        host.begin()
        self.loop = new_loop(host, dice)
        self.session: SimSession = zookeeper.connect(host.name, timeout_ms=timing.session_ms)
        clock = SimClock(host, 1_000)
        self.node = ControllerNode(
            controller_config(number, timing),
            SimZkSession(self.session),
            clock,
            store_ops_max=STORE_OPS_MAX,
        )
        self.node.election.grpc_endpoint = f"{host.name}:1"
        self.task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        await self.node.run(asyncio.Event())

    def kill(self, network: Network, *, is_silent: bool = False) -> None:
        """Kill it (kill -9); silently, together with the machine."""
        self.session.kill()
        network.process_ended(self.host, is_silent=is_silent)
        self.host.end()


class BrokerProcess:
    """Process of one broker, from start to end."""

    def __init__(
        self,
        host: Host,
        directory: Directory,
        zookeeper: SimZooKeeper,
        disks: Sequence[MemDisk],
        config: BrokerConfig,
        *,
        memory: MemDisk,
        dice: Dice,
        boot_id: str,
        directory_ids: Sequence[str],
        rate_permille: int,
        servers: Callable[[str], SimServer | None],
    ) -> None:
        """``servers`` returns the listener on a host. Raises StampError, DiskError."""
        self.host = host
        self._network = directory.network
        self._servers = servers
        clock = SimClock(host, rate_permille)
        names = [f"/disk-{number}" for number in range(len(disks))]
        directories = load_directories(
            config,
            dict(zip(names, disks, strict=True)),
            memory=memory,
            boot_id=boot_id,
            clock=clock,
            jitter=lambda maximum: dice.between(0, maximum),
            new_directory_ids=dict(zip(names, directory_ids, strict=True)),
        )
        host.begin()
        self.loop = new_loop(host, dice)
        self.loop.listen = self._listen
        self.session = zookeeper.connect(host.name, timeout_ms=config.zookeeper_session_timeout_ms)
        session = SimZkSession(self.session)
        self.server: SimServer | None = None
        self.services: dict[str, Any] = {}
        chance = random.Random(dice.throws(1)[0])
        seams = Seams(
            clock=clock,
            dice=chance,
            session=session,
            controller=SimControllerClient(session, directory, host, chance.random),
            channels=SimChannelPool(directory, host),
            connect_leader=self._connect,
            make_grpc_server=grpc_server_maker(f"{host.name}:2", self.services),
            make_workers=partial(SimWorkers, told_after_ms=lambda: dice.between(0, 4)),
            make_threads=ThreadPoolExecutor,  # never used: the loop does the work of threads
            opener=lambda disk: lambda: disk,
            after_load=lambda: None,
        )
        self.is_stopping = asyncio.Event()
        self.loop.inside(lambda: self._build(config, directories, seams))
        self.task = self.loop.create_task(self._run())

    def _build(self, config: BrokerConfig, directories: OpenedDirectories, seams: Seams) -> None:
        self.service = BrokerService(config, directories, seams)
        self.broker = self.service.server
        self.keeper = self.service.keeper

    async def _run(self) -> None:
        """Run as the service's ``process`` does."""
        try:
            await self.service.run(self.is_stopping)
        finally:
            await self.service.close()

    @property
    def has_joined(self) -> bool:
        """True if it is registered, and its feed has the registration."""
        shown = self.broker.metadata.image.brokers.get(self.broker.facts.broker_id)
        return (
            shown is not None
            and not shown.fenced
            and shown.broker_epoch == self.broker.cluster.registration.broker_epoch
        )

    def _listen(self, make_protocol: Callable[[], Any], port: int) -> SimServer:
        self.server = SimServer(self.host, self.loop, make_protocol, port)
        return self.server

    async def _connect(
        self, leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> LeaderConnection:
        host, network = leader.host, self._network
        async with asyncio.timeout(timeout_s):
            sock = await connect(
                network, self.host, network.hosts[host], lambda: self._servers(host)
            )
        return SimLeaderConnection(sock, client_id=client_id, answer_bytes_max=answer_bytes_max)

    def kill(self, network: Network, *, is_silent: bool = False) -> None:
        """Kill it (kill -9); silently, together with the machine."""
        self.session.kill()
        network.process_ended(self.host, is_silent=is_silent)
        self.host.end()
