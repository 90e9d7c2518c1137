"""Process of one replica of a coordinator service, from start to end."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator.node import CoordinatorNode
from tidemark.runtime.coordinator_session import CoordinatorSession

from sim.cluster.network import Host, Network
from sim.cluster.processes import SimClock, Timing, new_loop
from sim.cluster.rpc import Directory, SimChannelPool, SimControllerClient
from sim.dice import Dice
from sim.zk_adapter import SimZkSession
from sim.zookeeper import SimSession, SimZooKeeper


class CoordinatorProcess:
    """A process. Subclasses make the node and its gRPC service."""

    kind: ClassVar[str]
    """Kind of its shards."""

    def __init__(
        self,
        host: Host,
        directory: Directory,
        zookeeper: SimZooKeeper,
        dice: Dice,
        number: int,
        timing: Timing,
    ) -> None:
        self.host = host
        host.begin()
        self.loop = new_loop(host, dice)
        self.session: SimSession = zookeeper.connect(host.name, timeout_ms=timing.session_ms)
        zk = SimZkSession(self.session)
        chance = random.Random(dice.throws(1)[0]).random
        clock, channels = SimClock(host, 1_000), SimChannelPool(directory, host)
        self.node = self.make_node(number, timing, clock, channels, chance)
        self.member = CoordinatorSession(
            zk,
            SimControllerClient(zk, directory, host, chance),
            kind=self.kind,
            coordinator_id=number,
            grpc_endpoint=f"{host.name}:3",
            incarnation_id=bytes(dice.throws(1)[0].to_bytes(8, "big")),
        )
        self.services = self.make_services()
        self.is_stopping = asyncio.Event()
        self.task = self.loop.create_task(self._run())

    def make_node(
        self,
        number: int,
        timing: Timing,
        clock: Clock,
        channels: SimChannelPool,
        chance: Callable[[], float],
    ) -> CoordinatorNode[Any]:
        """Return the object graph of the replica."""
        raise NotImplementedError

    def make_services(self) -> Mapping[str, Any]:
        """Return the servicers of the node, by the full name of their service."""
        raise NotImplementedError

    async def _run(self) -> None:
        await self.node.run(self.member, self.is_stopping)
        self.session.stop()

    def kill(self, network: Network) -> None:
        """Kill it (kill -9)."""
        self.session.kill()
        network.process_ended(self.host, is_silent=False)
        self.host.end()
