"""Disk faults: calls that fail for a while, pages that a failed sync dropped, a lack of space, and
damage below the synced end. At most one machine at a time loses data (``may_lose``).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from broker.core.partition import Role
from broker.storage import checkpoint
from broker.storage.segment import LOG, SegmentView, walk_headers
from tidemark.codec.record_batch import HEADER_BYTES
from tidemark.storage.batch_walk import FrameError, walk_batches
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import require
from sim.cluster.faults import (
    LEAVES_MS,
    cut_for_a_while,
    cut_from_brokers,
    may_lose,
    up,
    when_one_joins,
)
from sim.cluster.parts import readable

if TYPE_CHECKING:
    from broker.shell.partitions.hosted import HostedPartition

    from sim.cluster.parts import Machine, SimTopic
    from sim.cluster.world import World

CALLS: Final = ("write", "read", "sync")
FAILING_MS: Final = (20, 150, 600, 1_500)
RESTART_MS: Final = (10, 60, 300, 1_200)
WAITS_MS: Final = 600
"""Longest time for which a fault waits for its moment."""
FATES: Final = (("kept", 2), ("evicted", 2), ("mounted again", 5), ("replaced", 1))
"""Fates of a failed disk between two processes, each with its weight."""
MAGIC_AT: Final = 16
"""Offset of a byte that every reader of a batch's header checks."""


def fail_syncs(world: "World") -> None:
    """Let fsync fail: bytes written since the last one may be lost, now or later."""
    _fail_any(world, ("sync",))


def fail_writes(world: "World") -> None:
    """Let writes fail, as on a file system that the kernel has made read-only; half of a write may
    have reached the file.
    """
    _fail_any(world, ("write",))


def fail_reads(world: "World") -> None:
    """Let reads fail, on the whole disk or of one partition."""
    _fail_any(world, ("read",))


def fail_disk(world: "World") -> None:
    """Let every call fail, as on a device that is gone."""
    _fail_any(world, CALLS)


def fail_leader(world: "World") -> None:
    """Fail a leader's disk just after an append was acknowledged."""
    topic = world.dice.pick(world.topics)
    calls = _some_calls(world)
    committed = topic.ledger.end
    world.note("disk", "of the leader is about to fail", topic)

    def strike() -> None:
        machine = leader_of(world, topic)
        if machine is not None and may_lose(world, machine):
            fail(world, machine, calls, topic)

    _when(world, lambda: topic.ledger.end > committed, strike)


def fail_small_isr(world: "World") -> None:
    """Fail one of the last two members of an ISR; the other one is cut off long before."""
    topic = world.dice.pick(world.topics)
    calls = _some_calls(world)
    away = world.dice.pick([one for one in world.machines if one.number in topic.replicas])
    cut_from_brokers(world, away, (1_500, 2_500))

    def strike() -> None:
        isr = topic.ledger.state.isr
        there = [one for one in world.machines if one.number in isr and one.process is not None]
        if there:
            machine = world.dice.pick(there)
            if _others_have_all(world, machine):
                fail(world, machine, calls, topic)

    _when(world, lambda: len(topic.ledger.state.isr) == 2, strike, wait_ms=1_500)


def fail_unreported(world: "World") -> None:
    """Fail a disk while its broker reaches no controller, or not ZooKeeper."""
    machine = up(world)
    if machine is None or not may_lose(world, machine):
        return
    name = machine.host.name
    if world.dice.chance(0.6):
        others, words = [one.host.name for one in world.controllers], "controllers"
    else:
        others, words = [one.name for one in world.zookeeper.servers], "zookeeper"
    pairs = [(name, one) for one in others]
    if world.dice.chance(0.5):
        pairs += [(one, name) for one in others]
    cut_for_a_while(world, pairs, f"{name} x {words}", (100, 400, 1_000))
    fail(world, machine, _some_calls(world))


def fail_joining(world: "World") -> None:
    """Fail a follower's disk while its leader proposes it for the ISR, and delay the proposal.

    The follower is cut off before, so that it has left the ISR.
    """
    calls = _some_calls(world)
    cut_from_brokers(world, world.dice.pick(world.machines), (LEAVES_MS,))
    world.note("disk", "of the next broker that joins an ISR is about to fail")

    def strike(leader: "Machine", joining: "Machine") -> None:
        if may_lose(world, joining):
            pairs = [(leader.host.name, one.host.name) for one in world.controllers]
            cut_for_a_while(world, pairs, f"{leader.host.name} -> controllers", (20, 100, 400))
            fail(world, joining, calls)

    when_one_joins(world, strike, world.now + LEAVES_MS + WAITS_MS)


