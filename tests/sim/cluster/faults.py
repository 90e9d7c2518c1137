"""Faults of a cluster; each is one function, and a seed draws some (swarm testing)."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.core.inputs import (
    AlterConfigs,
    AlterReassignments,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ElectLeaders,
    Move,
)
from tidemark.model.ids import BrokerId

from sim.cluster.parts import FatalWrite

if TYPE_CHECKING:
    from sim.cluster.parts import Machine, SimTopic
    from sim.cluster.world import World

TOPIC: Final = 2
REPLICAS: Final = 3
PUT_BACK_MS: Final = (400, 1_200, 2_000)
"""Times after which a removed disk is put back; after the last one it is not put back at all."""
LONG_MS: Final = (100, 400, 1_000, 2_500)
"""Below, around and beyond lease (600), lag (700) and session time-out (1,500)."""
QUESTION_LATE_MS: Final = 80
"""Delay of a leader's proposal, so that the proposed process has been replaced at its arrival."""
JOINS_MS: Final = 600
"""Longest time for which a fault waits for a replica to join an ISR."""
LEAVES_MS: Final = 900
"""Time after which a follower that fetches nothing has left every ISR."""


def kill(world: "World") -> None:
    """Kill a broker (kill -9); it restarts."""
    machine = up(world)
    if machine is None:
        return
    world.note(machine.host.name, "is killed")
    world.end_broker(machine)
    world.restart_later(machine, world.dice.pick((10, 60, 300, 1_200)))


def lose_power(world: "World") -> None:
    """Stop a machine: part of the unsynced bytes is lost."""
    machine = up(world)
    if machine is None or not may_lose(world, machine):
        return
    cut_power(world, machine, world.dice.pick((60, 300, 1_200)))


def cut_power(world: "World", machine: "Machine", restart_ms: int) -> None:
    """Stop this machine."""
    world.note(machine.host.name, "loses power")
    world.end_broker(machine, is_silent=True)
    for disk in machine.disks:
        disk.crash(world.dice.throws(world.dice.between(0, 8)))
    machine.boot()
    machine.is_lossy = True
    world.restart_later(machine, restart_ms)


def lose_disk(world: "World") -> None:
    """Restart a broker with an empty disk, or with one of two empty."""
    machine = up(world)
    if machine is None or not may_lose(world, machine):
        return
    replace_disks(world, machine, world.dice.pick((60, 300, 1_200)))


def replace_disks(world: "World", machine: "Machine", restart_ms: int) -> None:
    """Empty its disk, or one of its two."""
    world.note(machine.host.name, "loses its disk")
    world.end_broker(machine)
    places = list(range(len(machine.disks)))
    if len(places) > 1 and world.dice.chance(0.6):
        places = [world.dice.pick(places)]
    for at in places:
        machine.replace_disk(at)
    machine.is_lossy = True
    world.restart_later(machine, restart_ms)


def stop_cleanly(world: "World") -> None:
    """Stop a broker with SIGTERM: it hands over and closes its logs; it restarts."""
    machine = up(world)
    if machine is None or machine.process is None or machine.host.is_paused:
        return
    world.note(machine.host.name, "is told to stop")
    machine.process.is_stopping.set()


def pause(world: "World") -> None:
    """Stop a process for a while (SIGSTOP)."""
    hosts = [one.host for one in world.members if one.process is not None]
    host = world.dice.pick(hosts)
    if host.is_paused:
        return
    world.note(host.name, "is paused")
    host.pause()
    life = host.life

    def resume() -> None:
        if host.life == life and host.is_paused:
            world.note(host.name, "goes on")
            host.resume()

    world.after(world.dice.pick(LONG_MS), resume)


def cut(world: "World") -> None:
    """Cut one host off from another, one way or both."""
    names = [one.host.name for one in world.members] + ["client"]
    first = world.dice.pick(names)
    second = world.dice.pick([name for name in names if name != first])
    pairs = [(first, second)]
    if world.dice.chance(0.7):
        pairs.append((second, first))
    cut_for_a_while(world, pairs, f"{first} {'x' if len(pairs) == 2 else '->'} {second}")


