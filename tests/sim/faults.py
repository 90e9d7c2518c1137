"""Faults, and actions of an operator meanwhile. Each is one function; a seed draws some of them.

Every run enables its own subset (swarm testing): some bugs appear only without the other faults.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.storage.log_manager import LogManager
from broker.storage.scrubber import ScrubSegment, ScrubTask, scrub_range
from broker.storage.segment import walk_headers
from broker.storage.stamp import StampError
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import check_damage_told, require
from sim.node import CLUSTER, Hosted

if TYPE_CHECKING:
    from sim.simulator import Simulator

NO_LIMIT: Final = 1 << 62
LENGTH_AT: Final = 8
CHECKED_FROM: Final = 16
"""Offset of magic in a batch; base offset and leader epoch before it have no checksum."""


def kill(sim: "Simulator") -> None:
    """Kill the node (kill -9)."""
    sim.kill()


def lose_power(sim: "Simulator") -> None:
    """Stop the machine."""
    sim.lose_power()


def stop_cleanly(sim: "Simulator") -> None:
    """Stop the node with SIGTERM and start it again."""
    sim.stop_cleanly()


def fill_disk(sim: "Simulator") -> None:
    """Leave the disk without space for a while; sometimes the node dies meanwhile."""
    room = sim.dice.between(0, 600)
    used = (1 << 40) - _free(sim.disk, 1 << 40)
    sim.disk.capacity_bytes = used + room
    sim.note("disk", f"full but for {room} B")

    def make_room() -> None:
        sim.disk.capacity_bytes = NO_LIMIT

    sim.after(sim.dice.between(50, 500), make_room)


def _free(disk: MemDisk, capacity_bytes: int) -> int:
    disk.capacity_bytes = capacity_bytes
    return disk.free_bytes()


def fail_syncs(sim: "Simulator") -> None:
    """Let fsync fail with EIO: the directory is fenced until the next start.

    The disk may count unwritten bytes as written, so that no later sync writes them either.
    """
    sim.disk.syncs_fail = True
    sim.disk.drops_pages = sim.dice.chance(0.6)
    sim.note("disk", "every sync fails")


def fail_writes(sim: "Simulator") -> None:
    """Let every change fail with EIO; half of a write may have reached the file."""
    sim.disk.writes_fail = True
    sim.note("disk", "every write fails")


def flip_tail(sim: "Simulator") -> None:
    """Flip a bit in bytes that no sync covers, then kill the node: the bytes must not be served."""
    hosted = _any_hosted(sim)
    history = sim.histories[hosted.log.topic_id]
    synced_end = max(hosted.log.synced_end, history.synced_end)
    first = max(synced_end, hosted.log.first_base_offset)
    tail = [one for one in history.batches if one.first >= first]
    if not tail or not _is_in_order(sim):
        return
    victim = sim.dice.pick(tail)
    path, position = _place(hosted, victim.first)
    at = sim.dice.pick((LENGTH_AT, sim.dice.between(CHECKED_FROM, len(victim.batch) - 1)))
    sim.disk.flip_bit(path, position + at, sim.dice.between(0, 7))
    victim.is_damaged = True
    sim.note("disk", f"flips a bit of the unsynced batch {victim.first}", hosted.topic_partition)
    if sim.dice.chance(0.5):
        sim.kill()
    else:
        sim.lose_power()


def flip_synced(sim: "Simulator") -> None:
    """Flip a bit below the recovery point, which is reported and not cut; then repair the disk."""
    hosted = _any_hosted(sim)
    log, history = hosted.log, sim.histories[hosted.log.topic_id]
    if not _is_in_order(sim) or history.cleaned_end:
        return
    sim.flush_all()
    node = sim.node
    assert node is not None
    node.save()
    sim.disk.sync_directory("")
    synced = [
        one
        for one in history.readable(log.log_start, log.synced_end)
        if one.first >= log.first_base_offset
    ]
    if not synced or not _is_in_order(sim):
        return
    victim = sim.dice.pick(synced)
    path, position = _place(hosted, victim.first)
    at = sim.dice.pick((LENGTH_AT, sim.dice.between(CHECKED_FROM, len(victim.batch) - 1)))
    bit = sim.dice.between(0, 7)
    sizes = {one.path: one.size_bytes for one in log.segments()}
    sim.disk.flip_bit(path, position + at, bit)
    sim.note("disk", f"flips a bit of the synced batch {victim.first}", hosted.topic_partition)
    told = _restart_damaged(sim, hosted.topic_partition)
    kept = {one: sim.disk.size_of(one) if sim.disk.exists(one) else 0 for one in sizes}
    check_damage_told(told, sizes, kept)
    sim.disk.flip_bit(path, position + at, bit)
    sim.kill()


def _restart_damaged(sim: "Simulator", topic_partition: TopicPartition) -> list[str]:
    """Kill the node, start it, scrub; return the reports of recovery and scrubber."""
    sim.node = None
    if sim.dice.chance(0.5):
        sim.disk.kill()
    else:
        sim.disk.crash(sim.dice.throws(sim.dice.between(0, 12)))
        sim.boots += 1
    sim.start_node()
    log = sim.running.hosted[topic_partition].log
    told = [log.damage] if log.damage else []
    for one in log.segments():
        if one.size_bytes:
            segment = ScrubSegment(topic_partition, one.base_offset, one.path, one.size_bytes)
            task = ScrubTask(segment, 0, one.base_offset, one.size_bytes)
            outcome = scrub_range(sim.disk.open(one.path), task)
            told += [str(outcome.damage)] if outcome.damage else []
    sim.note("node", f"told: {told}", topic_partition)
    return told


def _place(hosted: Hosted, offset: int) -> tuple[str, int]:
    """Return file and position of the batch that begins at an offset."""
    views = [one for one in hosted.log.segments() if one.base_offset <= offset]
    file = hosted.log._shared.disk.open(views[-1].path)
    for position, header in walk_headers(file, 0, views[-1].size_bytes):
        if header.base_offset == offset:
            return views[-1].path, position
    raise AssertionError(f"no batch at {offset}")


def swap_disk(sim: "Simulator") -> None:
    """Start on a foreign disk, which is refused, then on an empty disk, then on the right one.

    The right disk has not changed meanwhile.
    """
    foreign = MemDisk()
    LogManager.open(
        foreign, cluster_id="other", broker_id=1, directory_id="x", boot_id="b", now_ms=sim.now
    ).close()
    names = foreign.list("")
    try:
        _open(sim, foreign)
    except StampError as refused:
        sim.note("node", f"refused: {refused}")
        require(foreign.list("") == names, "a foreign disk is not touched", foreign.list(""))
    else:
        require(False, "a foreign disk is refused")
    empty = _open(sim, MemDisk())
    require(not empty.logs and not empty.clean_start, "an empty disk has no logs")
    sim.kill()


def _open(sim: "Simulator", disk: MemDisk) -> LogManager:
    return LogManager.open(
        disk,
        cluster_id=CLUSTER,
        broker_id=1,
        directory_id="dir-2",
        boot_id=f"boot-{sim.boots}",
        now_ms=sim.now,
    )


def recreate_topic(sim: "Simulator") -> None:
    """Delete a topic and create another with its name, with the node up or down."""
    if not _is_in_order(sim):
        return
    node, one = sim.node, sim.dice.pick(list(sim.topics))
    assert node is not None
    config = sim.draw_config(compact=sim.topics[one].config.is_compacted)
    is_up = sim.dice.chance(0.7)
    if is_up:
        node.unhost(one)
    state = sim.create_topic(one, config)
    sim.restart_readers(one)
    if is_up and node.manager.fenced is None:
        node.host(state)
    else:
        sim.kill()
    sim.note("operator", "recreates the topic", one)


def change_config(sim: "Simulator") -> None:
    """Change the configuration of a topic, within its cleanup policy."""
    node, one = sim.node, sim.dice.pick(list(sim.topics))
    if node is None or one not in node.hosted:
        return
    state = sim.topics[one]
    drawn = sim.draw_config(compact=state.config.is_compacted)
    state.config = replace(drawn, cleanup_policy=state.config.cleanup_policy)
    if drawn.flush == "os":
        sim.histories[state.topic_id].became_os()
    node.configure(state)
    sim.note("operator", f"flush={drawn.flush} segment={drawn.segment_bytes}", one)


def delete_records(sim: "Simulator") -> None:
    """Call DeleteRecords at some offset, also at one where it is refused."""
    node, hosted = sim.node, _any_hosted(sim)
    assert node is not None
    bounds = hosted.bounds()
    offset = sim.dice.between(max(bounds.log_start - 5, -1), bounds.log_end + 1)
    code = node.delete_records(hosted.topic_partition, offset)
    history = sim.histories[hosted.log.topic_id]
    if code == ErrorCode.NONE:
        history.log_start = max(history.log_start, offset)
        require(
            hosted.partition.log_start == history.log_start,
            "DeleteRecords moves the log start",
            hosted.bounds(),
        )
    sim.note("operator", f"deletes below {offset}: {code.name}", hosted.topic_partition)


def roll(sim: "Simulator") -> None:
    """Begin a new segment."""
    hosted = _any_hosted(sim)
    assert sim.node is not None
    sim.node.roll(hosted.topic_partition)
    sim.note("node", "rolls", hosted.topic_partition)


def audit(sim: "Simulator") -> None:
    """Read everything and compare; no fault."""
    sim.audit()


def _any_hosted(sim: "Simulator") -> Hosted:
    assert sim.node is not None
    return sim.dice.pick(list(sim.node.hosted.values()))


def _is_in_order(sim: "Simulator") -> bool:
    """Return True if the disk takes writes and syncs."""
    return (
        sim.node is not None
        and sim.node.manager.fenced is None
        and not sim.disk.is_failing
        and sim.disk.capacity_bytes >= NO_LIMIT
    )


FAULTS: Final[dict[str, tuple[Callable[["Simulator"], None], int]]] = {
    "kill": (kill, 4),
    "lose_power": (lose_power, 4),
    "stop_cleanly": (stop_cleanly, 2),
    "fill_disk": (fill_disk, 2),
    "fail_syncs": (fail_syncs, 1),
    "fail_writes": (fail_writes, 1),
    "flip_tail": (flip_tail, 2),
    "flip_synced": (flip_synced, 2),
    "swap_disk": (swap_disk, 1),
    "recreate_topic": (recreate_topic, 1),
    "change_config": (change_config, 2),
    "delete_records": (delete_records, 3),
    "roll": (roll, 3),
    "audit": (audit, 2),
}
"""Faults by name, each with its weight."""


class Injector:
    """Injector of the faults that the seed drew, at random intervals."""

    def __init__(self, sim: "Simulator") -> None:
        self._sim = sim
        allowed = FAULTS if sim.options.faults is None else sim.options.faults
        drawn = [name for name in FAULTS if name in allowed and sim.dice.chance(0.7)]
        self._choices = [(FAULTS[name][0], FAULTS[name][1]) for name in drawn]
        self._pace_ms = sim.dice.pick((40, 80, 200))
        self._is_stopped = False

    def start(self) -> None:
        """Schedule the first fault, soon."""
        if self._choices:
            self._sim.after(self._sim.dice.between(1, 2 * self._pace_ms), self._strike)

    def stop(self) -> None:
        """Inject no fault from now on."""
        self._is_stopped = True
        self._sim.disk.capacity_bytes = NO_LIMIT

    def _strike(self) -> None:
        sim = self._sim
        if self._is_stopped:
            return
        if sim.node is not None:
            sim.dice.weighted(self._choices)(sim)
        sim.after(sim.dice.between(1, 2 * self._pace_ms), self._strike)
