"""Faults of coordinators, in addition to those of every cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.core.partition import Role
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidemark.storage.disk import DiskError

from sim.cluster.faults import LONG_MS, cut_for_a_while

if TYPE_CHECKING:
    from sim.cluster.parts import CoordinatorReplica, Machine
    from sim.cluster.txn_world import TxnWorld


def kill_coordinator(world: "TxnWorld") -> None:
    """Kill a coordinator (kill -9); it restarts."""
    replica = world.dice.pick(world.coordinators)
    if replica.process is None:
        return
    world.note(replica.host.name, "is killed")
    world.end_coordinator(replica)
    delay_ms = world.dice.pick((20, 300, 1_500))
    world.after(delay_ms, lambda: world.start_coordinator(replica))


def stop_coordinator(world: "TxnWorld") -> None:
    """Stop a coordinator with SIGTERM: it answers the requests under way; it restarts."""
    replica = world.dice.pick(world.coordinators)
    if replica.process is not None and not replica.host.is_paused:
        world.note(replica.host.name, "is told to stop")
        replica.process.is_stopping.set()


def pause_coordinator(world: "TxnWorld") -> None:
    """Pause a coordinator (SIGSTOP) beyond the end of its session: when it resumes, others own its
    shards.

    In some runs their state is compacted meanwhile.
    """
    replica = _serving(world)
    if replica is None:
        return
    world.note(replica.host.name, "is paused")
    replica.host.pause()
    life, pause_ms = replica.host.life, world.dice.pick((400, 2_000, 2_600))

    def resume() -> None:
        if replica.host.life == life and replica.host.is_paused:
            world.note(replica.host.name, "goes on")
            replica.host.resume()

    world.after(pause_ms, resume)
    if world.dice.chance(0.5):
        world.after(pause_ms - 200, lambda: compact_state(world))


def append_late(world: "TxnWorld") -> None:
    """Delay a coordinator's next appends beyond its time-out; they still reach the broker."""
    replica = _serving(world)
    leader = _leader_of_state(world)
    if replica is None or leader is None:
        return
    one, other = replica.host.name, leader.host.name
    pairs = [(one, other)] if world.dice.chance(0.5) else [(other, one)]
    cut_for_a_while(world, pairs, f"{pairs[0][0]} -> {pairs[0][1]}", (700, 1_200))


def delay_coordinator(world: "TxnWorld") -> None:
    """Delay a coordinator's requests to brokers, so that its retries overtake them.

    Before transactions v2 an overtaken marker may end the next transaction.
    """
    if not world.is_v2:
        return
    name = world.dice.pick(world.coordinators).host.name
    ways = [(name, one.host.name) for one in world.machines]
    world.note("network", f"is slow from {name}")
    for way in ways:
        world.network.late_ms[way] = world.dice.pick((300, 450))

    def heal() -> None:
        for way in ways:
            world.network.late_ms.pop(way, None)

    world.after(world.dice.pick((20, 60, 200)), heal)


def cut_client(world: "TxnWorld") -> None:
    """Delay requests of clients to a broker, some beyond their time-out."""
    name = world.dice.pick(world.machines).host.name
    cut_for_a_while(world, [("client", name)], f"client -> {name}", (400, 1_000, 1_300))


def cut_coordinator(world: "TxnWorld") -> None:
    """Cut a coordinator off from all brokers, or from ZooKeeper and the controllers."""
    name = world.dice.pick(world.coordinators).host.name
    if world.dice.chance(0.5):
        others = [one.host.name for one in world.machines]
        words = "brokers"
    else:
        others = [one.host.name for one in world.controllers]
        others += [server.name for server in world.zookeeper.servers]
        words = "zookeeper and controllers"
    pairs = [(name, one) for one in others] + [(one, name) for one in others]
    cut_for_a_while(world, pairs, f"{name} x {words}", LONG_MS)


def kill_state_leader(world: "TxnWorld") -> None:
    """Kill the leader of a coordinator's state (kill -9)."""
    machine = _leader_of_state(world)
    if machine is None or machine.process is None:
        return
    world.note(machine.host.name, "is killed, with state")
    world.end_broker(machine)
    world.restart_later(machine, world.dice.pick((10, 300, 1_200)))


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


def compact_state(world: "TxnWorld") -> None:
    """Fill a segment of a coordinator's state on every replica, so that the cleaners compact it."""
    names = (TRANSACTION_STATE, CONSUMER_OFFSETS)
    topic = world.dice.pick([one for one in world.topics if one.name in names])
    for machine in world.machines:
        process = machine.process
        hosted = (
            None if process is None else process.broker.partitions.table.by_name.get(topic.place)
        )
        if process is not None and hosted is not None and hosted.manager.fenced is None:
            try:
                hosted.log.roll(process.broker.facts.clock.wall_ms())
            except DiskError as failure:
                process.broker.partitions.disks.fence_directory(hosted.manager, failure)
    world.note("cleaners", "compact soon", topic)


def _serving(world: "TxnWorld") -> "CoordinatorReplica | None":
    serving = [
        one
        for one in world.coordinators
        if one.process is not None and not one.host.is_paused and one.process.node.shards.serving()
    ]
    return world.dice.pick(serving) if serving else None


def _leader_of_state(world: "TxnWorld") -> "Machine | None":
    own = [one for one in world.topics if one.name in (TRANSACTION_STATE, CONSUMER_OFFSETS)]
    leader = world.dice.pick(own).ledger.state.leader
    return next((one for one in world.machines if one.number == leader), None)


TXN_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "kill_coordinator": (kill_coordinator, 5),
    "stop_coordinator": (stop_coordinator, 2),
    "pause_coordinator": (pause_coordinator, 5),
    "append_late": (append_late, 4),
    "delay_coordinator": (delay_coordinator, 4),
    "cut_client": (cut_client, 4),
    "cut_coordinator": (cut_coordinator, 3),
    "kill_state_leader": (kill_state_leader, 5),
    "mark_unheard": (mark_unheard, 3),
    "compact_state": (compact_state, 3),
}
"""Faults by name, each with its weight."""
