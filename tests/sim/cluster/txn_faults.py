"""Faults of transactions, in addition to those of every coordinator."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.core.partition import Role

from sim.cluster import coordinator_faults
from sim.cluster.coordinator_faults import COORDINATOR_FAULTS
from sim.cluster.faults import cut_for_a_while

if TYPE_CHECKING:
    from sim.cluster.txn_world import TxnWorld


def mark_unheard(world: "TxnWorld") -> None:
    """Cut a leader off from its followers, and kill it when it has a marker that they lack."""
    open_there = [
        (machine, hosted)
        for machine in world.machines
        if machine.process is not None and not machine.host.is_paused
        for hosted in machine.process.broker.partitions.table.by_name.values()
        if hosted.partition.role is Role.LEADER and len(hosted.partition.producers.txns)
    ]
    if not open_there or world.network.cuts:
        return
    machine, hosted = world.dice.pick(open_there)
    others = [one.host.name for one in world.machines if one is not machine]
    pairs = [(machine.host.name, one) for one in others]
    cut_for_a_while(world, pairs, f"{machine.host.name} -> followers", (600,))
    life, deadline = machine.host.life, world.now + 500

    def look() -> None:
        if machine.host.life != life or world.now >= deadline:
            return
        partition = hosted.partition
        ends = [marker for _, marker in partition.producers.txns.ended()]
        if not any(marker >= partition.high_watermark for marker in ends):
            world.after(1, look)
            return
        world.note(machine.host.name, "is killed, with a marker")
        world.end_broker(machine)
        world.restart_later(machine, 1_500)

    look()


def delay_coordinator(world: "TxnWorld") -> None:
    """Delay a coordinator's requests, unless an overtaken marker may end the next transaction, as
    before transactions v2.
    """
    if world.is_v2:
        coordinator_faults.delay_coordinator(world)


_STATE: Final = "compact_state"
TXN_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    **{name: one for name, one in COORDINATOR_FAULTS.items() if name != _STATE},
    "delay_coordinator": (delay_coordinator, COORDINATOR_FAULTS["delay_coordinator"][1]),
    "mark_unheard": (mark_unheard, 3),
    _STATE: COORDINATOR_FAULTS[_STATE],
}
"""Faults by name, each with its weight; their order is part of a seed's meaning."""