def cut_zookeeper(world: "World") -> None:
    """Cut a host off from the whole ensemble."""
    host = world.dice.pick([one.host.name for one in world.members])
    servers = [server.name for server in world.zookeeper.servers]
    pairs = [(host, one) for one in servers] + [(one, host) for one in servers]
    cut_for_a_while(world, pairs, f"{host} x zookeeper")


def isolate(world: "World") -> None:
    """Cut a broker off from all hosts except, in some runs, the clients or ZooKeeper."""
    name = world.dice.pick([one.host.name for one in world.machines])
    others = [one.host.name for one in world.members if one.host.name != name]
    words = ""
    if world.dice.chance(0.5):
        others.append("client")
    else:
        words = " but clients"
    if world.dice.chance(0.5):
        others += [server.name for server in world.zookeeper.servers]
    else:
        words += " but zookeeper"
    pairs = [(name, one) for one in others] + [(one, name) for one in others]
    cut_for_a_while(world, pairs, f"{name} x all{words}")


def cut_for_a_while(
    world: "World",
    pairs: list[tuple[str, str]],
    what: str,
    lengths_ms: tuple[int, ...] = LONG_MS,
) -> None:
    """Cut these ways, given by names of hosts, for a while."""
    world.note("network", f"cuts {what}")
    for source, target in pairs:
        world.network.cut(source, target)

    def heal() -> None:
        world.note("network", f"heals {what}")
        for source, target in pairs:
            world.network.heal(source, target)

    world.after(world.dice.pick(lengths_ms), heal)


def cut_from_brokers(world: "World", machine: "Machine", lengths_ms: tuple[int, ...]) -> None:
    """Cut a broker off from all other brokers."""
    name = machine.host.name
    others = [one.host.name for one in world.machines if one is not machine]
    pairs = [(name, one) for one in others] + [(one, name) for one in others]
    cut_for_a_while(world, pairs, f"{name} x brokers", lengths_ms)


def break_connections(world: "World") -> None:
    """Reset every connection of a host."""
    host = world.dice.pick([one.host for one in world.members])
    world.note(host.name, "has its connections reset")
    world.network.process_ended(host, is_silent=False)


def kill_controller(world: "World") -> None:
    """Kill a controller (kill -9); it restarts."""
    world.kill_controller(world.dice.pick(world.controllers), "is killed")


def cut_a_change(world: "World") -> None:
    """Kill the active controller between two transactions of one change: of any change, or of the
    registration of a broker that lost its disk or unsynced bytes.
    """
    machine = up(world)
    left = world.dice.between(1, 3)
    world.note("operator", "waits for a change to cut")
    if machine is None or world.dice.chance(0.3) or not may_lose(world, machine):
        world.kill_who_writes(FatalWrite(left, world.now + 600))
        return
    lose = world.dice.pick((replace_disks, cut_power, cut_power))
    lose(world, machine, 60)
    world.kill_who_writes(
        FatalWrite(1, world.now + 3_000, lambda: _is_being_registered(world, machine))
    )


def _is_being_registered(world: "World", machine: "Machine") -> bool:
    """Return True if the active controller has a registration of this broker under way."""
    writes = [one.process.node._machine._writing for one in world.controllers if one.process]
    return any(
        broker.broker_id == machine.number and not broker.fenced
        for write in writes
        if write is not None
        for broker in write.change.delta.brokers_changed
    )


def expire_session(world: "World") -> None:
    """Expire the session of a random process."""
    processes = [one.process for one in world.members if one.process is not None]
    process = world.dice.pick(processes)
    if process.session.session_id and world.zookeeper.has_quorum:
        world.note(process.host.name, "has its session expired")
        world.zookeeper.expire(process.session.session_id)


