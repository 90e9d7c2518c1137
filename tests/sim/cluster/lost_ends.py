"""The log of a topic loses its end. A follower is cut off while records are committed without it,
all others die, and an operator makes it the leader by an unclean election.

Only for worlds whose checkers know of it: what was committed is gone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from controller.core.inputs import ElectLeaders, PartitionRef

from sim.cluster.parts import Machine, SimTopic

if TYPE_CHECKING:
    from sim.cluster.share_world import ShareWorld

BEHIND_MS: Final = 2_500
"""Longest time until the follower has left the ISR, and the group has finished records that it
lacks.
"""
ASKS_MS: Final = 100
ASKED_MS: Final = 1_500
"""Longest time until a request is carried out: a controller gives it up before."""
GONE_MS: Final = 4_000
"""Longest time until it leads: session and lease of the last leader end before."""


def lose_end(world: "ShareWorld") -> None:
    """Leave a follower behind, and let it lead."""
    topic = world.dice.pick(world.inputs)
    leader = topic.ledger.state.leader
    followers = [one for one in world.machines if one.number != leader]
    all_are_well = all(_is_well(world, one) for one in world.machines)
    if world.is_losing or leader < 0 or not all_are_well:
        return
    world.is_losing = True
    behind = world.dice.pick(followers)
    names = [one.host.name for one in world.machines if one is not behind]
    ways = [(behind.host.name, one) for one in names] + [(one, behind.host.name) for one in names]
    world.note(behind.host.name, "is left behind", topic)
    for way in ways:
        world.network.cut(*way)
    deadline = world.now + BEHIND_MS

    def look() -> None:
        is_missed = _lacks(behind, topic, world.finished_end(topic))
        if not world.is_draining and world.now < deadline and not is_missed:
            world.after(10, look)
            return
        for way in ways:
            world.network.heal(*way)
        if _lacks(behind, topic, topic.ledger.end) and not world.is_draining:
            _leave_alone(world, topic, behind)
        else:
            world.is_losing = False

    look()


def _is_well(world: "ShareWorld", machine: Machine) -> bool:
    is_whole = not machine.is_hurt and not machine.is_lossy and not world.is_rotten(machine)
    return machine.process is not None and not machine.host.is_paused and is_whole


def _lacks(machine: Machine, topic: SimTopic, end: int) -> bool:
    """Return True if a machine is out of sync, and lacks records before an offset."""
    if machine.process is None or machine.number in topic.ledger.state.isr:
        return False
    hosted = machine.process.broker.partitions.table.by_name.get(topic.place)
    return hosted is not None and hosted.partition.log_end < end


def _leave_alone(world: "ShareWorld", topic: SimTopic, behind: Machine) -> None:
    """Kill all other brokers until this one leads."""
    dead = [one for one in world.machines if one is not behind and one.process is not None]
    for one in dead:
        world.note(one.host.name, "is killed")
        world.end_broker(one)
    deadline = world.now + GONE_MS
    wanted = (PartitionRef(topic.name, topic.partition),)

    def ask() -> None:
        is_led = topic.ledger.state.leader == behind.number
        if not is_led and world.now < deadline and not world.is_draining:
            world.unclean_until[topic.place] = world.now + ASKED_MS
            world.ask_controller(lambda request: ElectLeaders(request, False, wanted))
            world.after(ASKS_MS, ask)
            return
        world.is_losing = False
        for one in dead:
            if one.process is None and not one.restart_planned:
                world.start_broker(one)

    ask()


LOSS_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "lose_end": (lose_end, 12),
}
