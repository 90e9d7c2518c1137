"""Partition: decisions of one replica. Pure: parsed header fields in, plans out; the shell owns
bytes, disk and clock.

The life of a batch is three calls, all in the connection's callback (DESIGN: the hot path):

    plan = partition.admit(header, size_bytes, ...)   checks, and offsets; changes nothing
    log.append(buffers, plan, now)                    storage
    partition.appended(plan)                          moves log_end; returns what became readable

A leader judges what its followers fetch (``judge_fetch``, ``follower_fetched``), moves the high
watermark to the minimum over the maximal ISR, and proposes ISRs. A follower takes batches as the
leader has them (``admit_replicated``), and truncates where the leader's log parts from its own: by
leader epoch, never by high watermark (KIP-101, KIP-279).

The state is in parts: ``LogBounds`` (where the log stands), ``ReplicaSet`` (ISR and followers),
``Commitment`` (high watermark) and ``Admission`` (producers). Role and leader epoch are here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.codec.control_record import ControlRecord
from tidemark.codec.record_batch import BatchHeader
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    InstantMs,
    LeaderEpoch,
    Offset,
    TopicId,
)
from tidemark.model.metadata import PartitionImage
from tidemark.model.topics import TopicPartition

from broker.core.admission import Admission
from broker.core.batch_rules import NO_TIMESTAMP, replicated_refused
from broker.core.batch_rules import AppendPlan as AppendPlan
from broker.core.batch_rules import PartitionLimits as PartitionLimits
from broker.core.batch_rules import Refusal as Refusal
from broker.core.batch_rules import Repeated as Repeated
from broker.core.bounds import FollowerRead, LogBounds
from broker.core.bounds import LogState as LogState
from broker.core.commitment import ACKS_ALL as ACKS_ALL
from broker.core.commitment import Commitment
from broker.core.isr import IsrProposal as IsrProposal
from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import Ended, ProducerTable
from broker.core.replica_progress import FollowerFetch as FollowerFetch
from broker.core.replica_set import ReplicaSet
from broker.core.role import (
    FAILED,
    FENCED,
    FOLLOWER,
    LEADER,
    NOT_FOLLOWER,
    NOT_LEADER,
    UNKNOWN_EPOCH,
    other_epoch,
)
from broker.core.role import Role as Role

_STORAGE: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the batch could not be written to the disk"
)
_OUT_OF_PLACE: Final = Refusal(
    ErrorCode.CORRUPT_MESSAGE, "a batch from the leader does not continue the log"
)


class Partition:
    """One replica of one partition.

    Its parts are public to be read. The properties are the state that most readers need; the hot
    path reads ``bounds`` itself, for a property costs as much as a call.
    """

    __slots__ = (
        "admission",
        "bounds",
        "broker_id",
        "commitment",
        "epochs",
        "leader",
        "leader_epoch",
        "limits",
        "producers",
        "replica_set",
        "role",
        "topic_id",
        "topic_partition",
        "verifications",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        broker_id: BrokerId,
        *,
        limits: PartitionLimits,
        state: LogState,
        epochs: LeaderEpochs,
        producers: ProducerTable,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.limits = limits
        self.epochs = epochs
        self.producers = producers
        self.admission = Admission(limits, producers)
        self.verifications = self.admission.verifications
        self.bounds = LogBounds(state, epochs)
        self.replica_set = ReplicaSet(broker_id, topic_id, topic_partition.partition)
        self.commitment = Commitment(limits, self.bounds, self.replica_set)
        self.role = Role.OFFLINE
        self.leader = BrokerId(-1)
        self.leader_epoch = LeaderEpoch(-1)

    # -- state, for readers

    @property
    def log_start(self) -> int:
        """First offset that a reader may ask for."""
        return self.bounds.log_start

    @property
    def high_watermark(self) -> int:
        """Exclusive: every record below it is committed."""
        return self.bounds.high_watermark

    @property
    def log_end(self) -> int:
        """Exclusive: the offset that the next record gets."""
        return self.bounds.log_end

    @property
    def synced_end(self) -> int:
        """Exclusive: every record below it is on disk."""
        return self.bounds.synced_end

    @property
    def last_stable(self) -> int:
        """First offset of a transaction that is open, or whose end is not replicated yet; else the
        high watermark.
        """
        bounds, txns = self.bounds, self.producers.txns
        if not txns:
            return bounds.high_watermark
        return max(bounds.log_start, txns.last_stable(bounds.high_watermark))

    @property
    def replicas(self) -> tuple[BrokerId, ...]:
        """Assigned replicas."""
        return self.replica_set.assigned

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """In-sync replicas, as agreed with the controller."""
        return self.replica_set.isr.agreed

    # -- the three calls

    def admit(
        self,
        header: BatchHeader,
        size_bytes: int,
        *,
        acks: int,
        leader_epoch_expected: int = -1,
        now_ms: int,
    ) -> AppendPlan | Repeated | Refusal:
        """Decide about one batch of ``size_bytes`` whose CRC is known to match. Changes nothing.

        ``leader_epoch_expected`` -1: any. ``now_ms`` is wall time.
        """
        if self.role is not LEADER:
            return FAILED if self.role is Role.FAILED else NOT_LEADER
        if leader_epoch_expected != -1 and leader_epoch_expected != self.leader_epoch:
            return FENCED if leader_epoch_expected < self.leader_epoch else UNKNOWN_EPOCH
        if acks != 1 and (refused := self.commitment.acks_refused(acks)) is not None:
            return refused
        decided = self.admission.judge(header, size_bytes, now_ms)
        if decided is not None:
            return decided
        first = self.bounds.log_end
        timestamp, appended_ms = header.max_timestamp, NO_TIMESTAMP
        if self.limits.log_append_time:
            timestamp = appended_ms = now_ms
        last = first + header.last_offset_delta
        # A NamedTuple's own constructor takes twice as long.
        return tuple.__new__(
            AppendPlan,
            (first, last, timestamp, self.leader_epoch, size_bytes, header, appended_ms, None),
        )

    def appended(self, plan: AppendPlan, now_ms: int) -> int:
        """Note that the batch is in the log. Return how many bytes became readable by it, 0 while
        the high watermark stays.
        """
        if self.role is not LEADER:
            self.replicated((plan,), now_ms)
            return 0
        bounds = self.bounds
        assert plan.first == bounds.log_end, (plan.first, bounds.log_end)
        bounds.log_end = plan.last + 1
        if plan.header.producer_id >= 0 or plan.control is not None:
            self.admission.appended(plan, now_ms)
            if plan.control is not None:
                self.producers.txns.replicated(bounds.high_watermark)
        commitment = self.commitment
        if commitment.at_once:
            bounds.high_watermark = plan.last + 1
            return plan.size_bytes
        commitment.unread.add(plan.last + 1, plan.size_bytes)
        return commitment.move() if commitment.alone else 0

    def append_failed(self, plan: AppendPlan, *, fenced: bool) -> Refusal:
        """Note that the disk did not take the batch, of which nothing is in the log. ``fenced``:
        its log directory is out of service.
        """
        assert plan.first >= self.bounds.log_end, (plan.first, self.bounds.log_end)
        if fenced:
            self.become_failed()
        return _STORAGE

    # -- batches of the broker itself

    def admit_own(
        self,
        header: BatchHeader,
        size_bytes: int,
        *,
        control: ControlRecord | None = None,
        bumped: bool = False,
        leader_epoch_expected: int = -1,
    ) -> AppendPlan | Repeated | Refusal:
        """Decide about a batch that a coordinator or this broker wrote, for acks=all: a marker, a
        change of owner, or records of a group. Changes nothing. ``bumped``: as for
        ``ProducerTable.check_marker``.
        """
        refused = self.epoch_refused(leader_epoch_expected) or self.commitment.acks_refused(
            ACKS_ALL
        )
        if refused is not None:
            return refused
        decided = self.admission.judge_internal(header, control, bumped=bumped)
        first = self.bounds.log_end
        if isinstance(decided, Ended):
            return Repeated(first - 1, first - 1, NO_TIMESTAMP)
        if decided is not None:
            return decided
        return AppendPlan(
            first,
            first + header.last_offset_delta,
            header.max_timestamp,
            self.leader_epoch,
            size_bytes,
            header._replace(base_offset=first),
            NO_TIMESTAMP,
            control,
        )

    def needs_verification(self, header: BatchHeader) -> bool:
        """Return True if the coordinator must be asked before this batch is admitted (KIP-890)."""
        return self.role is LEADER and self.admission.needs_verification(header)

    def epoch_refused(self, leader_epoch_expected: int) -> Refusal | None:
        """Return the refusal of a read or a lookup that names a leader epoch (-1: none), else
        None.
        """
        if self.role is not LEADER:
            return FAILED if self.role is Role.FAILED else NOT_LEADER
        if leader_epoch_expected == self.leader_epoch:
            return None
        return other_epoch(leader_epoch_expected, self.leader_epoch)

    def read_refused(self, leader_epoch_expected: int) -> Refusal | None:
        """Return the refusal of a consumer's read that an in-sync follower may serve as well
        (KIP-392), else None. Out of the ISR it may stay behind for ever, and its readers with it.
        """
        if self.role is not FOLLOWER:
            return self.epoch_refused(leader_epoch_expected)
        refused = other_epoch(leader_epoch_expected, self.leader_epoch)
        return refused or (None if self.broker_id in self.isr else NOT_LEADER)

    # -- roles

    def lead(self, state: PartitionImage, now: InstantMs) -> bool:
        """Become the leader in an epoch of the controller. Return False and change nothing if that
        epoch is older than the one here, or the disk failed.

        The high watermark stays (KIP-207). In the epoch that this replica leads already, only ISR
        and replicas are taken over, if they are newer.
        """
        if state.leader_epoch < self.leader_epoch or self.role is Role.FAILED:
            return False
        if self.role is LEADER and state.leader_epoch == self.leader_epoch:
            if not self.replica_set.update(state, now):
                return True
        else:
            self.role = LEADER
            self.leader = self.broker_id
            self.leader_epoch = state.leader_epoch
            self.verifications.clear()
            self.replica_set.begin_leading(state, now)
            self.commitment.begin_leading()
        self.commitment.settle()
        return True

    def follow(self, state: PartitionImage) -> bool:
        """Follow ``state.leader``. False, with nothing changed, if that epoch is older than the one
        here, or the disk failed.
        """
        if state.leader_epoch < self.leader_epoch or self.role is Role.FAILED:
            return False
        assert state.leader != self.broker_id, "a leader follows nobody"
        self._step_down(FOLLOWER, state.leader, state.leader_epoch)
        self.replica_set.follow(state)
        return True

    def become_offline(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Stop serving: the partition has no leader."""
        if self.role is Role.FAILED:
            self.leader_epoch = max(self.leader_epoch, leader_epoch)
        elif leader_epoch >= self.leader_epoch:
            self._step_down(Role.OFFLINE, leader, leader_epoch)

    def become_failed(self) -> None:
        """Stop serving until the next start: the log directory failed, and its content cannot be
        trusted.
        """
        self._step_down(Role.FAILED, NO_BROKER, self.leader_epoch)

    def _step_down(self, role: Role, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.role = role
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replica_set.stop_leading()
        self.commitment.stop_leading()
        self.commitment.settle()

    def configure(self, limits: PartitionLimits) -> None:
        """Apply the topic's new configuration."""
        self.limits = self.admission.limits = self.commitment.limits = limits
        self.commitment.settle()

    def synced(self, end: int) -> int:
        """Note that everything below ``end`` is on disk. Return the bytes that became readable."""
        self.bounds.synced(end)
        return self.commitment.move()

    def log_start_moved(self, log_start: int) -> None:
        """Note that retention or DeleteRecords removed the records below ``log_start``."""
        self.bounds.start_moved(log_start)

    # -- a leader's followers

    def judge_fetch(self, fetch: FollowerFetch, leader_epoch_expected: int) -> FollowerRead:
        """Decide about a follower's fetch. Changes nothing."""
        if self.role is not LEADER or leader_epoch_expected != self.leader_epoch:
            refused = self.epoch_refused(leader_epoch_expected)
            if refused is not None:
                return FollowerRead(refused.error_code, None)
        if not self.replica_set.is_follower(fetch):
            return FollowerRead(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        return self.bounds.judge_end(fetch.last_fetched_epoch, fetch.log_end)

    def follower_fetched(self, fetch: FollowerFetch, now: InstantMs) -> int:
        """Note that a follower, whose fetch ``judge_fetch`` accepted, has all records below its
        end. Return the bytes that became readable by it.
        """
        assert self.role is LEADER, str(self)
        counts = self.replica_set.fetched(fetch, self.bounds.log_end, now)
        return self.commitment.move() if counts else 0

    def propose(
        self, now: InstantMs, live: Mapping[BrokerId, BrokerEpoch], lag_ms: int
    ) -> IsrProposal | None:
        """Return the ISR to ask the controller for, pending from here on; None if the agreed one is
        right or another is pending. ``live``: epoch of every broker that may be in an ISR.
        """
        if self.role is not LEADER:
            return None
        proposal = self.replica_set.propose(
            now,
            live,
            lag_ms,
            leader_epoch=self.leader_epoch,
            starts_at=self.bounds.log_start,
            joins_at=self.commitment.joins_at,
            synced=self.limits.flush_group,
        )
        if proposal is not None:
            self.commitment.settle()
        return proposal

    def proposal_answered(
        self, proposal: IsrProposal, error_code: ErrorCode, state: PartitionImage | None
    ) -> int:
        """Take over the controller's answer to a proposal, with the partition's state now, if the
        answer has it. Return the bytes that became readable by it.
        """
        if self.role is not LEADER or proposal.leader_epoch != self.leader_epoch:
            return 0
        if state is not None and state.leader_epoch != self.leader_epoch:
            state = None
        self.replica_set.answered(proposal, error_code, state)
        return self.commitment.settle()

    # -- a follower

    def admit_replicated(
        self,
        header: BatchHeader,
        size_bytes: int,
        leader_epoch: int,
        behind: AppendPlan | None = None,
        control: ControlRecord | None = None,
    ) -> AppendPlan | Refusal:
        """Decide about a batch from the leader of ``leader_epoch``, whose CRC is known to match.
        Changes nothing. Offsets may leave gaps: the leader's log is compacted. ``behind``: the
        batch before it, admitted but not appended yet; None: the log's end.
        """
        if self.role is not FOLLOWER:
            return FAILED if self.role is Role.FAILED else NOT_FOLLOWER
        if leader_epoch != self.leader_epoch:
            return FENCED if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH
        refused = replicated_refused(header, size_bytes)
        if refused is not None:
            return refused
        if behind is None:
            end, epoch_min = self.bounds.log_end, self.bounds.last_epoch
        else:
            end, epoch_min = behind.last + 1, behind.leader_epoch
        base, epoch = header.base_offset, header.partition_leader_epoch
        if base < end or not epoch_min <= epoch <= leader_epoch:
            return _OUT_OF_PLACE
        last, timestamp = base + header.last_offset_delta, header.max_timestamp
        return tuple.__new__(
            AppendPlan, (base, last, timestamp, epoch, size_bytes, header, NO_TIMESTAMP, control)
        )

    def replicated(self, plans: Iterable[AppendPlan], now_ms: int) -> None:
        """Note that batches of the leader are in the log. The high watermark stays: it comes with
        the leader's answers.
        """
        bounds, producers = self.bounds, self.producers
        for first, last, _, _, _, header, _, control in plans:
            assert first >= bounds.log_end, (first, bounds.log_end)
            bounds.log_end = Offset(last + 1)
            producers.replay(header, now_ms, control)
        producers.txns.replicated(bounds.high_watermark)

    def leader_told(self, high_watermark: int) -> bool:
        """Take over the leader's high watermark as far as the records are here. Return True if the
        high watermark moved.
        """
        return self.role is FOLLOWER and self.bounds.follow(high_watermark)

    def truncation_for(self, leader_epoch: int, end: int) -> int:
        """Return the offset to truncate to, if the leader's log agrees with this one up to ``end``
        of ``leader_epoch`` at most.
        """
        return self.bounds.truncation_for(leader_epoch, end)

    def truncated(self, log_end: int, synced_end: int) -> None:
        """Note that the log was cut at ``log_end``, and its epochs and producers with it."""
        assert self.role is not LEADER, str(self)
        self.bounds.truncated(log_end, synced_end)

    def started_at(self, offset: int) -> None:
        """Note that the log was emptied and begins at ``offset``."""
        assert self.role is not LEADER, str(self)
        self.bounds.started_at(offset)

    def starts_within(self, header: BatchHeader) -> bool:
        """Return True if this log is empty and begins inside of a batch of the leader."""
        return self.bounds.starts_within(header.base_offset, header.last_offset)

    def check(self) -> None:
        """Assert the invariants."""
        self.bounds.check()
        assert self.last_stable <= self.bounds.high_watermark, str(self)
        leads = self.role is LEADER
        self.replica_set.check(leads=leads)
        self.commitment.check()
        assert self.commitment.leads == leads, str(self)
        assert not leads or self.leader == self.broker_id, str(self)

    def __str__(self) -> str:
        """One line: ``orders-3 L e7  0/_40/_42 isr=1,2 +1,2,3``, the last while proposed."""
        proposed = self.replica_set.isr.pending
        return (
            f"{self.topic_partition} {self.role.value} e{self.leader_epoch}  {self.bounds}"
            f" isr={','.join(map(str, self.isr))}"
            + (f" +{','.join(map(str, proposed.members))}" if proposed else "")
        )
