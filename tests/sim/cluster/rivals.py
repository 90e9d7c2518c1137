"""Two processes of one broker id: a broker that is cut off is presumed dead, and replaced by one on
another machine, with empty disks. The first still runs, and may act as leader.
"""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from sim.cluster.faults import cut_for_a_while, may_lose, up

if TYPE_CHECKING:
    from sim.cluster.parts import Machine
    from sim.cluster.world import World

CUT_MS: Final = (1_000, 2_500)
"""Lengths of the cut: around and beyond the session time-out (1,500)."""
WAITS_MS: Final = (20, 700, 1_600)
"""Times from the cut to the start of the other process: the session may not have ended yet."""
GHOST_MS: Final = (300, 1_500, 3_000)
"""Times for which the first process continues."""


def replace_by_a_rival(world: "World") -> None:
    """Cut a broker from the controllers and from ZooKeeper, perhaps from the other brokers too.
    Then start another process of its broker id elsewhere.
    """
    machine = up(world)
    if machine is None or machine.host.is_paused or not may_lose(world, machine):
        return
    process, name = machine.process, machine.host.name
    others = [server.name for server in world.zookeeper.servers]
    others += [each.host.name for each in world.controllers]
    if world.dice.chance(0.3):
        others += [one.host.name for one in world.machines if one is not machine]
    pairs = [(name, one) for one in others] + [(one, name) for one in others]
    cut_for_a_while(world, pairs, f"{name} x controllers, zookeeper", CUT_MS)

    def strike() -> None:
        is_same = machine.process is process and not machine.is_hurt
        if is_same and not world.is_draining and may_lose(world, machine):
            start_rival(world, machine)

    world.after(world.dice.pick(WAITS_MS), strike)


def start_rival(world: "World", machine: "Machine") -> None:
    """Start a process on a new host, with empty disks, in the machine's place. Its former process
    continues for a while, as a ghost.
    """
    assert machine.process is not None
    session_id = machine.process.session.session_id
    if session_id and world.zookeeper.has_quorum and world.dice.chance(0.5):
        world.zookeeper.expire(session_id)  # an operator may remove it: the lease continues
    ghost = copy(machine)
    ghost.seen, ghost.dead, ghost.rotten, ghost.supervisors = dict(machine.seen), [], [], []
    world.ghosts.append(ghost)
    world.watch.begins(ghost)
    world.note(machine.host.name, "is taken for dead")
    world.after(world.dice.pick(GHOST_MS), lambda: world.end_broker(ghost))
    name = f"b{machine.number}-{len(world.ghosts)}"
    machine.host = world.network.host(name)
    machine.disks, machine.directory_ids = list(machine.disks), list(machine.directory_ids)
    for at in range(len(machine.disks)):
        machine.replace_disk(at)
    machine.process, machine.rotten, machine.is_lossy = None, [], True
    machine.boot()
    world.start_broker(machine)


RIVAL_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "rival": (replace_by_a_rival, 2),
}
"""Faults by name, each with its weight."""
