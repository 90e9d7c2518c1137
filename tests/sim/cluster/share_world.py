"""The simulator of a cluster with share groups: brokers, controllers, two share-coordinators;
producers, and members of one share group that is reset now and then. In some seeds the group orders
records by key, or members acknowledge within transactions, with a txn-coordinator.

The state of share groups has two partitions, and every other topic one.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.core.share.acknowledgement import AcknowledgeType
from broker.shell.partitions.hosted import HostedPartition
from share_coordinator.core.shard import ShareShard
from share_coordinator.shell.shard_life import ShardLife
from tidemark.codec import txn_records
from tidemark.codec.control_record import OwnerRecord, read_control
from tidemark.codec.records import read_records
from tidemark.codec.share_records import ShareSnapshotRecord, ShareUpdateRecord, decode
from tidemark.codec.share_transaction_records import TransactionEndRecord
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import SHARE, TXN
from tidemark.model.share_state import SharePartitionKey
from tidemark.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from txn_coordinator.core.transaction import PREPARE_COMMIT

from sim.checkers import require
from sim.cluster.coordinated_world import CoordinatedWorld, is_busy
from sim.cluster.coordinator_process import CoordinatorProcess
from sim.cluster.ledger import NO_STATE, State
from sim.cluster.lost_ends import LOSS_FAULTS
from sim.cluster.parts import CoordinatorReplica, Machine, Options, SimTopic
from sim.cluster.share_copier import ShareCopier
from sim.cluster.share_extent import draw_extent
from sim.cluster.share_faults import SHARE_FAULTS
from sim.cluster.share_history import ShareHistory
from sim.cluster.share_keys import KeyedProducer, Keys
from sim.cluster.share_letters import QUEUE
from sim.cluster.share_member import AGAIN, GROUP, Choice, Delivered, ShareMember, share_key
from sim.cluster.share_processes import (
    LIMIT,
    SHARE_HEARTBEAT_MS,
    ShareCoordinatorProcess,
    sharing_config,
)
from sim.cluster.share_state_log import ShareStateLog
from sim.cluster.state_ledger import PrunedLedger, StateLedger
from sim.cluster.state_log import StateLog
from sim.cluster.txn_client import AnyBroker
from sim.cluster.txn_history import TxnHistory
from sim.cluster.txn_processes import TxnCoordinatorProcess
from sim.cluster.watching import batches_of, log_of
from sim.cluster.world import make_topic
from sim.dice import Dice

DRAIN_MS: Final = 15_000
"""Longest time after healing until every record is finished."""
REST_MS: Final = 2_000
"""Longest time until all replicas have the last writes."""
STATE_PARTITIONS: Final = 2
MEMBERS: Final = 3
CARELESS_MS: Final = 400
"""Time after healing for which members are still careless."""
RESET_DICE: Final = 7_000_003
LOSS_DICE: Final = 7_000_045
OWN_DICE: Final = 7_000_021
RESETS: Final = 0.4
"""Share of the seeds in which the group is reset."""
LONG_LOCKS: Final = 0.3
LONG_LOCK_MS: Final = 1_300
"""Locks that outlast the session of a member, in this share of the seeds."""
KEY_ORDER: Final = 0.35
TRANSACTIONS: Final = 0.3
LETTERS: Final = 0.35
"""Shares of the seeds in which the group orders records by key, in which a member acknowledges
within transactions, and in which the group has a dead-letter queue.
"""
LOSSES: Final = 0.06
"""Share of the seeds in which a log may lose its end, of those without transactions, dead letters
and a reset.
"""
LOSSES_MS: Final = 6_000
"""Time under faults of such a world: most of it passes until a follower that is behind leads."""
_OUTCOMES: Final = (
    (AcknowledgeType.ACCEPT, 72),
    (AcknowledgeType.RELEASE, 9),
    (AcknowledgeType.REJECT, 5),
    (AcknowledgeType.RENEW, 7),
    (None, 7),
)
_RELEASES: Final = (((0, False), 4), ((40, False), 1), ((400, False), 2), ((0, True), 3))
"""Delay of a released record, in ms, and True if it is released as never received."""


@dataclass(frozen=True)
class ShareOptions(Options):
    """Options of a run with share groups besides its seed."""

    length_ms: int = 0
    """Time under faults; 0: drawn."""
    has_reset: bool | None = None
    """True if the group is reset, under locks that outlast its members; None: drawn."""
    has_keys: bool | None = None
    """True if the group orders records by key; None: drawn."""
    has_transactions: bool | None = None
    """True if a member acknowledges within transactions; None: drawn."""
    has_letters: bool | None = None
    """True if the group has a dead-letter queue; None: drawn."""
    has_losses: bool | None = None
    """True if a log loses its end, in a world without resets; None: drawn."""
    has_repeats: bool = True
    """True if members acknowledge some records again."""


def _topics(seed: int, *, has_transactions: bool, has_letters: bool) -> list[SimTopic]:
    """Return two topics for producers, the coordinators' own, the dead-letter queue, and last the
    one for copies.
    """

    def replicas(number: int) -> tuple[int, ...]:
        start = (seed + number) % 3
        return (1, 2, 3, 1, 2)[start : start + 3]

    data = {"min.insync.replicas": "2", "flush": "os"}
    topics = [
        make_topic(number, name, dict(data), replicas(number))
        for number, name in enumerate(("orders", "prices"))
    ]
    offsets = make_topic(3, CONSUMER_OFFSETS, {**data, "cleanup.policy": "compact"}, replicas(3))
    offsets.ledger = StateLedger(offsets.title)
    topics.append(offsets)
    for partition in range(STATE_PARTITIONS):
        one = make_topic(4, SHARE_GROUP_STATE, dict(data), replicas(4 + partition))
        one.partition = partition
        one.ledger = PrunedLedger(one.title)
        topics.append(one)
    if has_transactions or has_letters:
        compacted = {**data, "cleanup.policy": "compact", "delete.retention.ms": "200"}
        state = make_topic(5, TRANSACTION_STATE, compacted, replicas(6))
        state.ledger = StateLedger(state.title)
        topics.append(state)
    if has_letters:
        queue = {**data, "errors.deadletterqueue.group.enable": "true"}
        letters = make_topic(7, QUEUE, queue, replicas(8))
        letters.ledger = StateLedger(letters.title)
        topics.append(letters)
    if has_transactions:
        topics.append(make_topic(6, "copies", dict(data), replicas(7)))
    return topics


def _drawn(dice: Dice, share: float, asked: bool | None) -> bool:
    is_drawn = dice.chance(share)
    return is_drawn if asked is None else asked


class ShareWorld(CoordinatedWorld):
    """One run. See the module."""

    broker_config = staticmethod(sharing_config)
    heartbeat_ms = SHARE_HEARTBEAT_MS

    def __init__(self, seed: int, options: ShareOptions) -> None:
        apart = Dice(RESET_DICE + seed)
        is_reset_drawn, is_long_drawn = apart.chance(RESETS), apart.chance(LONG_LOCKS)
        self.has_keys = _drawn(apart, KEY_ORDER, options.has_keys)
        self.has_transactions = _drawn(apart, TRANSACTIONS, options.has_transactions)
        self.has_letters = _drawn(apart, LETTERS, options.has_letters)
        is_reset_drawn = is_reset_drawn and not options.has_losses
        self._has_reset = is_reset_drawn or bool(options.has_reset)
        others = self.has_transactions, self.has_letters, self._has_reset
        is_loss_drawn = _drawn(Dice(LOSS_DICE + seed), LOSSES, options.has_losses)
        self.has_losses = is_loss_drawn and not any(others)
        """True if a log may lose its end."""
        self.is_losing = False
        """True while that is being brought about."""
        self.unclean_until: dict[tuple[str, int], int] = {}
        """Time until which an unclean election is one that the operator has asked for, by topic."""
        length_ms = options.length_ms or (LOSSES_MS if self.has_losses else 0)
        extent = draw_extent(seed, length_ms)
        self.unfinished_max = extent.unfinished_max
        self.fault_paces_ms = extent.fault_paces_ms
        order = {"share.record.order": "key"} if self.has_keys else {}
        letters = {"errors.deadletterqueue.topic.name": QUEUE} if self.has_letters else {}
        self.group_configs = {GROUP: order | letters} if order | letters else {}
        self.has_txn_coordinator = self.has_transactions or self.has_letters
        topics = _topics(seed, has_transactions=self.has_transactions, has_letters=self.has_letters)
        if extent.has_one_leader:
            for topic in topics:
                topic.replicas = topics[0].replicas
        super().__init__(seed, options, topics, kind=SHARE, prefix="s")
        self.length_ms = extent.length_ms
        if not extent.is_long:
            self.well_ms = 0
        if self.has_txn_coordinator:
            replica = CoordinatorReplica(1, self.network.host("t1"), TXN)
            self.coordinators.append(replica)
        self.inputs = self.topics[:2]
        self.offsets_topic = self.topics[2]
        self.copies = self.topics[-1]
        """Topic that transactions write to, if there are any."""
        self.txn_log = StateLog(TRANSACTION_STATE)
        self.txn_history = TxnHistory()
        self.history = ShareHistory(LIMIT)
        self.history.letters.is_copied = self.has_letters
        if self.has_keys:
            self.history.key_of = Keys({share_key(one): one for one in self.inputs}).of
        self.state_logs = {
            one.partition: ShareStateLog(one.title, self.history)
            for one in self.topics
            if one.name == SHARE_GROUP_STATE
        }
        self.has_repeats = options.has_repeats
        self._own_dice = Dice(OWN_DICE + seed)
        self._careful_at = 2**63
        self._finite: list[asyncio.Task[None]] = []
        """Clients that end by themselves."""
        self.is_resting = False
        """True while the members stay away from the group."""
        if is_long_drawn or options.has_reset:
            self.drawn_config |= {"group_share_record_lock_duration_ms": LONG_LOCK_MS}

    def _faults_of_its_own(self) -> Mapping[str, tuple[Callable[[Any], None], int]]:
        return SHARE_FAULTS

    def _draw_apart(self, seed: int) -> list[str]:
        return [*super()._draw_apart(seed), *(LOSS_FAULTS if self.has_losses else ())]

    @property
    def state_topics(self) -> list[SimTopic]:
        """See CoordinatedWorld."""
        names = (SHARE_GROUP_STATE, CONSUMER_OFFSETS, TRANSACTION_STATE)
        return [one for one in self.topics if one.name in names]

    def shards(self) -> set[tuple[str, int]]:
        """See CoordinatedWorld."""
        shards = {(SHARE, shard) for shard in self.state_logs}
        return shards | {(TXN, 0)} if self.has_txn_coordinator else shards

    def make_coordinator(self, replica: CoordinatorReplica) -> CoordinatorProcess:
        """See CoordinatedWorld."""
        make = ShareCoordinatorProcess if replica.kind == SHARE else TxnCoordinatorProcess
        return make(
            replica.host, self, self.zookeeper, self.dice, replica.number, self.options.timing
        )

    # -- clients

    def _start_clients(self) -> "list[asyncio.Task[None]]":
        tasks = []
        for number, topic in enumerate(self.inputs, 1):
            producer = KeyedProducer(self, topic, number)
            tasks.append(self._client_task(producer.run(lambda: self.is_draining), producer.name))
            self._finite.append(tasks[-1])
        members = [ShareMember(self, f"m{number}") for number in range(1, MEMBERS)]
        last = f"m{MEMBERS}"
        members.append(
            ShareCopier(self, last) if self.has_transactions else ShareMember(self, last)
        )
        for member in members:
            tasks.append(self._client_task(member.run(), member.name))
        if self._has_reset:
            tasks.append(self._client_task(self._reset(), "reset"))
            self._finite.append(tasks[-1])
        return tasks

    def draw_choice(self) -> Choice | None:
        """Return what a member does with a record; None: it forgets it."""
        if self.now >= self._careful_at:
            return Choice(AcknowledgeType.ACCEPT)
        kind = self.dice.weighted(_OUTCOMES)
        if kind is not AcknowledgeType.RELEASE:
            return None if kind is None else Choice(kind)
        delay_ms, is_unseen = self._own_dice.weighted(_RELEASES)
        return Choice(kind, delay_ms, is_unseen)

    async def _reset(self) -> None:
        """Send the members away, and begin the partitions again at other offsets."""
        await asyncio.sleep(self.dice.between(self.length_ms // 6, self.length_ms * 2 // 3) / 1_000)
        self.is_resting = True
        client = AnyBroker(self, self.topics[0])
        deadline = self.now + 2_500
        while self.now < deadline and not await self._altered(client):
            await client.rest()
        self.is_resting = False

    async def _altered(self, client: AnyBroker) -> bool:
        topic = self.dice.pick(self.inputs)
        row = {"partition_index": topic.partition, "start_offset": self.dice.between(0, 6)}
        fields = {
            "group_id": GROUP,
            "topics": [{"topic_name": topic.name, "partitions": [row]}],
        }
        try:
            answer = await client.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, fields)
        except (OSError, TimeoutError):
            return False
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            code = ErrorCode(answer.responses[0].partitions[0].error_code)
        self.note("reset", f"{row['start_offset']}: {code.name}", topic)
        known = code in AGAIN or code in (
            ErrorCode.NONE,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
        require(known, "administrators hear what they understand", code.name)
        return code is ErrorCode.NONE

    def is_answered(self, key: SharePartitionKey, one: Delivered) -> None:
        """Check that an acknowledgement that was answered is durable."""
        if self.history.epochs.get(key) != one.state_epoch:
            return
        require(
            all(
                log.is_finished(key, one.state_epoch, one.offset)
                for log in self.state_logs.values()
            ),
            "an acknowledgement that is answered is kept",
            f"{key}@{one.offset}",
        )
        self.history.answers(key, one.state_epoch, one.offset)

    # -- checks

    def on_stored(self, topic: SimTopic, before: State) -> None:
        """Take an unclean election, which takes committed records."""
        state = topic.ledger.state
        if self.now > self.unclean_until.get(topic.place, -1):
            return  # whatever it loses is a finding
        if before is NO_STATE or state.leader in (-1, *before.isr, *before.elr):
            return
        (machine,) = (one for one in self.machines if one.number == state.leader)
        assert machine.process is not None, "a broker that is elected runs"
        hosted = machine.process.broker.partitions.table.by_name[topic.place]
        log_end, end = hosted.partition.log_end, topic.ledger.end
        left = topic.ledger.loses(log_of(hosted, 0, log_end, with_values=False))
        if left < end:
            self.note("log", f"loses its end: {left} of {end} are left", topic)
            self.history.loses(share_key(topic), state.leader_epoch, left)

    def on_led(self, machine: Machine, hosted: HostedPartition) -> None:
        """Check that the leader of a state fences former owners."""
        if hosted.topic_partition.topic == SHARE_GROUP_STATE:
            log = self.state_logs[hosted.topic_partition.partition]
            self._knows_owner(machine, hosted, log.owner_epoch)

    def on_committed(self, topic: SimTopic, hosted: HostedPartition, start: int) -> None:
        """Take the state's records."""
        if topic.name == TRANSACTION_STATE:
            self._take_decisions(hosted, start)
        if topic.name == QUEUE:
            self._take_copies(hosted, start)
        if topic.name != SHARE_GROUP_STATE:
            return
        log = self.state_logs[topic.partition]
        for batch, header in batches_of(hosted, start, hosted.partition.high_watermark):
            if header.is_control:
                owner = read_control(batch, header)
                if isinstance(owner, OwnerRecord):
                    log.takes_over(owner)
                    self.note("log", f"owner {owner.owner_epoch} of shard {topic.partition}")
                continue
            for one in read_records(batch, header):
                record = None if one.key is None else decode(one.key, one.value)
                if isinstance(record, ShareSnapshotRecord | ShareUpdateRecord):
                    log.takes(record)
                elif isinstance(record, TransactionEndRecord):
                    log.ends_transactions(record)

    def _take_copies(self, hosted: HostedPartition, start: int) -> None:
        topics = {one.name: bytes(one.topic_id) for one in self.inputs}
        for batch, header in batches_of(hosted, start, hosted.partition.high_watermark):
            if not header.is_control:
                self.note("letters", f"{header.record_count} copies", self.topics[0])
            self.history.letters.takes(batch, header, topics)

    def _take_decisions(self, hosted: HostedPartition, start: int) -> None:
        """Take the outcomes of transactions."""
        known = len(self.txn_log.prepared)
        for batch, header in batches_of(hosted, start, hosted.partition.high_watermark):
            for one in () if header.is_control else read_records(batch, header):
                record = None if one.key is None else txn_records.decode(one.key, one.value)
                if record is not None:
                    self.txn_log.takes(record)
                if len(self.txn_log.prepared) > known:
                    known += 1
                    assert isinstance(record, txn_records.TransactionRecord)
                    self._takes_decision(record)

    def _takes_decision(self, record: txn_records.TransactionRecord) -> None:
        commits = record.state is PREPARE_COMMIT
        self.note("log", f"{'commit' if commits else 'abort'} before e{record.producer_epoch}")
        transactions = self.history.transactions
        transactions.decides(record.producer_id, record.producer_epoch, commits=commits)

    def _look_at_owners(self) -> None:
        """Check that an owner of a shard without pending writes holds the committed state."""
        for replica in self.coordinators:
            if replica.kind != SHARE or replica.host.is_paused:
                continue
            if replica.process is not None:
                for shard, life in replica.process.node.shards.serving().items():
                    assert isinstance(life, ShardLife)
                    self._look_at(replica, self.state_logs[shard], life)

    def _look_at(self, replica: CoordinatorReplica, log: ShareStateLog, life: ShardLife) -> None:
        runtime = life._runtime
        if life._owner_epoch == log.owner_epoch and not is_busy(runtime):
            assert isinstance(runtime.shard, ShareShard)
            runtime.shard.check()
            log.remembers(replica.host.name, runtime.shard._states)

    def finished_end(self, topic: SimTopic) -> int:
        """Return the offset after the last record that the state says something about."""
        key = share_key(topic)
        found = (log.states.get(key) for log in self.state_logs.values())
        ends = (max([one.start, *(at + 1 for at in one.by_offset)]) for one in found if one)
        return max(ends, default=0)

    # -- the end

    def _end_work(self) -> None:
        """Let the members finish their work while the cluster gets in order."""
        self._drain()
        self._settle()

    def _drain(self) -> None:
        """Wait until every record is finished."""
        self._careful_at = self.now + CARELESS_MS
        self.pass_until(self.now + DRAIN_MS, self._is_drained)

    def _is_drained(self) -> bool:
        # This runs after every event: it ends at the first record that is not finished.
        return (
            all(self._start(one) >= one.ledger.end for one in self.inputs)
            and all(map(self._is_committed, self.inputs))
            and self.history.letters.is_complete
            and all(one.done() for one in self._finite)
        )

    def _is_committed(self, topic: SimTopic) -> bool:
        """False if a replica has records that are not committed yet: they are to be finished, too,
        as those are that a leader has acknowledged on its own.
        """
        return all(
            hosted.partition.log_end <= topic.ledger.end
            for machine in self._hosting(topic)
            if machine.process is not None
            and (hosted := machine.process.broker.partitions.table.by_name.get(topic.place))
        )

    def _is_at_rest(self, topic: SimTopic) -> bool:
        starts = {
            hosted.log.log_start
            for machine in self._hosting(topic)
            if machine.process is not None
            and (hosted := machine.process.broker.partitions.table.by_name.get(topic.place))
        }
        return self._is_whole(topic) and len(starts) == 1

    def unfinished(self) -> int:
        """Return the number of committed records that are not finished."""
        return sum(self._ends().values()) - sum(max(0, one) for one in self._starts().values())

    def _ends(self) -> dict[SharePartitionKey, int]:
        return {share_key(one): one.ledger.end for one in self.inputs}

    def _starts(self) -> dict[SharePartitionKey, int]:
        return {share_key(one): self._start(one) for one in self.inputs}

    def _start(self, topic: SimTopic) -> int:
        key = share_key(topic)
        found = (log.states.get(key) for log in self.state_logs.values())
        return next((one.start for one in found if one is not None), -1)

    def _compare(self) -> None:
        """Compare logs once the last writes of members that have gone are replicated."""
        self.pass_until(self.now + REST_MS, lambda: all(map(self._is_at_rest, self.topics)))
        super()._compare()
        self.history.ends(self._starts(), self._ends())
        self.history.letters.end()
