"""The simulator of a cluster with transactions: the plain one's brokers and controllers, with
groups and gRPC; two txn-coordinators; writers and workers, or in every sixth seed the drivers and
tasks of streaming queries, and in another sixth users of durable handles; readers of committed
records.

The state of transactions has two partitions, so that both coordinators may have one; that of groups
has one.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.consumer.member import ConsumerMember as LoggedMember
from broker.core.groups.coordinator_shard import CoordinatorShard
from broker.core.groups.shard import GroupShard
from broker.shell.partitions.hosted import HostedPartition
from tidemark.codec.control_record import EndTxnMarker, OwnerRecord, read_control
from tidemark.codec.record_batch import BatchHeader
from tidemark.codec.records import read_records
from tidemark.codec.txn_records import HandleRecord, TransactionRecord, decode
from tidemark.model.metadata import TXN
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from txn_coordinator.core.shard import TxnShard
from txn_coordinator.shell.shard_life import ShardLife

from sim.checkers import require
from sim.cluster import fleeting
from sim.cluster.aborted import check_transactions
from sim.cluster.consumer_member import ConsumerMember, Owners
from sim.cluster.coordinated_world import CoordinatedWorld, is_busy
from sim.cluster.handle_workload import HandleHistory, Opener
from sim.cluster.parts import CoordinatorReplica, Machine, Options, SimTopic
from sim.cluster.rolling_member import RollingMember
from sim.cluster.sink_workload import SinkLife
from sim.cluster.state_ledger import StateLedger
from sim.cluster.state_log import Ending, Markers, StateLog
from sim.cluster.txn_client import CommittedReader, TailClient
from sim.cluster.txn_history import Committed, Row, TxnHistory, copied_once
from sim.cluster.txn_processes import SESSION_MS, TxnCoordinatorProcess, coordinating_config
from sim.cluster.txn_workload import GROUP, Member, NaiveWorker, Worker, Writer, committed_offset
from sim.cluster.watching import batches_of
from sim.cluster.world import make_topic
from sim.dice import Dice

DRAIN_MS: Final = 12_000
"""Longest time after healing until every transaction has ended and all is copied."""
STATE_PARTITIONS: Final = 2
FLEETING_DICE: Final = 4_000_003
ROLLING_DICE: Final = 5_000_011
ROLLING: Final = 0.3
"""Share of the seeds with members in which they change their protocol."""
FLEETING: Final = 0.4
"""Share of the seeds in which a topic is created and deleted while transactions write to it."""


@dataclass(frozen=True)
class TxnOptions(Options):
    """Options of a run with transactions besides its seed."""

    length_ms: int = 3_000
    is_naive: bool = False
    """True if workers copy without transactions."""
    is_v2: bool | None = None
    """True for transactions v2, False for v1; None: drawn."""
    is_kip_848: bool | None = None
    """True for a group of KIP-848; None: classic, and KIP-848's in every third seed."""
    is_rolling: bool | None = None
    """True if members change their protocol; None: in some of the seeds that have members."""
    is_sink: bool | None = None
    """True if clients are the drivers of streaming queries; None: in every sixth seed."""
    has_handles: bool | None = None
    """True if clients use durable handles; None: in every sixth seed."""


def _topics(seed: int) -> list[SimTopic]:
    """Return two topics for writers, one for workers, and the coordinators' own."""

    def replicas(number: int) -> tuple[int, ...]:
        start = (seed + number) % 3
        return (1, 2, 3, 1, 2)[start : start + 3]

    data = {"min.insync.replicas": "2", "flush": "os"}
    state = {**data, "cleanup.policy": "compact", "delete.retention.ms": "200"}
    state["min.cleanable.dirty.ratio"] = "0.01"
    topics = [
        make_topic(number, name, data, replicas(number))
        for number, name in enumerate(("orders", "prices", "copies"))
    ]
    offsets = make_topic(3, CONSUMER_OFFSETS, state, replicas(3))
    offsets.ledger = StateLedger(offsets.title)
    topics.append(offsets)
    for partition in range(STATE_PARTITIONS):
        one = make_topic(4, TRANSACTION_STATE, state, replicas(4 + partition))
        one.partition = partition
        one.ledger = StateLedger(one.title)
        topics.append(one)
    return topics


def _is_sixth(seed: int, rest: int, options: TxnOptions, asked: bool | None) -> bool:
    return seed % 6 == rest and not options.is_naive if asked is None else asked


