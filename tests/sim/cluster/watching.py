"""Watch: checks of a cluster from outside after every event, which feed the ledgers."""

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from broker.core.partition import Partition, Role
from broker.shell.partitions.hosted import HostedPartition
from broker.storage.directory import LogDamagedError
from tidemark.codec.record_batch import BatchHeader, iterate_headers
from tidemark.runtime import zk_paths
from tidemark.storage.mem_disk import MemDisk

from sim.checkers import BrokenError, require
from sim.cluster.client import stored_batches
from sim.cluster.ledger import State, Stored
from sim.cluster.parts import Machine, Seen, SimTopic, readable
from sim.cluster.processes import BrokerProcess
from sim.znode_tree import Transaction

if TYPE_CHECKING:
    from sim.cluster.world import World

EVERYTHING: Final = 1 << 30
NOBODY: Final = -2
"""Broker id of a machine whose id another process has taken over."""
YOUNG_MS: Final = 1_000
"""Age below which a process may not have read the synced end of its log."""
CONTROLLERS_OWN: Final = (
    zk_paths.REGISTERED_BROKERS + "/",
    zk_paths.TOPICS + "/",
    zk_paths.PARTITIONS + "/",
)


class Watch:
    """Watch of one run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._writer = ""
        self._ran: list[Machine] = []
        """Machines whose processes ran since the last check."""
        self._changed_topics: dict[int, SimTopic] = {}
        """By identity: topics to whose replicas or state something has happened."""
        self._incarnations: dict[int, str] = {}
        """Registered incarnation of each broker id."""
        self._deposed: dict[tuple[str, str, int], tuple[Machine, HostedPartition]] = {}

    def begins(self, machine: Machine) -> None:
        """Watch the machine's process, which is new there."""
        assert machine.process is not None
        loop = machine.process.loop
        loop.has_run, loop.on_run = True, partial(self._ran.append, machine)
        self._ran.append(machine)

    def on_commit(self, transaction: Transaction) -> None:
        self._check_writer(transaction)
        for path, znode in transaction.znodes:
            topic = self._world.by_path.get(path)
            if topic is not None and znode is None:
                topic.is_gone = True
            if topic is None or znode is None:
                if path.startswith(zk_paths.REGISTERED_BROKERS) and znode and znode.data:
                    self._registered(json.loads(znode.data))
                continue
            content = json.loads(znode.data)
            before = topic.ledger.state
            state = State(
                content["leader"],
                content["leader_epoch"],
                content["partition_epoch"],
                tuple(content["isr"]),
                tuple(content.get("elr", ())),
            )
            topic.ledger.stored(state)
            self._world.on_stored(topic, before)
            topic.replicas = tuple(content["replicas"])
            topic.is_moving = "adding" in content or "removing" in content
            self._changed_topics[id(topic)] = topic
            self._note_all_deposed(topic)
            if (state.leader, state.leader_epoch) != (before.leader, before.leader_epoch):
                members = f"leader {state.leader} isr {state.isr} elr {state.elr}"
            else:
                members = f"isr {state.isr} elr {state.elr}"
            moving = f" moving to {topic.replicas}" if topic.is_moving else ""
            self._world.note("zk", members + moving, topic)

    def _check_writer(self, transaction: Transaction) -> None:
        """Check that only the replica that raised the epoch last writes the controller's state."""
        record = self._world.zookeeper.sessions.get(transaction.session_id)
        if record is None or record.connection is None:
            return
        host = record.connection.session.host
        paths = [path for path, _ in transaction.znodes]
        if zk_paths.CONTROLLER_EPOCH in paths:
            self._writer = host
        if any(path.startswith(CONTROLLERS_OWN) for path in paths):
            require(
                host == self._writer,
                "only the elected controller writes",
                f"{host} wrote {paths}, elected was {self._writer}",
            )
            self._world.controller_wrote(host)

    def _registered(self, content: dict[str, object]) -> None:
        """Note a registration: what this incarnation lost no longer counts as its own."""
        same_id = [one for one in self._world.brokers if one.number == content["broker_id"]]
        if not content["fenced"]:
            self._incarnations[int(str(content["broker_id"]))] = str(content["incarnation_id"])
        for machine in same_id if not content["fenced"] else ():
            process = machine.process
            if process is not None and content["incarnation_id"] == (
                process.service.incarnation_id.hex()
            ):
                for other in same_id:
                    other.is_lossy = other is not machine
                self._changed_topics.update((id(topic), topic) for topic in self._world.topics)
                if machine.was_hurt:
                    self._whole(machine, process)

    def _whole(self, machine: Machine, process: BrokerProcess) -> None:
        """Check that a registered broker with a failed disk has all that counts as its own."""
        if not machine.is_failing and not machine.has_fenced:
            machine.is_hurt = False
        for topic in self._world.topics:
            hosted = process.broker.partitions.table.by_name.get(topic.place)
            state = topic.ledger.state
            if hosted is not None and machine.number in (*state.isr, *state.elr):
                self.check_content(machine, hosted)

    def check_content(self, machine: Machine, hosted: HostedPartition) -> None:
        """Check that a log that may have been damaged has every committed batch as it was
        committed, except for those that compaction has removed, on each replica in its own time.

        Damage in an older segment is found by its readers and by the scrubber, possibly later.
        """
        from sim.cluster.disk_faults import is_rotten

        topic = self._world.topic_of(hosted)
        damaged = [path for disk, path in machine.rotten if is_rotten(disk, path)]
        if any(path.startswith(f"{topic.title}/") for path in damaged):
            return
        if not topic.may_lose and not hosted.log.config.is_compacted:
            found = log_of(hosted, 0, hosted.partition.log_end, with_values=False)
            topic.ledger.agrees(machine.number, found, log_start=hosted.log.log_start)

    def check(self) -> None:
        """Check all that the last event changed."""
        for machine in self._ran:
            process = machine.process
            if process is None or not process.loop.has_run:
                continue
            process.loop.has_run = False
            seen = machine.seen
            for name, hosted in process.broker.partitions.table.by_name.items():
                partition = hosted.partition
                bounds = partition.bounds  # not by properties: this runs after every event
                now = (
                    bounds.log_end,
                    bounds.high_watermark,
                    partition.leader_epoch,
                    partition.role,
                    hosted.topic_id,
                )
                before = seen.get(name)
                if before != now:
                    is_another = before is None or before[-1] != hosted.topic_id
                    self._changed(machine, hosted, None if is_another else before)
                    seen[name] = now
        self._ran.clear()
        if self._changed_topics:
            for topic in self._changed_topics.values():
                self._check_members(topic)
            self._changed_topics.clear()
        if self._deposed:
            self._check_deposed()

    def _changed(self, machine: Machine, hosted: HostedPartition, before: Seen | None) -> None:
        partition, topic = hosted.partition, self._world.topic_of(hosted)
        self._changed_topics[id(topic)] = topic
        partition.check()
        if partition.role is Role.LEADER:
            if before is not None and before[0] < partition.log_end:
                self._world.on_appended(topic, hosted, before[0])
            self._check_leader(machine, hosted)
            self._world.on_led(machine, hosted)
        elif before is not None and _has_failed_as_leader(partition, before):
            self._check_leader(
                machine, hosted
            )  # batches that it committed before, in the same event
        elif before is not None and partition.log_end < before[0]:
            self._world.note(machine.host.name, f"cuts to {partition.log_end}", topic)
            self._check_producers(machine, hosted)
        self._note_deposed(machine, hosted)

    def _note_deposed(self, machine: Machine, hosted: HostedPartition) -> None:
        """Note a broker that still acts as leader after ZooKeeper has another one."""
        topic = self._world.topic_of(hosted)
        place, partition = (machine.host.name, *topic.place), hosted.partition
        is_deposed = (
            partition.role is Role.LEADER
            and topic.ledger.state.leader_epoch > partition.leader_epoch
        )
        if is_deposed:
            self._deposed[place] = machine, hosted
        else:
            self._deposed.pop(place, None)

    def _note_all_deposed(self, topic: SimTopic) -> None:
        for machine in self._world.brokers:
            if machine.process is not None:
                hosted = machine.process.broker.partitions.table.by_name.get(topic.place)
                if hosted is not None:
                    self._note_deposed(machine, hosted)

    def _check_deposed(self) -> None:
        for place, (machine, hosted) in tuple(self._deposed.items()):
            process = machine.process
            if (
                process is None
                or process.broker.partitions.table.by_name.get(hosted.topic_partition) is not hosted
            ):
                del self._deposed[place]
            elif not machine.host.is_paused and process.keeper.holds():
                epoch = hosted.partition.leader_epoch
                is_replaced = machine in self._world.ghosts and not self._is_registered(machine)
                broker = NOBODY if is_replaced else machine.number
                self._world.topic_of(hosted).ledger.claims_alone(broker, epoch)

    def _is_registered(self, machine: Machine) -> bool:
        """Return True if the controller knows this process by the broker id: one that shall take
        its place has not registered yet.
        """
        assert machine.process is not None
        known = self._incarnations.get(machine.number)
        return known == machine.process.service.incarnation_id.hex()

    def _check_leader(self, machine: Machine, hosted: HostedPartition) -> None:
        partition, topic = hosted.partition, self._world.topic_of(hosted)
        ledger = topic.ledger
        ledger.leads(machine.number, partition.leader_epoch)
        if ledger.delete_asked and not topic.may_lose:
            ledger.begins(machine.number, partition.leader_epoch, partition.log_start)
        if topic.may_lose:
            return
        start = ledger.end
        if partition.high_watermark > start:
            found = log_of(hosted, start, partition.high_watermark)
            batches = [one for one in found if one.first >= start]
            ledger.commits(machine.number, partition.high_watermark, batches)
            self._world.on_committed(topic, hosted, start)
            if partition.limits.flush_group:
                self._check_synced(topic)

    def _check_producers(self, machine: Machine, hosted: HostedPartition) -> None:
        """Check that the table of producers has forgotten truncated batches."""
        last = [
            batch.last_offset for entry in hosted.log.producers.entries() for batch in entry.batches
        ]
        self._world.topic_of(hosted).ledger.remembers(
            machine.number, max(last, default=-1) + 1, hosted.partition.log_end
        )

    def _members(
        self, topic: SimTopic, numbers: tuple[int, ...]
    ) -> list[tuple[Machine, HostedPartition]]:
        found = []
        for machine in self._world.brokers:
            if machine.number not in numbers or machine.is_lossy:
                continue
            process = machine.process
            if process is None:
                continue
            hosted = process.broker.partitions.table.by_name.get(topic.place)
            if hosted is not None:
                found.append((machine, hosted))
        return found

    def _check_members(self, topic: SimTopic) -> None:
        ledger = topic.ledger
        if topic.may_lose:
            return
        for why, numbers in (("a member of the ISR", ledger.state.isr), ("ELR", ledger.state.elr)):
            for machine, hosted in self._members(topic, numbers):
                if hosted.partition.log_end < ledger.end:
                    ledger.holds(machine.number, hosted.partition.log_end, why=why)

    def _check_synced(self, topic: SimTopic) -> None:
        for machine, hosted in self._members(topic, topic.ledger.state.isr):
            if self._world.now - machine.began_at > YOUNG_MS:
                topic.ledger.synced(machine.number, hosted.log.synced_end)


