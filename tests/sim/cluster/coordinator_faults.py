"""Faults of coordinators, in addition to those of every cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidemark.storage.disk import DiskError

from sim.cluster.faults import LONG_MS, cut_for_a_while

if TYPE_CHECKING:
    from sim.cluster.coordinated_world import CoordinatedWorld
    from sim.cluster.parts import CoordinatorReplica, Machine


def kill_coordinator(world: "CoordinatedWorld") -> None:
    """Kill a coordinator (kill -9); it restarts."""
    replica = world.dice.pick(world.coordinators)
    if replica.process is None:
        return
    world.note(replica.host.name, "is killed")
    world.end_coordinator(replica)
    delay_ms = world.dice.pick((20, 300, 1_500))
    world.after(delay_ms, lambda: world.start_coordinator(replica))


def stop_coordinator(world: "CoordinatedWorld") -> None:
    """Stop a coordinator with SIGTERM: it answers the requests under way; it restarts."""
    replica = world.dice.pick(world.coordinators)
    if replica.process is not None and not replica.host.is_paused:
        world.note(replica.host.name, "is told to stop")
        replica.process.is_stopping.set()


def pause_coordinator(world: "CoordinatedWorld") -> None:
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


def append_late(world: "CoordinatedWorld") -> None:
    """Delay a coordinator's next appends beyond its time-out; they still reach the broker."""
    replica = _serving(world)
    leader = _leader_of_state(world)
    if replica is None or leader is None:
        return
    one, other = replica.host.name, leader.host.name
    pairs = [(one, other)] if world.dice.chance(0.5) else [(other, one)]
    cut_for_a_while(world, pairs, f"{pairs[0][0]} -> {pairs[0][1]}", (700, 1_200))


def delay_coordinator(world: "CoordinatedWorld") -> None:
    """Delay a coordinator's requests to brokers, so that its retries overtake them."""
    name = world.dice.pick(world.coordinators).host.name
    ways = [(name, one.host.name) for one in world.machines]
    world.note("network", f"is slow from {name}")
    for way in ways:
        world.network.late_ms[way] = world.dice.pick((300, 450))

    def heal() -> None:
        for way in ways:
            world.network.late_ms.pop(way, None)

    world.after(world.dice.pick((20, 60, 200)), heal)


def cut_client(world: "CoordinatedWorld") -> None:
    """Delay requests of clients to a broker, some beyond their time-out."""
    name = world.dice.pick(world.machines).host.name
    cut_for_a_while(world, [("client", name)], f"client -> {name}", (400, 1_000, 1_300))


def cut_coordinator(world: "CoordinatedWorld") -> None:
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


def kill_state_leader(world: "CoordinatedWorld") -> None:
    """Kill the leader of a coordinator's state (kill -9)."""
    machine = _leader_of_state(world)
    if machine is None or machine.process is None:
        return
    world.note(machine.host.name, "is killed, with state")
    world.end_broker(machine)
    world.restart_later(machine, world.dice.pick((10, 300, 1_200)))


def compact_state(world: "CoordinatedWorld") -> None:
    """Fill a segment of a coordinator's state on every replica, so that the cleaners compact it."""
    topic = world.dice.pick(world.state_topics)
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


def _serving(world: "CoordinatedWorld") -> "CoordinatorReplica | None":
    serving = [
        one
        for one in world.coordinators
        if one.process is not None and not one.host.is_paused and one.process.node.shards.serving()
    ]
    return world.dice.pick(serving) if serving else None


def _leader_of_state(world: "CoordinatedWorld") -> "Machine | None":
    leader = world.dice.pick(world.state_topics).ledger.state.leader
    return next((one for one in world.machines if one.number == leader), None)


COORDINATOR_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "kill_coordinator": (kill_coordinator, 5),
    "stop_coordinator": (stop_coordinator, 2),
    "pause_coordinator": (pause_coordinator, 5),
    "append_late": (append_late, 4),
    "delay_coordinator": (delay_coordinator, 4),
    "cut_client": (cut_client, 4),
    "cut_coordinator": (cut_coordinator, 3),
    "kill_state_leader": (kill_state_leader, 5),
    "compact_state": (compact_state, 3),
}
"""Faults by name, each with its weight."""