class TxnWorld(CoordinatedWorld):
    """One run. See the module."""

    broker_config = staticmethod(coordinating_config)

    def __init__(self, seed: int, options: TxnOptions) -> None:
        super().__init__(seed, options, _topics(seed), kind=TXN, prefix="t")
        self.history = TxnHistory()
        self.markers = Markers()
        drawn_v2 = self.dice.chance(0.7)
        self.is_sink = _is_sixth(seed, 0, options, options.is_sink)
        self.has_handles = _is_sixth(seed, 3, options, options.has_handles)
        self.is_v2 = drawn_v2 if options.is_v2 is None else options.is_v2
        if self.is_sink or self.has_handles:
            self.is_v2 = True
        is_third = seed % 3 == 2
        self.is_kip_848 = is_third if options.is_kip_848 is None else options.is_kip_848
        rolling_dice = Dice(ROLLING_DICE + seed)
        is_drawn = rolling_dice.chance(ROLLING) and not options.is_naive
        self.is_rolling = is_drawn if options.is_rolling is None else options.is_rolling
        self.is_cooperative = rolling_dice.chance(0.5)
        """True if members of the classic protocol that roll are cooperative."""
        self.assignor = ("range", "uniform")[seed // 3 % 2]
        """Assignor of the group: "range" moves partitions to members that sort earlier."""
        self.owners = Owners(SESSION_MS)
        self.timeout_ms = self.dice.pick((700, 1_500))
        self.inputs, self.copies = self.topics[:2], self.topics[2]
        self.offsets_topic = self.topics[3]
        self.state_logs = {
            one.partition: StateLog(one.title)
            for one in self.topics
            if one.name == TRANSACTION_STATE
        }
        self.is_naive = options.is_naive
        self.repeated_count = 0
        """Number of inputs that the naive loop wrote to the output more than once."""
        self.handed_out = 0
        """Number of hand-outs to tasks of a sink's batches."""
        self.sink = SinkLife(self) if self.is_sink else None
        self.handles = HandleHistory(self.history)
        self._writing: list[asyncio.Task[None]] = []
        self._there: Committed | None = None

    def _faults_of_its_own(self) -> Mapping[str, tuple[Callable[[Any], None], int]]:
        from sim.cluster.txn_faults import TXN_FAULTS

        return TXN_FAULTS

    def _draw_apart(self, seed: int) -> list[str]:
        is_drawn = Dice(FLEETING_DICE + seed).chance(FLEETING)
        return [*super()._draw_apart(seed), *(["delete_topic"] if is_drawn else [])]

    # -- processes

    @property
    def state_topics(self) -> list[SimTopic]:
        """See CoordinatedWorld."""
        return [one for one in self.topics if one.name in (TRANSACTION_STATE, CONSUMER_OFFSETS)]

    def shards(self) -> set[tuple[str, int]]:
        """See CoordinatedWorld."""
        return {(TXN, shard) for shard in self.state_logs}

    def make_coordinator(self, replica: CoordinatorReplica) -> TxnCoordinatorProcess:
        """See CoordinatedWorld."""
        return TxnCoordinatorProcess(
            replica.host,
            self,
            self.zookeeper,
            self.dice,
            replica.number,
            self.options.timing,
        )

    # -- clients

    def _start_clients(self) -> "list[asyncio.Task[None]]":
        if self.sink is not None or self.has_handles:
            sharing = self.sink.drivers if self.sink is not None else self._openers()
            self._writing = [self._client_task(one.run(), one.name) for one in sharing]
            return [*self._writing, *self._readers(self.inputs)]
        writers = [self._writer(number) for number in range(1, self.dice.between(1, 2) + 1)]
        self._writing = [self._client_task(one.run(), one.name) for one in writers]
        workers = self._workers()
        return [
            *self._writing,
            *(self._client_task(one.run(), one.name) for one in workers),
            *self._readers((self.inputs[1], self.copies)),
        ]

    def _readers(self, topics: Sequence[SimTopic]) -> "list[asyncio.Task[None]]":
        readers = [
            CommittedReader(self, topic, f"r{number}") for number, topic in enumerate(topics, 1)
        ]
        return [self._client_task(one.run(), one.name) for one in readers]

    def _openers(self) -> list[Opener]:
        names = ("h1", "h2")[: self.dice.between(1, 2)]
        return [Opener(self, self.handles, name) for name in names]

    def _writer(self, number: int) -> Writer:
        return Writer(self, f"p{number}", is_v2=self.is_v2, timeout_ms=self.timeout_ms)

    def _member(self, name: str) -> Member:
        if self.is_rolling:
            return RollingMember(self, name, self.inputs[0])
        return ConsumerMember(self, name, self.inputs[0]) if self.is_kip_848 else Member(self, name)

    def _workers(self) -> list[Worker]:
        """Return two workers, of which one is fenced by the group, or both by their transactional
        id.
        """
        kind = NaiveWorker if self.is_naive else Worker
        is_shared = self.dice.chance(0.3)
        return [
            kind(
                self,
                self._member(f"w{number}"),
                "w" if is_shared else f"w{number}",
                is_v2=self.is_v2,
                timeout_ms=self.timeout_ms,
            )
            for number in (1, 2)
        ]

    # -- checks

    def on_appended(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Check that a marker is appended only after its Prepare record is committed."""
        if topic.name == TRANSACTION_STATE:
            return
        for _, header in batches_of(hosted, start, hosted.partition.log_end):
            if header.is_control:
                ending = _ending_of(hosted, header)
                if ending is not None:
                    self.markers.written(ending, self._decided())

    def on_led(self, machine: Machine, hosted: HostedPartition) -> None:
        """Check the end of the committed records that a leader serves."""
        partition, ledger = hosted.partition, self.topic_of(hosted).ledger
        ledger.stable(
            machine.number,
            partition.leader_epoch,
            partition.last_stable,
            is_known=partition.commitment.is_known,
        )
        if hosted.topic_partition.topic == TRANSACTION_STATE:
            log = self.state_logs[hosted.topic_partition.partition]
            self._knows_owner(machine, hosted, log.owner_epoch)

    def _decided(self) -> set[Ending]:
        return set().union(*(one.prepared for one in self.state_logs.values()))

    def on_committed(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Take the state's records, and markers."""
        end = hosted.partition.high_watermark
        if topic.name == TRANSACTION_STATE:
            self._take_state(self.state_logs[topic.partition], hosted, start, end)
        else:
            for _, header in batches_of(hosted, start, end):
                self._take_committed(hosted, header)

    def _take_committed(self, hosted: HostedPartition, header: BatchHeader) -> None:
        at = hosted.topic_partition
        if header.is_control:
            ending = _ending_of(hosted, header)
            if ending is not None and self.is_v2:
                self.markers.committed(str(at), ending)
        elif header.is_transactional:
            known = (one.knows(header.producer_id) for one in self.state_logs.values())
            record = next((one for one in known if one is not None), None)
            self.markers.records(at, header.producer_id, header.producer_epoch, record)

    def _take_state(self, log: StateLog, hosted: HostedPartition, start: int, end: int) -> None:
        for batch, header in batches_of(hosted, start, end):
            if header.is_control:
                said = read_control(batch, header)
                if isinstance(said, OwnerRecord):
                    log.takes_over(said)
                    self.note("log", f"owner {said.owner_epoch} of shard {log.name[-1]}")
                continue
            for one in read_records(batch, header):
                record = None if one.key is None else decode(one.key, one.value)
                if record is not None:
                    log.takes(record)
                    if isinstance(record, TransactionRecord):
                        what = f"{record.transactional_id} {record.state.name}"
                        self.note("log", f"{what} e{record.producer_epoch}")
                    elif isinstance(record, HandleRecord):
                        what = f"{record.transactional_id} {record.state.name}"
                        self.note("log", f"{what} n{record.number}")

    def _look_at_owners(self) -> None:
        """Check that an owner of a shard without pending writes holds the committed state."""
        for replica in self.coordinators:
            if replica.process is not None and not replica.host.is_paused:
                for shard, life in replica.process.node.shards.serving().items():
                    assert isinstance(life, ShardLife)
                    self._look_at(replica, shard, life)

    def _look_at(self, replica: CoordinatorReplica, shard: int, life: ShardLife) -> None:
        log, runtime = self.state_logs[shard], life._runtime
        state = runtime.shard
        if life._owner_epoch == log.owner_epoch and not is_busy(runtime):
            assert isinstance(state, TxnShard)
            state.check()
            log.remembers(replica.host.name, dict(state._table.records))
            shared = {
                key: (one.record, {slot.slot: slot for slot in one.slots.values()})
                for key, one in state._table.multi_writer.items()
            }
            log.remembers_multi_writer(replica.host.name, shared)

    # -- the end

    def _drain(self) -> None:
        """Wait until every transaction has ended and all that is committed is copied."""
        draining = self._client_task(self._finish(), "final")
        deadline = self.now + DRAIN_MS
        self.pass_until(deadline, draining.done)
        require(draining.done(), "after healing every transaction ends, and all is copied")

    async def _finish(self) -> None:
        for task in self._writing:
            await asyncio.wait((task,))
        if self.is_sink or self.has_handles:
            rows = {one.name: await self._all_of(one) for one in self.inputs}
            self._there = Committed(rows, {})
            return
        source = await self._all_of(self.inputs[0])
        client = TailClient(self, self.offsets_topic)
        while True:
            position = None
            try:
                position = await committed_offset(client, self.inputs[0])
            except (OSError, TimeoutError):
                client.disconnect()
            end = source[-1][0] + 1 if source else 0
            if position is not None and position.is_stable and position.offset >= end:
                break
            await client.rest()
        await asyncio.sleep(0.3)  # a worker may be about to end its transaction
        while fleeting.has_open_transactions(self):
            await client.rest()
        rows = {one.name: await self._all_of(one) for one in (*self.inputs, self.copies)}
        offsets = {(GROUP, self.inputs[0].name): position.offset}
        self._there = Committed(rows, offsets)

    async def _all_of(self, topic: SimTopic) -> list[Row]:
        """Return all committed records of a topic, when they can no longer change."""
        while True:
            reader = CommittedReader(self, topic, f"final-{self.now}")
            rows: list[Row] = []
            try:
                while found := await self._more(reader):
                    rows += found[1:]
            except (OSError, TimeoutError):
                await reader.rest()
                continue
            if reader.position >= topic.ledger.end:
                return rows
            await reader.rest()

    @staticmethod
    async def _more(reader: CommittedReader) -> list[Row]:
        """Return a row that marks progress, and the rows of a poll; [] without progress."""
        before = reader.position
        rows = await reader.poll()
        return [(before, b""), *rows] if reader.position > before else []

    def _look_at_groups(self) -> None:
        """Check that the coordinator of the groups holds the content of the log."""
        leader = self.offsets_topic.ledger.state.leader
        process = next(one.process for one in self.machines if one.number == leader)
        assert process is not None, "after healing it runs"
        broker = process.broker
        groups = broker.groups.coordinator
        held = groups._held[self.offsets_topic.partition]
        assert held.runtime is not None, "after healing it serves"
        told = GroupShard(broker.config.group_settings(), lambda: groups._topics)
        logged = CoordinatorShard(told)
        for batch, _ in batches_of(held.hosted, 0, held.hosted.partition.high_watermark):
            held.runtime._replay(logged, batch)
        served = held.runtime.shard
        assert isinstance(served, CoordinatorShard)
        state = served.groups
        fleeting.check_offsets(self, {partition for _, partition in _positions(state)})
        require(
            _positions(state) == _positions(told),
            "coordinators of groups hold what the log says",
            f"{_positions(state)}, the log says {_positions(told)}",
        )
        if not is_busy(held.runtime):
            require(
                _members(state) == _members(told),
                "coordinators of groups hold what the log says",
                f"{_members(state)}, the log says {_members(told)}",
            )

    def _compare(self) -> None:
        super()._compare()
        self._look_at_transactions()
        self._look_at_groups()
        there = self._there
        assert there is not None, "_drain() has read everything"
        if self.is_sink or self.has_handles:
            checker = self.handles if self.sink is None else self.sink.history
            checker.ends(there.rows)
            self.history.ends(there)
            return
        source, copies = there.rows[self.inputs[0].name], there.rows[self.copies.name]
        ((_, end),) = there.offsets.items()
        if self.is_naive:
            self.repeated_count = copied_once(source, copies, end, at_least_once=True)
        else:
            self.history.ends(there)
            copied_once(source, copies, end)

    def _look_at_transactions(self) -> None:
        for machine in self.machines:
            assert machine.process is not None
            for hosted in machine.process.broker.partitions.table.by_name.values():
                check_transactions(machine.number, hosted)


def _positions(shard: GroupShard) -> dict[tuple[str, str], int]:
    """Return the offsets of groups, by group and partition."""
    return {
        (group_id, str(partition)): committed.value.offset
        for group_id, positions in shard._offsets._groups.items()
        for partition, committed in positions.items()
    }


def _members(shard: GroupShard) -> dict[tuple[str, str], LoggedMember]:
    """Return the members of groups of the new protocol, by group and member id."""
    return {
        (group_id, member.member_id): member
        for group_id, group in shard._groups.items()
        if isinstance(group, ConsumerGroup)
        for member in group.logged.members.values()
    }


def _ending_of(hosted: HostedPartition, header: BatchHeader) -> Ending | None:
    """Return the content of the marker at this offset."""
    for batch, found in batches_of(hosted, header.base_offset, header.last_offset + 1):
        said = read_control(batch, found)
        if isinstance(said, EndTxnMarker):
            return Ending(found.producer_id, found.producer_epoch, said.commits)
    return None