def damage(world: "World") -> None:
    """Kill a broker; at its restart, bytes below a recovery point are changed or missing."""
    machine = up(world)
    if machine is not None and may_lose(world, machine):
        _die_damaged(world, machine, world.dice.pick(world.topics), RESTART_MS)


def damage_leader(world: "World") -> None:
    """Damage a leader in the same way; it restarts before its lease ends."""
    topic = world.dice.pick(world.topics)
    machine = leader_of(world, topic)
    if machine is not None and may_lose(world, machine):
        _die_damaged(world, machine, topic, RESTART_MS[:2])


def exhaust(world: "World") -> None:
    """Leave a process without descriptors: it can open no file, but no disk has failed."""
    machine = up(world)
    if machine is None or machine.process is None or machine.is_exhausted or world.is_draining:
        return
    name, disks = machine.host.name, tuple(machine.disks)
    world.note(name, "runs out of descriptors")
    for disk in disks:
        disk.exhausted = True
    life, end = machine.host.life, world.now + world.dice.pick(FAILING_MS)
    is_whole, failures = not machine.has_fenced, sum(disk.failures for disk in disks)

    def look() -> None:
        is_same = is_whole and machine.host.life == life
        if is_same and sum(disk.failures for disk in disks) == failures:
            require(not machine.has_fenced, "without descriptors no disk has failed", name)
        if world.now < end:
            world.after(10, look)
            return
        world.note(name, "has descriptors again")
        for disk in disks:
            disk.exhausted = False

    world.after(10, look)


def fill(world: "World") -> None:
    """Leave a disk little space for a while, or none: appends fail, and reads go on. A directory is
    out of service only if a change of several steps was in the middle.
    """
    machine = up(world)
    if machine is None or machine.process is None or machine.is_failing or world.is_draining:
        return
    if machine.has_fenced or not may_lose(world, machine):
        return
    name, disk, room = machine.host.name, world.dice.pick(machine.disks), world.dice.between(0, 200)
    disk.leave(room)
    world.note(name, f"has a disk that is full but for {room} B")

    def make_room() -> None:
        if disk not in machine.disks or not disk.is_bounded:
            return
        world.note(name, "has space on its disk again")
        disk.unbound()
        if machine.has_fenced:
            _kill(world, machine, world.dice.pick(RESTART_MS))

    world.after(world.dice.pick(FAILING_MS), make_room)


def rot(world: "World") -> None:
    """Flip bits in a rolled segment of a running broker.

    No reader has read them: clients and followers notice by the CRC, and so does the scrubber. The
    broker's report may be late.
    """
    machine = up(world)
    if machine is None or machine.process is None or not may_lose(world, machine):
        return
    topic = world.dice.pick(world.topics)
    hosted = machine.process.broker.partitions.table.by_name.get(topic.place)
    if hosted is None or machine.is_failing or machine.is_exhausted or machine.has_fenced:
        return
    disk = cast("MemDisk", hosted.manager.disk)
    if len(hosted.log.segments()) == 1:
        hosted.log.roll(machine.process.broker.facts.clock.wall_ms())
    places = _batches(disk, [one for one in hosted.log.segments() if not one.active])
    places = [one for one in places if one.end <= topic.ledger.end]
    if not places:
        return
    place = world.dice.pick(places)
    at = place.position + world.dice.between(HEADER_BYTES, place.size_bytes - 1)
    disk.flip_bit(place.path, at, world.dice.between(0, 7))
    machine.was_hurt = True
    machine.rotten.append((disk, place.path))
    world.note(machine.host.name, f"has a bit flipped in {place.path} at {at}", topic)
    if world.dice.chance(0.5):
        name = machine.host.name
        pairs = [(name, one.host.name) for one in world.controllers]
        cut_for_a_while(world, pairs, f"{name} -> controllers", (400, 1_000))


