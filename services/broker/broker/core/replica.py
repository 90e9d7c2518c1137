"""Replica: where one replica of a partition stands, what it is, and how its bounds move.

The high watermark is a leader's to move: the minimum over the maximal ISR. What is decided about
batches and fetches is in ``Partition``.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    NO_BROKER,
    BrokerId,
    InstantMs,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import PartitionImage
from tidemark.model.topics import TopicPartition

from broker.core.batch_rules import PartitionLimits, Refusal
from broker.core.isr import Isr, IsrProposal
from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import ProducerTable
from broker.core.replica_progress import ReplicaProgress, StandingFetch
from broker.core.txn_verification import TxnVerifications
from broker.core.unread_bytes import UNKNOWN_BYTES, UnreadBytes


class Role(Enum):
    """What this replica is."""

    LEADER = "L"
    FOLLOWER = "F"
    OFFLINE = "-"
    """Hosted, but nobody leads it."""
    FAILED = "!"
    """Its log directory failed: serves nobody until the next start, whatever the image says."""


class LogState(NamedTuple):
    """Where a log stands when its partition starts: as recovered from disk."""

    log_start: int
    log_end: int
    synced_end: int
    high_watermark: int
    """From the checkpoint; -1 when there is none."""


ACKS_ALL: Final = -1
NOT_LEADER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
)
FENCED: Final = Refusal(
    ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch is older than the leader's"
)
UNKNOWN_EPOCH: Final = Refusal(
    ErrorCode.UNKNOWN_LEADER_EPOCH, "the leader epoch is newer than the leader's"
)
FAILED: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is out of service: see the broker's log"
)


class Replica:
    """One replica of one partition.

    Invariant: log_start <= high_watermark <= log_end, and synced_end <= log_end; only a leader has
    followers' progress and a proposal.
    """

    __slots__ = (
        "_alone",
        "_at_once",
        "_isr",
        "_looked_at",
        "_progress",
        "_unread",
        "broker_id",
        "epoch_start",
        "epochs",
        "high_watermark",
        "leader",
        "leader_epoch",
        "limits",
        "log_end",
        "log_start",
        "min_insync",
        "producers",
        "replicas",
        "role",
        "synced_end",
        "topic_id",
        "topic_partition",
        "unheard",
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
        self.role = Role.OFFLINE
        self.leader = BrokerId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.replicas: tuple[BrokerId, ...] = ()
        self.log_start = state.log_start
        self.log_end = state.log_end
        self.synced_end = min(state.synced_end, state.log_end)
        self.high_watermark = max(min(state.high_watermark, state.log_end), state.log_start)
        self.epoch_start = -1
        """The log's end when this replica began to lead; -1 before it ever did."""
        self._isr = Isr()
        self._alone = False
        """Whether the high watermark depends on nobody else, so that an append moves it."""
        self.min_insync = limits.min_insync_replicas
        """min.insync.replicas, but no more than there are replicas (KIP-966)."""
        self._at_once = False
        """Alone, and what is in the log counts: the high watermark is the log's end."""
        self._progress: dict[BrokerId, ReplicaProgress] = {}
        self.unheard: tuple[BrokerId, ...] = ()
        """Who must have a record before it counts, and has not fetched from this leader yet: a
        fetch of theirs that waits here may have begun before it could name this partition.
        """
        self._looked_at = InstantMs(-1)
        self._unread = UnreadBytes()
        self.verifications = TxnVerifications()

    # -- roles

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """As agreed with the controller."""
        return self._isr.agreed

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """As agreed and, until its outcome is known, as proposed."""
        return self._isr.maximal

    @property
    def partition_epoch(self) -> PartitionEpoch:
        """Of the agreed ISR."""
        return self._isr.partition_epoch

    @property
    def pending(self) -> IsrProposal | None:
        """The proposal whose outcome is not known."""
        return self._isr.pending

    @property
    def progress(self) -> Mapping[BrokerId, ReplicaProgress]:
        """A leader's followers; nobody on any other replica."""
        return self._progress

    def become_leader(
        self, leader_epoch: LeaderEpoch, replicas: Sequence[BrokerId], isr: Sequence[BrokerId]
    ) -> bool:
        """``lead`` for whoever has no image at hand."""
        state = PartitionImage(
            partition=self.topic_partition.partition,
            replicas=tuple(replicas),
            isr=tuple(isr),
            leader=self.broker_id,
            leader_epoch=leader_epoch,
            partition_epoch=PartitionEpoch(leader_epoch),
        )
        return self.lead(state, InstantMs(0))

    def lead(self, state: PartitionImage, now: InstantMs) -> bool:
        """Lead from the controller's word on; False, and nothing changed, when that epoch is older
        than ours or the disk failed.

        The high watermark stays (KIP-207). In the epoch that we lead already, only ISR and replicas
        are taken over, if they are newer.
        """
        if state.leader_epoch < self.leader_epoch or self.role is Role.FAILED:
            return False
        if self.role is Role.LEADER and state.leader_epoch == self.leader_epoch:
            if not self._isr.take(state.isr, state.partition_epoch):
                return True
        else:
            self.role = Role.LEADER
            self.leader = self.broker_id
            self.leader_epoch = state.leader_epoch
            self.epoch_start = self.log_end
            self._progress.clear()
            self._looked_at = InstantMs(-1)
            self._unread.clear()
            self.verifications.clear()
            self._isr.begin(state.isr, state.partition_epoch)
        self.replicas = state.replicas
        others = [one for one in state.replicas if one != self.broker_id]
        known = self._progress
        self._progress = {one: known.get(one) or ReplicaProgress(now) for one in others}
        self._isr_changed()
        return True

    def follow(self, state: PartitionImage) -> bool:
        """Follow ``state.leader``; False, and nothing changed, when that epoch is older than ours
        or the disk failed.
        """
        if state.leader_epoch < self.leader_epoch or self.role is Role.FAILED:
            return False
        assert state.leader != self.broker_id, "a leader follows nobody"
        self._step_down(Role.FOLLOWER, state.leader, state.leader_epoch)
        self.replicas = state.replicas
        if state.partition_epoch >= self._isr.partition_epoch:
            self._isr.begin(state.isr, state.partition_epoch)
        return True

    def become_offline(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Serve nobody: nobody leads."""
        if self.role is Role.FAILED:
            self.leader_epoch = max(self.leader_epoch, leader_epoch)
        elif leader_epoch >= self.leader_epoch:
            self._step_down(Role.OFFLINE, leader, leader_epoch)

    def _step_down(self, role: Role, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self.role = role
        self.leader = leader
        self.leader_epoch = leader_epoch
        self._progress = {}
        self._isr.refuse()
        self._unread.clear()
        self._isr_changed()

    def become_failed(self) -> None:
        """Serve nobody any more: the log directory failed, and what it would read is not to be
        trusted.
        """
        self._step_down(Role.FAILED, NO_BROKER, self.leader_epoch)

    def configure(self, limits: PartitionLimits) -> None:
        """The topic's configuration changed."""
        self.limits = limits
        self._isr_changed()

    def _isr_changed(self) -> int:
        self.min_insync = min(self.limits.min_insync_replicas, max(len(self.replicas), 1))
        alone = self._isr.maximal == (self.broker_id,)
        self._alone = alone and len(self._isr.agreed) >= self.min_insync
        self.unheard = self._find_unheard()
        gained_bytes = self._move_high_watermark()
        self._at_once = self._alone and self.role is Role.LEADER and not self.limits.flush_group
        return gained_bytes

    # -- followers

    def _find_unheard(self) -> tuple[BrokerId, ...]:
        known, maximal = self._progress, self._isr.maximal
        return tuple(one for one in maximal if one in known and known[one].log_end < 0)

    def fetch_may_stand(
        self, broker_id: BrokerId, fetch_offset: int, standing: StandingFetch
    ) -> bool:
        """Whether a follower's fetch, which found nothing, stands from now on for those of its
        session that follow: it has all there is, and no replica is out of the ISR. While one is,
        every fetch is also an occasion to see whether it may join.
        """
        known = self._progress.get(broker_id)
        return (
            known is not None
            and fetch_offset >= self.log_end
            and len(self.isr) == len(self.replicas)
            and known.stands(standing, self.log_end)
        )

    # -- bounds

    def synced(self, end: int) -> int:
        """Everything below ``end`` is on disk. Returns how many bytes became readable by it."""
        self.synced_end = max(self.synced_end, min(end, self.log_end))
        return self._move_high_watermark()

    def log_start_moved(self, log_start: int) -> None:
        """Retention or DeleteRecords removed what is below ``log_start``."""
        assert self.log_start <= log_start <= self.log_end, (log_start, str(self))
        self.log_start = log_start
        self.high_watermark = max(self.high_watermark, log_start)

    def _move_high_watermark(self) -> int:
        """The minimum over the maximal ISR, never backwards; it stands still while the agreed ISR
        is below min.insync.replicas (KIP-966). Returns the bytes that became readable;
        UNKNOWN_BYTES, where some are older than this leadership.
        """
        if self.role is not Role.LEADER or len(self._isr.agreed) < self.min_insync:
            return 0
        synced = self.limits.flush_group
        end = self.synced_end if synced else self.log_end
        if not self._alone:
            for one in self._isr.maximal:
                if one != self.broker_id:
                    known = self._progress.get(one)
                    end = min(end, known.counted_end(synced=synced) if known else -1)
        before = self.high_watermark
        if end <= before:
            return 0
        self.high_watermark = end
        gained_bytes = self._unread.passed(end)
        return gained_bytes if before >= self.epoch_start else UNKNOWN_BYTES

    @property
    def latest_known(self) -> bool:
        """Whether the high watermark can be told: not before it has reached what older leaders left
        (KIP-207).
        """
        return self.high_watermark >= self.epoch_start

    @property
    def last_stable(self) -> int:
        """First offset of a transaction that is open, or whose end is not replicated yet; else the
        high watermark.
        """
        txns = self.producers.txns
        if not txns:
            return self.high_watermark
        return max(self.log_start, txns.last_stable(self.high_watermark))

    def acknowledgeable(self, end: int, acks: int, *, has_lease: bool = True) -> bool:
        """Whether a write up to ``end`` (exclusive) may be acknowledged now.

        ``flush=group`` promises the disk for acks=1 as well. Without a lease another may lead
        already: only the ISR can say that it does not.
        """
        if acks == 1 and has_lease and not self.limits.flush_group:
            return True
        return self.high_watermark >= end

    def may_wait(self, acks: int) -> bool:
        """Whether a write is not acknowledged at once, as far as can be said before the append."""
        if self.limits.flush_group:
            return acks != 0
        return acks == ACKS_ALL and len(self.isr) > 1

    def epoch_refused(self, leader_epoch_expected: int) -> Refusal | None:
        """What a reader or a question hears that names a leader epoch (-1: none named)."""
        if self.role is not Role.LEADER:
            return FAILED if self.role is Role.FAILED else NOT_LEADER
        if leader_epoch_expected in (-1, self.leader_epoch):
            return None
        return FENCED if leader_epoch_expected < self.leader_epoch else UNKNOWN_EPOCH

    def check(self) -> None:
        """Assert the invariants."""
        assert self.log_start <= self.high_watermark, str(self)
        assert self.high_watermark <= self.log_end, str(self)
        assert self.synced_end <= self.log_end, str(self)
        assert self.last_stable <= self.high_watermark, str(self)
        leads = self.role is Role.LEADER
        assert leads or not self._progress, "only a leader has followers"
        assert leads or self._isr.pending is None, "only a leader proposes"
        assert not leads or self.leader == self.broker_id, str(self)
        assert set(self._isr.agreed) <= set(self._isr.maximal), str(self)
        assert self.unheard == self._find_unheard(), str(self)

    def __str__(self) -> str:
        """One line: ``orders-3 L e7  0/_40/_42 isr=1,2 +1,2,3``, the last while proposed."""
        proposed = self._isr.pending
        return (
            f"{self.topic_partition} {self.role.value} e{self.leader_epoch}  "
            f"{self.log_start}/_{self.high_watermark}/_{self.log_end}"
            f" isr={','.join(map(str, self.isr))}"
            + (f" +{','.join(map(str, proposed.members))}" if proposed else "")
        )
