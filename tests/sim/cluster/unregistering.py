"""A broker that is given up: its machine has lost power or disks, and an operator unregisters it.
Later it returns all the same. A broker that has replicas stays registered.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from controller.core.inputs import UnregisterBroker
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId

from sim.cluster.faults import cut_power, may_lose, replace_disks, up

if TYPE_CHECKING:
    from sim.cluster.parts import Machine
    from sim.cluster.processes import ControllerProcess
    from sim.cluster.world import World

RETURNS_MS: Final = (300, 2_000, 3_500)
"""Times after which the machine returns: within and beyond session and lease."""
ASKS_MS: Final = 150


def give_up(world: "World") -> None:
    """End a broker for good, and unregister it as soon as that is possible."""
    idle = [one for one in world.machines if one.process is not None and _is_idle(world, one)]
    machine = world.dice.pick(idle) if idle and world.dice.chance(0.5) else up(world)
    if machine is None or not may_lose(world, machine):
        return
    world.note(machine.host.name, "is given up")
    lose = world.dice.pick((replace_disks, cut_power, cut_power))
    lose(world, machine, world.dice.pick(RETURNS_MS))
    _ask(world, machine)


def _is_idle(world: "World", machine: "Machine") -> bool:
    return all(machine.number not in topic.replicas for topic in world.living_topics())


def _ask(world: "World", machine: "Machine") -> None:
    """Ask the active controller, again and again until the broker id has a process."""
    if machine.process is not None:
        return
    for replica in world.controllers:
        process = replica.process
        if process is not None and process.node.is_active and not replica.host.is_paused:
            process.loop.create_task(_unregister(world, process, BrokerId(machine.number)))
    world.after(ASKS_MS, lambda: _ask(world, machine))


async def _unregister(world: "World", process: "ControllerProcess", broker_id: BrokerId) -> None:
    listing = await process.node.list_live()
    if listing is None:
        return
    reply = await process.node.ask(
        lambda header: UnregisterBroker(header, broker_id, listing), ASKS_MS
    )
    if reply.error is ErrorCode.NONE:
        world.note("operator", f"unregisters b{broker_id}")


GIVE_UP_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {"give_up": (give_up, 2)}
"""Faults by name, each with its weight."""