def log_of(
    hosted: HostedPartition, start: int, end: int, *, with_values: bool = True
) -> list[Stored]:
    """Return the batches of a log that can be read."""
    try:
        return stored_batches(records_of(hosted, start, end), with_values=with_values)
    except (LogDamagedError, ValueError) as damage:
        raise BrokenError("logs can be read", f"{hosted.topic_partition}: {damage}") from damage


def records_of(hosted: HostedPartition, start: int, end: int) -> bytes:
    """Return bytes of a log, whatever fails on its disk."""
    start = max(start, hosted.log.log_start)
    if end <= start:
        return b""
    with readable(cast("MemDisk", hosted.manager.disk)):
        read = hosted.log.read(start, EVERYTHING, end=end)
        return b"".join(one.file.read_at(one.position, one.length) for one in read.slices)


def _has_failed_as_leader(partition: Partition, before: Seen) -> bool:
    return partition.role is Role.FAILED and before[2:4] == (partition.leader_epoch, Role.LEADER)


def batches_of(
    hosted: HostedPartition, start: int, end: int
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield the batches of a log, from ``start`` on."""
    content = memoryview(records_of(hosted, start, end))
    for position, header in iterate_headers(content):
        if start <= header.base_offset < end:
            yield content[position : position + header.size_bytes], header
