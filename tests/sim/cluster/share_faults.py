"""Faults of share groups, in addition to those of every coordinator."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sim.cluster.coordinator_faults import COORDINATOR_FAULTS

if TYPE_CHECKING:
    from sim.cluster.share_world import ShareWorld


def pause_leader(world: "ShareWorld") -> None:
    """Pause the leader of a partition beyond its session: when it resumes, its locks have expired,
    another broker leads, and it does not know yet.
    """
    leader = world.dice.pick(world.inputs).ledger.state.leader
    machine = next((one for one in world.machines if one.number == leader), None)
    if machine is None or machine.process is None or machine.host.is_paused:
        return
    host = machine.host
    world.note(host.name, "is paused, and leads")
    host.pause()
    life = host.life

    def resume() -> None:
        if host.life == life and host.is_paused:
            world.note(host.name, "goes on")
            host.resume()

    world.after(world.dice.pick((1_900, 2_400, 3_200)), resume)


SHARE_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    **COORDINATOR_FAULTS,
    "pause_leader": (pause_leader, 3),
}
"""Faults by name, each with its weight."""