DISK_FAULTS: Final[dict[str, tuple[Callable[[Any], None], int]]] = {
    "fail_syncs": (fail_syncs, 2),
    "fail_writes": (fail_writes, 1),
    "fail_reads": (fail_reads, 1),
    "fail_disk": (fail_disk, 1),
    "fail_leader": (fail_leader, 2),
    "fail_small_isr": (fail_small_isr, 1),
    "fail_unreported": (fail_unreported, 1),
    "fail_joining": (fail_joining, 1),
    "damage": (damage, 2),
    "damage_leader": (damage_leader, 2),
    "rot": (rot, 2),
    "exhaust": (exhaust, 1),
    "fill": (fill, 2),
}
"""Faults by name, each with its weight."""


# -- calls that fail


def _others_have_all(world: "World", machine: "Machine") -> bool:
    """Return True if no other machine has lost data and each partition has another complete
    replica.
    """
    others = [one for one in world.machines if one is not machine]
    return (
        not world.alters_minimum
        and not any(one.is_lossy or one.is_hurt or world.is_rotten(one) for one in others)
        and all(
            {one.number for one in others} & {*topic.ledger.state.isr, *topic.ledger.state.elr}
            for topic in world.topics
        )
    )


def _fail_any(world: "World", calls: Sequence[str]) -> None:
    machine = up(world)
    if machine is None or not may_lose(world, machine):
        return
    topic = world.dice.pick(world.topics) if world.dice.chance(0.3) else None
    fail(world, machine, calls, topic)


def _some_calls(world: "World") -> Sequence[str]:
    return world.dice.pick((("sync",), ("sync",), ("write",), ("read",), CALLS))


def fail(
    world: "World", machine: "Machine", calls: Sequence[str], topic: "SimTopic | None" = None
) -> None:
    """Let these calls fail for a while, of ``topic`` alone or of a whole disk.

    Sometimes the process is killed at the first of them; sometimes dropped pages are evicted
    meanwhile.
    """
    dice, name, process = world.dice, machine.host.name, machine.process
    if machine.is_failing or process is None or world.is_draining:
        return
    hosted = None if topic is None else process.broker.partitions.table.by_name.get(topic.place)
    disk = dice.pick(machine.disks) if hosted is None else cast("MemDisk", hosted.manager.disk)
    failed_before = disk.failures
    disk.fails_under = "" if topic is None else f"{topic.title}/"
    for call in calls:
        setattr(disk, f"{call}s_fail", True)
    disk.drops_pages = dice.chance(0.7)
    machine.is_hurt = machine.was_hurt = True
    world.note(name, f"has its disk fail: {', '.join(calls)}", topic)

    def repair() -> None:
        if disk not in machine.disks or not disk.is_failing:
            return
        world.note(name, "has its disk repaired")
        disk.repair()
        if disk.failures == failed_before and machine.process is not None:
            machine.is_hurt = False
        elif machine.has_fenced and dice.chance(0.5):
            _kill(world, machine, dice.pick(RESTART_MS))

    world.after(dice.pick(FAILING_MS), repair)
    if dice.chance(0.4):
        restart_ms = dice.pick(RESTART_MS[:3])
        _when(
            world, lambda: disk.failures > failed_before, lambda: _kill(world, machine, restart_ms)
        )
    elif dice.chance(0.3):
        world.after(dice.pick((150, 600, 1_200)), disk.evict)


def _kill(world: "World", machine: "Machine", restart_ms: int) -> None:
    if machine.process is not None:
        world.note(machine.host.name, "is killed, its disk having failed")
        world.end_broker(machine)
        world.restart_later(machine, restart_ms)


def process_ended(world: "World", machine: "Machine") -> None:
    """Choose the fate of a machine's failed disk at the end of its process.

    Pages dropped by a failed sync may be gone before the next process reads them: the machine's
    data do not count until it has registered again.
    """
    machine.is_lossy = True
    for at, disk in enumerate(machine.disks):
        fate = world.dice.weighted(FATES)
        if fate == "evicted":
            disk.evict()
        elif fate == "mounted again":
            disk.repair()
            disk.remount()
            world.note(machine.host.name, f"has disk {at} mounted again")
        elif fate == "replaced" and disk.is_failing:
            machine.replace_disk(at)
            world.note(machine.host.name, f"has disk {at} replaced")


