"""Supervisor of a broker: the process that waits for the broker's end and records it."""

import contextlib
from typing import TYPE_CHECKING

from tidemark.runtime import witness
from tidemark.runtime.zk_session import ZkError, ZkSession

from sim.cluster.network import Host
from sim.cluster.processes import BrokerProcess, new_loop
from sim.zk_adapter import SimZkSession

if TYPE_CHECKING:
    from sim.cluster.world import World


async def record_end(session: ZkSession, left: witness.ProcessZnodes) -> bool:
    """Record the end of a process; return False if there is nothing to record."""
    try:
        await session.multi(witness.recording(left))
    except witness.MOOT:
        return False
    return True


class Supervisor:
    """Parent of one broker process on the same machine. It acts when that process has ended."""

    def __init__(self, world: "World", host: Host, process: BrokerProcess) -> None:
        self._world = world
        self._machine = host.name
        self._left = process.service.znodes
        self._host = Host(world.network.schedule, host.name, host.failures)
        self._is_killed = False
        world.after(world.dice.pick((0, 5, 20, 300)), self._begin)

    def _begin(self) -> None:
        """Connect to ZooKeeper, as a process beside the next one of the machine."""
        if self._is_killed:
            return
        world, host = self._world, self._host
        host.begin()
        loop = new_loop(host, world.dice)
        self._sim = world.zookeeper.connect(host.name)
        loop.create_task(self._record(SimZkSession(self._sim)))

    async def _record(self, session: SimZkSession) -> None:
        with contextlib.suppress(ZkError):
            await session.start()
            if await record_end(session, self._left):
                self._world.note(self._machine, "its end is recorded")
            await session.stop()

    def kill(self) -> None:
        """End with the machine."""
        self._is_killed = True
        if self._host.is_up:
            self._sim.kill()
            self._host.end()
