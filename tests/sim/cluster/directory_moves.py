"""Moves of replicas between the log directories of a broker, as an operator requests them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.storage.log import Log
from tidemark.model.errors import ErrorCode

from sim.checkers import require
from sim.cluster.faults import up

if TYPE_CHECKING:
    from broker.shell.partitions.hosted import HostedPartition

    from sim.cluster.parts import Machine
    from sim.cluster.processes import BrokerProcess
    from sim.cluster.world import World

LOOKS_MS: Final = 3_000
"""Longest time for which a move is watched."""


def move_directory(world: "World") -> None:
    """Move a replica to a log directory of its broker: mostly the other one, sometimes that in
    which it is, which calls off a move.
    """
    machine = up(world)
    if machine is None or machine.process is None or len(machine.disks) == 1:
        return
    topic = world.dice.pick(world.topics)
    at = world.dice.between(0, len(machine.disks) - 1)
    process = machine.process
    hosted = process.broker.partitions.table.by_name.get(topic.place)
    path = f"/disk-{at}"
    answers: list[ErrorCode] = []
    moves = process.broker.replication.moves
    process.loop.inside(lambda: answers.append(moves.alter(path, *topic.place)))
    world.note(machine.host.name, f"is to have it on disk {at}: {answers[0].name}", topic)
    if hosted is not None and hosted.move is not None:
        _Watch(world, machine, process, hosted).look()


class _Watch:
    """Looks for the change of places, and at the log that is there then."""

    def __init__(
        self,
        world: "World",
        machine: "Machine",
        process: "BrokerProcess",
        hosted: "HostedPartition",
    ) -> None:
        self._world = world
        self._machine = machine
        self._process = process
        self._hosted = hosted
        self._log: Log = hosted.log
        self._deadline = world.now + LOOKS_MS

    def look(self) -> None:
        """Look now, and again unless all is over."""
        table = self._process.broker.partitions.table
        is_there = table.by_name.get(self._hosted.topic_partition) is self._hosted
        if self._machine.process is not self._process or not is_there:
            return
        if self._hosted.log is not self._log:
            self._moved()
        elif self._world.now < self._deadline:
            self._world.after(3, self.look)

    def _moved(self) -> None:
        hosted, world = self._hosted, self._world
        world.note(self._machine.host.name, "has it in the other directory", world.topic_of(hosted))
        homes = [
            manager
            for manager in self._process.broker.partitions.disks.log_managers
            if manager.logs.get(hosted.topic_partition) is not None
        ]
        require(homes == [hosted.manager], "a partition has one log", str(hosted.topic_partition))
        require(
            hosted.log.log_end == hosted.partition.log_end
            and hosted.log.log_start == hosted.partition.log_start,
            "a log that has moved has the bounds that it had",
            f"{hosted.log.log_start}..{hosted.log.log_end}, {hosted.partition.bounds}",
        )
        state, number = world.topic_of(hosted).ledger.state, self._machine.number
        if number in (*state.isr, *state.elr) and not self._machine.is_failing:
            world.watch.check_content(self._machine, hosted)


DIRECTORY_FAULTS: Final[dict[str, tuple[Callable[["World"], None], int]]] = {
    "move_directory": (move_directory, 5),
}