# -- damage


def _die_damaged(
    world: "World", machine: "Machine", topic: "SimTopic", restarts_ms: Sequence[int]
) -> None:
    process = machine.process
    assert process is not None
    hosted = process.broker.partitions.table.by_name.get(topic.place)
    if hosted is None or machine.is_failing or machine.is_exhausted:
        return
    disk = cast("MemDisk", hosted.manager.disk)
    places = _below_recovery_point(disk, hosted)
    if not places:
        return
    path, position, *_ = world.dice.pick(places[-12:])
    world.end_broker(machine)
    machine.is_hurt = machine.was_hurt = machine.is_lossy = True
    kind = world.dice.pick(("is cut", "has a byte flipped", "has zeros"))
    if kind == "is cut":
        disk.cut_file(path, position + world.dice.pick((0, 1, HEADER_BYTES - 1)))
    elif kind == "has zeros":
        disk.overwrite(path, position, bytes(HEADER_BYTES))
    else:
        disk.flip_bit(path, position + MAGIC_AT, world.dice.between(0, 7))
    machine.rotten.append((disk, path))  # in an older segment only readers and the scrubber find it
    world.note(machine.host.name, f"is killed; {path} {kind} at {position}")
    world.restart_later(machine, world.dice.pick(restarts_ms))


class _Place(NamedTuple):
    """Place of a batch on disk."""

    path: str
    position: int
    size_bytes: int
    end: int
    """Offset after its last one."""


def _below_recovery_point(disk: MemDisk, hosted: "HostedPartition") -> list[_Place]:
    """Return the batches below the recovery point, from the files on disk."""
    if not disk.exists(checkpoint.RECOVERY_POINTS):
        return []
    points = checkpoint.read_offsets(disk, checkpoint.RECOVERY_POINTS)
    point = points.get(hosted.topic_partition, 0)
    return [one for one in _batches(disk, hosted.log.segments()) if one.end <= point]


def _batches(disk: MemDisk, segments: Sequence[SegmentView]) -> list[_Place]:
    places = []
    with suppress(FrameError):  # damaged before
        for view in segments:
            for position, header in walk_headers(disk.open(view.path), 0, view.size_bytes):
                end = header.last_offset + 1
                places.append(_Place(view.path, position, header.size_bytes, end))
    return places


def is_rotten(disk: MemDisk, path: str) -> bool:
    """Return True if a segment still exists and is damaged: batches changed, or missing before the
    start of the next segment.
    """
    if not disk.exists(path):
        return False
    directory, _, name = path.rpartition("/")
    end = int(name.removesuffix(LOG))
    try:
        with readable(disk):
            later = [one for one in disk.list(directory) if one.endswith(LOG) and one > name]
            for walked in walk_batches(disk.open(path), 0, disk.size_of(path)):
                if not walked.crc_ok:
                    return True
                end = walked.header.last_offset + 1
    except FrameError:
        return True
    return bool(later) and end < int(later[0].removesuffix(LOG))


def roll_rotten(machine: "Machine") -> None:
    """Roll a damaged segment that a truncation made active again: it is checked once it is full."""
    paths = {path for _, path in machine.rotten}
    if machine.process is None or not paths:
        return
    broker = machine.process.broker
    for hosted in broker.partitions.table.by_name.values():
        if hosted.log.segments()[-1].path in paths and hosted.manager.fenced is None:
            hosted.log.roll(broker.facts.clock.wall_ms())


# -- moments


def leader_of(world: "World", topic: "SimTopic") -> "Machine | None":
    """Return the machine that leads and acts as leader."""
    for machine in world.machines:
        if machine.number == topic.ledger.state.leader and machine.process is not None:
            hosted = machine.process.broker.partitions.table.by_name.get(topic.place)
            if hosted is not None and hosted.partition.role is Role.LEADER:
                return machine
    return None


def _when(
    world: "World",
    is_time: Callable[[], bool],
    strike: Callable[[], None],
    *,
    wait_ms: int = WAITS_MS,
) -> None:
    """Run the fault at the first instant at which its condition holds, if that comes soon."""
    deadline = world.now + wait_ms

    def look() -> None:
        if is_time():
            strike()
        elif world.now < deadline:
            world.after(1, look)

    look()
