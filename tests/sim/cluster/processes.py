"""The processes: a broker's and a controller's object graph as their ``__main__`` make them."""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from broker.config import BrokerConfig
from broker.shell.apis import make_router
from broker.shell.hosting import Hosting
from broker.shell.isr_sender import IsrSender
from broker.shell.lease_keeper import LeaseKeeper
from broker.shell.maintenance import Maintenance
from broker.shell.membership import Announcement, Membership
from broker.shell.node import BrokerNode
from broker.shell.replication.leader_connection import LeaderConnection
from broker.shell.replication.manager import ReplicationManager
from broker.shell.shutdown import hand_over
from broker.shell.start import directory_id as directory_id_of
from broker.storage.log_manager import LogManager
from controller.config import ControllerConfig
from controller.shell.node import ControllerNode
from tidemark.model.ids import InstantMs, WallMs
from tidemark.model.metadata import Endpoint
from tidemark.model.topic_configs import topic_config
from tidemark.runtime.clock import Clock
from tidemark.storage.mem_disk import MemDisk

from sim.cluster.network import Host, Network, Wire
from sim.cluster.rpc import Directory, SimControllerClient
from sim.cluster.server_connection import ServerConnection, SimListener
from sim.cluster.wire_socket import connect
from sim.dice import Dice
from sim.loop import SimLoop
from sim.zk_adapter import SimZkSession
from sim.zookeeper import SimSession, SimZooKeeper

WALL_START_MS: Final = 1_700_000_000_000
INTERNAL: Final = "INTERNAL"
PORT: Final = 9092