def stop_zookeeper(world: "World") -> None:
    """Stop a server, or the quorum, for a while."""
    numbers = [0, 1, 2][: world.dice.between(1, 2)]
    numbers = [one for one in numbers if world.zookeeper.servers[one].is_up]
    world.note("zookeeper", f"servers {numbers} stop")
    for number in numbers:
        world.zookeeper.stop_server(number)

    def start() -> None:
        world.note("zookeeper", f"servers {numbers} start")
        for number in numbers:
            if not world.zookeeper.servers[number].is_up:
                world.zookeeper.start_server(number)

    world.after(world.dice.pick(LONG_MS), start)


def elect_zookeeper(world: "World") -> None:
    """Elect another ZooKeeper leader: every connection breaks."""
    world.note("zookeeper", "elects a leader")
    world.zookeeper.elect()


def delay_feed(world: "World") -> None:
    """Delay the messages of controllers to a broker or a coordinator: its metadata are old, while
    its own requests to ZooKeeper and other processes are in time.
    """
    names = [one.host.name for one in world.machines]
    name = world.dice.pick(names + [one.host.name for one in world.coordinators])
    ways = [(one.host.name, name) for one in world.controllers]
    world.note("network", f"is slow from controllers to {name}")
    for way in ways:
        world.network.late_ms[way] = world.dice.pick((100, 400, 900))

    def heal() -> None:
        for way in ways:
            world.network.late_ms.pop(way, None)

    world.after(world.dice.pick(LONG_MS), heal)


def lag_zookeeper(world: "World") -> None:
    """Delay the commits at one server."""
    number = world.dice.between(0, 2)
    world.zookeeper.lag(number, world.dice.pick((20, 100, 300)))
    world.note("zookeeper", f"server {number} lags")
    world.after(world.dice.pick(LONG_MS), lambda: world.zookeeper.lag(number, 0))


def lose_joining(world: "World") -> None:
    """Let a replica lose its disk or power at the worst moment: while its leader proposes it for
    the ISR, and the proposal is late.

    Sometimes it cannot fetch the lost records again before the response. It may have been cut off
    before, so that it has left the ISR.
    """
    wait_ms = JOINS_MS
    if world.dice.chance(0.5):
        cut_from_brokers(world, world.dice.pick(world.machines), (LEAVES_MS,))
        wait_ms += LEAVES_MS
    world.note("disk", "of who joins next is about to fail")
    ways = [(one.host.name, each.host.name) for one in world.machines for each in world.controllers]
    world.network.late_ms |= dict.fromkeys(ways, QUESTION_LATE_MS)

    def hurry() -> None:
        for way in ways:
            world.network.late_ms.pop(way, None)

    world.after(wait_ms, hurry)

    def strike(leader: "Machine", joining: "Machine") -> None:
        if may_lose(world, joining) and not world.is_draining:
            one, other = leader.host.name, joining.host.name
            pairs = [(one, each.host.name) for each in world.controllers]
            cut_for_a_while(world, pairs, f"{one} -> controllers", LONG_MS[:2])
            if world.dice.chance(0.8):
                cut_for_a_while(world, [(one, other), (other, one)], f"{one} x {other}", (600,))
            lose = world.dice.pick((replace_disks, cut_power, cut_power))
            lose(world, joining, 10)

    when_one_joins(world, strike, world.now + wait_ms)


def agree_late(world: "World") -> None:
    """Cut off the next replica that joins an ISR, and delay the controller's response to its
    leader.
    """
    world.note("network", "is about to cut off who joins next")

    def strike(leader: "Machine", joining: "Machine") -> None:
        one, other = leader.host.name, joining.host.name
        pairs = [(each.host.name, one) for each in world.controllers]
        pairs += [(one, other), (other, one)]
        cut_for_a_while(world, pairs, f"{one} x {other}, controllers -> {one}", LONG_MS[:3])

    when_one_joins(world, strike, world.now + 600)


def when_one_joins(
    world: "World", strike: Callable[["Machine", "Machine"], None], deadline: int
) -> None:
    """Call ``strike(leader, joining)`` while a leader proposes a broker for an ISR."""
    for leader in world.machines:
        joining = _joining(world, leader)
        if joining is not None:
            strike(leader, joining)
            return
    if world.now < deadline:
        world.after(1, lambda: when_one_joins(world, strike, deadline))


def _joining(world: "World", leader: "Machine") -> "Machine | None":
    if leader.process is None:
        return None
    for hosted in leader.process.broker.partitions.table.by_name.values():
        pending = hosted.partition.replica_set.isr.pending
        if pending is None:
            continue
        for machine in world.machines:
            if machine.number in set(pending.members) - set(hosted.partition.isr):
                return machine if machine.process is not None else None
    return None


def elect_preferred(world: "World") -> None:
    """Elect preferred leaders, as an operator does: live leaders are replaced."""
    world.note("operator", "elects preferred leaders")
    world.ask_controller(lambda request: ElectLeaders(request, True, None))


def move(world: "World") -> None:
    """Move replicas to other brokers, as an operator does, or cancel the moves under way."""
    if len(world.machines) == REPLICAS:
        return
    topic = world.dice.pick(world.topics)
    replicas: tuple[BrokerId, ...] | None = None
    if not topic.is_moving or world.dice.chance(0.5):
        left_out = world.dice.between(1, len(world.machines))
        ordered = [one.number for one in world.machines if one.number != left_out]
        start = world.dice.between(0, REPLICAS - 1)
        replicas = tuple(BrokerId(one) for one in (*ordered[start:], *ordered[:start]))
    world.note("operator", f"moves to {replicas}" if replicas else "calls off a move", topic)
    moves = (Move(topic.name, topic.partition, replicas),)
    world.ask_controller(lambda request: AlterReassignments(request, moves))


def cut_followers(world: "World") -> None:
    """Cut a leader off from all its followers."""
    leader = world.dice.pick(world.topics).ledger.state.leader
    others = [one.host.name for one in world.machines if one.number != leader]
    for name in (one.host.name for one in world.machines if one.number == leader):
        pairs = [(name, one) for one in others] + [(one, name) for one in others]
        cut_for_a_while(world, pairs, f"{name} x followers", LONG_MS[2:])


def alter_minimum(world: "World") -> None:
    """Change min.insync.replicas of a topic, or lower it to 1 while a replica is eligible only."""
    if not world.alters_minimum:
        return
    if world.dice.chance(0.5):
        _set_minimum(world, world.dice.pick(world.topics), world.dice.pick(("1", "2")))
    else:
        _wait_for_eligible(world, world.now + 1_000)


def _wait_for_eligible(world: "World", deadline: int) -> None:
    for topic in world.topics:
        if topic.ledger.state.elr:
            _set_minimum(world, topic, "1")
            return
    if world.now < deadline:
        world.after(5, lambda: _wait_for_eligible(world, deadline))


def _set_minimum(world: "World", topic: "SimTopic", value: str) -> None:
    world.note("operator", f"sets min.insync.replicas={value}", topic)
    change = ConfigChange("min.insync.replicas", ConfigOperation.SET, value)
    resource = ConfigResource(TOPIC, topic.name, (change,))
    world.ask_controller(lambda request: AlterConfigs(request, (resource,)))


def up(world: "World") -> "Machine | None":
    """Return a running broker; rarely the only one."""
    up = [one for one in world.machines if one.process is not None]
    return world.dice.pick(up) if len(up) > 1 or (up and world.dice.chance(0.2)) else None


def may_lose(world: "World", machine: "Machine") -> bool:
    """Return True if the machine may lose data: every other machine is complete, and in sync or
    eligible.

    False where one disk alone may have committed records.
    """
    return not world.alters_minimum and all(
        not other.is_lossy
        and not other.is_hurt
        and not world.is_rotten(other)
        and all(
            other.number not in topic.replicas
            or other.number in (*topic.ledger.state.isr, *topic.ledger.state.elr)
            for topic in world.living_topics()
        )
        for other in world.machines
        if other is not machine
    )