class SimClock(Clock):
    """A machine's clocks: the simulator's, at the rate of that machine's quartz."""

    def __init__(self, host: Host, rate_permille: int) -> None:
        self._host = host
        self._rate_permille = rate_permille

    def now_ms(self) -> InstantMs:
        """Monotonic."""
        return InstantMs(self._host.now)

    def boot_ms(self) -> InstantMs:
        """What leases are measured with."""
        return InstantMs(self._host.now * self._rate_permille // 1_000)

    def wall_ms(self) -> WallMs:
        """For timestamps."""
        return WallMs(WALL_START_MS + self._host.now)


def new_loop(host: Host, dice: Dice) -> SimLoop:
    """One for each process."""
    loop = SimLoop(host)  # type: ignore[abstract]  # I/O is left out on purpose
    host.inside = loop.inside
    loop.thread_ms = lambda: dice.between(0, 4)
    return loop


class Timing(NamedTuple):
    """How long everything takes; the proportions are those of production."""

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
"""The defaults."""


@cache
def broker_config(number: int, timing: Timing) -> BrokerConfig:
    """Of one broker."""
    return BrokerConfig(
        broker_id=number,
        replica_lag_time_max_ms=timing.lag_ms,
        replica_fetch_wait_max_ms=timing.fetch_wait_ms,
        replica_fetch_backoff_ms=timing.fetch_backoff_ms,
        replica_socket_timeout_ms=timing.socket_timeout_ms,
        lease_ms=timing.lease_ms,
        zookeeper_session_timeout_ms=timing.session_ms,
        log_flush_interval_ms=200,
        log_flush_offset_checkpoint_interval_ms=300,
        controlled_shutdown_deadline_ms=1_000,
        shutdown_deadline_ms=3_000,
    )


@cache
def controller_config(number: int, timing: Timing) -> ControllerConfig:
    """Of one controller."""
    return ControllerConfig(
        controller_id=number,
        lease_ms=timing.lease_ms,
        zookeeper_session_timeout_ms=timing.session_ms,
        feed_lost_fence_ms=timing.fence_ms,
        feed_deserted_resign_ms=timing.deserted_ms,
        auto_leader_rebalance_enable=False,
    )


class ControllerProcess:
    """One replica of the controller, from start to end."""

    def __init__(
        self, host: Host, zookeeper: SimZooKeeper, dice: Dice, number: int, timing: Timing
    ) -> None:
        self.host = host
        host.begin()
        self.loop = new_loop(host, dice)
        self.session: SimSession = zookeeper.connect(host.name, timeout_ms=timing.session_ms)
        clock = SimClock(host, 1_000)
        self.node = ControllerNode(
            controller_config(number, timing), SimZkSession(self.session), clock
        )
        self.node.election.grpc_endpoint = f"{host.name}:1"
        self.task = self.loop.create_task(self._run())

    async def _run(self) -> None:
        await self.node.run(asyncio.Event())

    def kill(self, network: Network, *, is_silent: bool = False) -> None:
        """kill -9; or, silently, with the machine."""
        self.session.kill()
        network.process_ended(self.host, is_silent=is_silent)
        self.host.end()


class BrokerProcess:
    """One broker's process, from start to end."""

    config = staticmethod(broker_config)

    def __init__(
        self,
        host: Host,
        directory: Directory,
        zookeeper: SimZooKeeper,
        disk: MemDisk,
        *,
        dice: Dice,
        number: int,
        boot_id: str,
        directory_id: str,
        rate_permille: int,
        timing: Timing,
        brokers: Callable[[str], "BrokerProcess | None"],
    ) -> None:
        """Raises StampError, DiskError."""
        self.host = host
        self.disk = disk
        self._directory = directory
        self._brokers = brokers
        config = self.config(number, timing)
        clock = SimClock(host, rate_permille)
        self.manager = LogManager.open(
            disk,
            cluster_id=None,
            broker_id=number,
            directory_id=directory_id,
            boot_id=boot_id,
            now_ms=clock.wall_ms(),
            config_of=lambda _: _DEFAULTS,
        )
        self.manager.flush_interval_ms = config.log_flush_interval_ms
        host.begin()
        self.loop = new_loop(host, dice)
        self.session = zookeeper.connect(host.name, timeout_ms=timing.session_ms)
        session = SimZkSession(self.session)
        client = SimControllerClient(session, directory, host)
        self.node = BrokerNode(
            config,
            (self.manager,),
            clock=clock,
            controller=client,
            producer_ids=None,  # type: ignore[arg-type]  # nobody asks for one
            workers=None,  # type: ignore[arg-type]  # no batch needs one
            draw_session_id=lambda: dice.between(1, 2**31 - 1),
        )
        self.replication = ReplicationManager(self.node, self._connect)
        self.node.on_replica_synced = self.replication.synced
        self.isr_sender = IsrSender(self.node)
        self.hosting = Hosting(self.node, self.replication)
        self.maintenance = Maintenance(self.node, self.hosting)
        self.membership = Membership(
            self.node,
            session,
            client,
            Announcement(
                endpoints=(Endpoint(INTERNAL, host.name, PORT),),
                grpc_endpoint=f"{host.name}:2",
                rack="",
                machine=host.name,
                boot_id=boot_id,
                log_dir_ids=[directory_id_of(self.manager.stamp.directory_id)],
                clean_stop=self.manager.clean_start,
                previous_broker_epoch=self.manager.previous_broker_epoch,
            ),
            incarnation_id=bytes(dice.throws(1)[0].to_bytes(8, "big")),
            cluster_id=self.manager.stamp.cluster_id,
        )
        self.membership.on_joined = self.manager.join_cluster
        self.keeper = LeaseKeeper(
            session, clock, lease_ms=config.lease_ms, on_gone=self.membership.rejoin
        )
        self.membership.on_live = self.keeper.made
        self.node.has_lease = self.keeper.holds
        self._router = make_router(self.node)
        self._listener = SimListener(INTERNAL, self.loop)
        self.has_image = False
        self.is_stopping = asyncio.Event()
        self.services: Mapping[str, Any] = {}
        self.connections: list[ServerConnection] = []
        self._equip()
        self.task = self.loop.create_task(self._serve())

    def _equip(self) -> None:
        """What else a broker has."""

    def _close_listeners(self) -> None:
        """Nobody is served any more."""

    def _duties(self, _tasks: asyncio.TaskGroup) -> "list[asyncio.Task[None]]":
        """What else it does, until it stops."""
        return []

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            loops = [
                *self.maintenance.start(tasks),
                tasks.create_task(self.isr_sender.run()),
                tasks.create_task(self.membership.run(self._take_image)),
                tasks.create_task(self.keeper.run()),
                *self._duties(tasks),
            ]
            drained = asyncio.Event()
            tasks.create_task(self.replication.run(drained))
            await self.is_stopping.wait()
            await hand_over(self.node, deadline_ms=1_000)
            drained.set()
            self.node.parked.wake_all()
            await asyncio.sleep(0)
            self._close_listeners()
            for one in loops:
                one.cancel()
        marks = {
            hosted.topic_partition: hosted.partition.high_watermark
            for hosted in self.node.hosted.values()
        }
        if self.manager.fenced is None:
            self.manager.checkpoint(marks)
        self.manager.close(clean=self.manager.fenced is None, broker_epoch=self.node.broker_epoch)
        self.session.stop()

    def _take_image(self, image: object, delta: object) -> None:
        self.hosting.on_image(image, delta)  # type: ignore[arg-type]
        self.has_image = True

    @property
    def has_joined(self) -> bool:
        """Whether it is registered, and knows it by the feed."""
        shown = self.node.image.brokers.get(self.node.broker_id)
        return (
            self.has_image
            and shown is not None
            and not shown.fenced
            and shown.broker_epoch == self.node.broker_epoch
        )

    def accept(self, wire: Wire, to_client: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """A client or a follower connects."""
        connection = ServerConnection(
            wire, self.host, self._listener, self._router, to_client=to_client
        )
        self.connections.append(connection)
        return connection.frame

    async def _connect(
        self, host: str, port: int, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> LeaderConnection:
        del port
        network = self._directory.network
        async with asyncio.timeout(timeout_s):
            sock = await connect(
                network, self.host, network.hosts[host], lambda: self._brokers(host)
            )
        return LeaderConnection(
            sock,  # type: ignore[arg-type]
            client_id=client_id,
            answer_bytes_max=answer_bytes_max,
        )

    def kill(self, network: Network, *, is_silent: bool = False) -> None:
        """kill -9; or, silently, with the machine."""
        self.session.kill()
        network.process_ended(self.host, is_silent=is_silent)
        self.host.end()


_DEFAULTS: Final = topic_config({})