FAULTS: Final[dict[str, tuple[Callable[["World"], None], int]]] = {
    "kill": (kill, 4),
    "lose_power": (lose_power, 2),
    "lose_disk": (lose_disk, 2),
    "lose_joining": (lose_joining, 2),
    "agree_late": (agree_late, 2),
    "stop_cleanly": (stop_cleanly, 2),
    "pause": (pause, 3),
    "cut": (cut, 4),
    "cut_zookeeper": (cut_zookeeper, 3),
    "isolate": (isolate, 3),
    "cut_followers": (cut_followers, 2),
    "break_connections": (break_connections, 1),
    "kill_controller": (kill_controller, 2),
    "cut_a_change": (cut_a_change, 2),
    "expire_session": (expire_session, 2),
    "stop_zookeeper": (stop_zookeeper, 1),
    "elect_zookeeper": (elect_zookeeper, 1),
    "lag_zookeeper": (lag_zookeeper, 1),
    "elect_preferred": (elect_preferred, 1),
    "alter_minimum": (alter_minimum, 4),
    "move": (move, 3),
}
"""Faults by name, each with its weight."""


def put_back(world: "World") -> None:
    """Replace one disk of a broker by an empty one, and put the old one back later, with the logs
    that it had then. With two log directories the other one stays.
    """
    machine = up(world)
    if machine is None or not may_lose(world, machine):
        return
    at = world.dice.between(0, len(machine.disks) - 1)
    old, old_id = machine.disks[at], machine.directory_ids[at]
    world.note(machine.host.name, f"has disk {at} replaced")
    world.end_broker(machine)
    machine.replace_disk(at)
    machine.is_lossy = True
    world.restart_later(machine, 10)
    new, deadline = machine.disks[at], world.now + PUT_BACK_MS[-1]

    def put() -> None:
        if world.is_draining or machine.disks[at] is not new or world.now > deadline:
            return
        if machine.process is None or not may_lose(world, machine):
            world.after(20, put)
            return
        world.note(machine.host.name, f"has its old disk {at} put back")
        world.end_broker(machine)
        machine.disks[at], machine.directory_ids[at] = old, old_id
        machine.is_lossy = True
        world.restart_later(machine, 10)

    world.after(world.dice.pick(PUT_BACK_MS[:-1]), put)


OLD_DISK_FAULTS: Final[dict[str, tuple[Callable[["World"], None], int]]] = {
    "put_back": (put_back, 2),
}
FEED_FAULTS: Final[dict[str, tuple[Callable[["World"], None], int]]] = {
    "delay_feed": (delay_feed, 2),
}


class Injector:
    """Injector of the faults that the seed drew, at random intervals."""

    def __init__(self, world: "World") -> None:
        self._world = world
        asked = world.options.faults
        there = {**world.fault_table, **world.faults_apart}
        if asked is None:
            drawn = [name for name in world.fault_table if world.dice.chance(0.6)]
            drawn = [name for name in drawn if name not in world.by_name_only]
            drawn += world.drawn_apart
        else:
            drawn = list(asked)
        self.drawn = tuple(drawn)
        """Names of the faults that may strike."""
        self.struck: Counter[str] = Counter()
        """Number of strikes of each."""
        self._choices = [((name, there[name][0]), there[name][1]) for name in drawn]
        self._pace_ms = world.dice.pick(world.fault_paces_ms)
        self._is_stopped = False

    def start(self) -> None:
        """Schedule the first fault, soon."""
        if self._choices:
            self._world.after(self._world.dice.between(1, self._pace_ms), self._strike)

    def stop(self) -> None:
        """Inject no fault from now on."""
        self._is_stopped = True

    def _strike(self) -> None:
        if not self._is_stopped:
            name, strike = self._world.dice.weighted(self._choices)
            self.struck[name] += 1
            strike(self._world)
            self._world.after(self._world.dice.between(1, 2 * self._pace_ms), self._strike)
