"""Partition: one replica's decisions. Pure: parsed header fields in, plans out; the shell owns
bytes, disk and clock.

The life of a batch is three calls, all in the connection's callback (DESIGN: the hot path):

    plan = partition.admit(header, size_bytes, ...)     may it, and which offsets does it get?
    Changes nothing log.append(buffers, plan, now)                      storage
    partition.appended(plan)                            the only place where log_end moves; says how
    much became readable

A replica is leader or offline here; following comes with replication, for which leader epoch,
replicas, ISR and the high watermark already have their places.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_PRODUCER, BrokerId, LeaderEpoch, TopicId
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition

from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import Duplicate, ProducerTable, Refused

NO_TIMESTAMP: Final = -1
ACKS_ALL: Final = -1
COMPRESSION_LAST: Final = 4
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: a byte each. A batch that
claims more uncompressed records than fit would burn offsets.
"""


class Role(Enum):
    """What this replica is."""

    LEADER = "L"
    OFFLINE = "-"
    """Hosted, but serves nobody: no leader epoch yet, or led by another broker."""
    FAILED = "!"
    """Its log directory failed: serves nobody until the next start, whatever the image says."""


class AppendPlan(NamedTuple):
    """An admitted batch: the offsets it gets. The first five fields are what storage is told."""

    first: int
    last: int
    max_timestamp: int
    leader_epoch: int
    size_bytes: int
    header: BatchHeader
    log_append_time_ms: int
    """-1 unless the topic's message.timestamp.type is LogAppendTime."""


class Refusal(NamedTuple):
    """Why not: Kafka's error code, and words for people."""

    error_code: ErrorCode
    message: str


class Repeated(NamedTuple):
    """The batch is here already (an idempotent producer's retry): acknowledged with its first
    offsets.
    """

    first: int
    last: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What of a topic's configuration decides about batches."""

    batch_bytes_max: int
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    log_append_time: bool
    flush_group: bool
    min_insync_replicas: int

    @classmethod
    def of(cls, config: TopicConfig) -> "PartitionLimits":
        """From a topic's effective configuration."""
        return cls(
            batch_bytes_max=config.max_message_bytes,
            timestamp_before_ms_max=config.message_timestamp_before_max_ms,
            timestamp_after_ms_max=config.message_timestamp_after_max_ms,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            flush_group=config.flush == "group",
            min_insync_replicas=config.min_insync_replicas,
        )


class LogState(NamedTuple):
    """Where a log stands when its partition starts: as recovered from disk."""

    log_start: int
    log_end: int
    synced_end: int
    high_watermark: int
    """From the checkpoint; -1 when there is none."""


_NOT_LEADER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
)
_FENCED: Final = Refusal(
    ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch is older than the leader's"
)
_UNKNOWN_EPOCH: Final = Refusal(
    ErrorCode.UNKNOWN_LEADER_EPOCH, "the leader epoch is newer than the leader's"
)
_BAD_ACKS: Final = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1 (all), 0 or 1")
_NOT_ENOUGH: Final = Refusal(
    ErrorCode.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than min.insync.replicas"
)
_NOT_ONE_BATCH: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a partition's records must be exactly one record batch"
)
_OLD_MAGIC: Final = Refusal(
    ErrorCode.INVALID_RECORD, "only record batches of magic 2 (Kafka 0.11 or newer) are taken"
)
_TOO_LARGE: Final = Refusal(
    ErrorCode.MESSAGE_TOO_LARGE, "the batch is larger than max.message.bytes"
)
_BAD_COUNT: Final = Refusal(
    ErrorCode.INVALID_RECORD, "record count and last offset delta contradict each other"
)
_CONTROL: Final = Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
_TRANSACTIONAL: Final = Refusal(
    ErrorCode.INVALID_TXN_STATE, "transactional batches are not supported by this release"
)
_HORIZON: Final = Refusal(ErrorCode.INVALID_RECORD, "only compaction sets the delete horizon")
_CODEC: Final = Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression")
_TIMESTAMP_TYPE: Final = Refusal(
    ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime"
)
_TIMESTAMP: Final = Refusal(
    ErrorCode.INVALID_TIMESTAMP,
    "a timestamp is outside message.timestamp.before.max.ms and message.timestamp.after.max.ms",
)
_BAD_SEQUENCE: Final = Refusal(ErrorCode.INVALID_RECORD, "a producer id needs a sequence from 0 on")
_STORAGE: Final = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk did not take the batch")
_FAILED: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is out of service: see the broker's log"
)


class Partition:
    """One replica of one partition.

    Invariant: log_start <= high_watermark <= log_end, and synced_end <= log_end.
    """

    __slots__ = (
        "_unread",
        "broker_id",
        "epochs",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "limits",
        "log_end",
        "log_start",
        "producers",
        "replicas",
        "role",
        "synced_end",
        "topic_id",
        "topic_partition",
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
        self.isr: tuple[BrokerId, ...] = ()
        self.log_start = state.log_start
        self.log_end = state.log_end
        self.synced_end = min(state.synced_end, state.log_end)
        self.high_watermark = max(min(state.high_watermark, state.log_end), state.log_start)
        self._unread: deque[tuple[int, int]] = deque()
        """(end, bytes) of each batch that the high watermark has not passed."""

    # -- roles

    def become_leader(
        self, leader_epoch: LeaderEpoch, replicas: Sequence[BrokerId], isr: Sequence[BrokerId]
    ) -> bool:
        """Lead from the controller's word on; False, and nothing changed, when that epoch is older
        than ours or the disk failed.
        """
        if leader_epoch < self.leader_epoch or self.role is Role.FAILED:
            return False
        self.role = Role.LEADER
        self.leader = self.broker_id
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self._move_high_watermark()
        return True

    def become_offline(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Serve nobody: the image names another leader (or none)."""
        if self.role is not Role.FAILED:
            self.role = Role.OFFLINE
            self.leader = leader
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def become_failed(self) -> None:
        """Serve nobody any more: the log directory failed, and what it would read is not to be
        trusted.
        """
        self.role = Role.FAILED
        self.leader = BrokerId(-1)

    def configure(self, limits: PartitionLimits) -> None:
        """The topic's configuration changed."""
        self.limits = limits
        self._move_high_watermark()

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

        ``leader_epoch_expected`` -1: whatever it is. ``now_ms`` is wall time.
        """
        if self.role is not Role.LEADER:
            return _FAILED if self.role is Role.FAILED else _NOT_LEADER
        if leader_epoch_expected != -1 and leader_epoch_expected != self.leader_epoch:
            return _FENCED if leader_epoch_expected < self.leader_epoch else _UNKNOWN_EPOCH
        limits = self.limits
        if acks != 1 and (refused := self._acks_refused(acks)) is not None:
            return refused
        # One unpacking costs less than a dozen attribute reads: this runs for every batch.
        (_, batch_length, _, magic, _, attributes, delta, base_ms, max_ms, _, _, _, count) = header
        if (
            magic != MAGIC_V2
            or size_bytes > limits.batch_bytes_max
            or batch_length + LENGTH_PREFIX_BYTES != size_bytes
            or size_bytes < HEADER_BYTES
            or count <= 0
            or delta != count - 1
            or not 0 <= attributes <= COMPRESSION_LAST
            or (not attributes and count * RECORD_BYTES_MIN > size_bytes - HEADER_BYTES)
        ):
            refused = _structure_refused(header, size_bytes, limits)
            if refused is not None:
                return refused
        if not limits.log_append_time and not (
            now_ms - limits.timestamp_before_ms_max
            <= base_ms
            <= max_ms
            <= now_ms + limits.timestamp_after_ms_max
        ):
            refused = _timestamps_refused(header, now_ms, limits)
            if refused is not None:
                return refused
        return self._sequenced(header, size_bytes, now_ms)

    def _sequenced(
        self, header: BatchHeader, size_bytes: int, now_ms: int
    ) -> AppendPlan | Repeated | Refusal:
        """The last question, the producer's sequence; then the offsets."""
        if header.producer_id != NO_PRODUCER:
            if header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0:
                return _BAD_SEQUENCE
            verdict = self.producers.check(header, now_ms)
            if isinstance(verdict, Duplicate):
                stamped = verdict.timestamp if self.limits.log_append_time else NO_TIMESTAMP
                return Repeated(verdict.base_offset, verdict.last_offset, stamped)
            if isinstance(verdict, Refused):
                return Refusal(verdict.error_code, verdict.message)
        first = self.log_end
        by_broker = self.limits.log_append_time
        return AppendPlan(
            first,
            first + header.last_offset_delta,
            now_ms if by_broker else header.max_timestamp,
            self.leader_epoch,
            size_bytes,
            header,
            now_ms if by_broker else NO_TIMESTAMP,
        )

    def appended(self, plan: AppendPlan, now_ms: int) -> int:
        """The batch is in the log. Returns how many bytes became readable by it: 0 while the
        watermark stays.
        """
        assert plan.first == self.log_end, (plan.first, self.log_end)
        self.log_end = plan.last + 1
        header = plan.header
        if header.producer_id != NO_PRODUCER:
            if plan.log_append_time_ms >= 0:
                header = header._replace(max_timestamp=plan.log_append_time_ms)
            self.producers.appended(header, plan.first, now_ms)
        self._unread.append((self.log_end, plan.size_bytes))
        return self._move_high_watermark()

    def append_failed(self, plan: AppendPlan, *, fenced: bool) -> Refusal:
        """The disk did not take it and nothing of it is in the log; ``fenced``: its directory
        serves no more.
        """
        assert plan.first == self.log_end, (plan.first, self.log_end)
        if fenced:
            self.become_failed()
        return _STORAGE

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
        """The minimum over the ISR, never backwards. With one replica: its own end, or what of it
        is synced.
        """
        if self.role is not Role.LEADER or len(self.isr) > 1:
            return 0
        end = self.synced_end if self.limits.flush_group else self.log_end
        if end <= self.high_watermark:
            return 0
        self.high_watermark = end
        unread, gained = self._unread, 0
        while unread and unread[0][0] <= end:
            gained += unread.popleft()[1]
        return gained

    @property
    def last_stable(self) -> int:
        """First offset of an open transaction, else the high watermark; there are no transactions
        yet.
        """
        return self.high_watermark

    def acknowledgeable(self, end: int, acks: int) -> bool:
        """Whether a write up to ``end`` (exclusive) may be acknowledged now.

        ``flush=group`` promises the disk for acks=1 as well.
        """
        if acks == 1 and not self.limits.flush_group:
            return True
        return self.high_watermark >= end

    def epoch_refused(self, leader_epoch_expected: int) -> Refusal | None:
        """What a reader or a question hears that names a leader epoch (-1: none named)."""
        if self.role is not Role.LEADER:
            return _FAILED if self.role is Role.FAILED else _NOT_LEADER
        if leader_epoch_expected in (-1, self.leader_epoch):
            return None
        return _FENCED if leader_epoch_expected < self.leader_epoch else _UNKNOWN_EPOCH

    def _acks_refused(self, acks: int) -> Refusal | None:
        if acks == ACKS_ALL:
            needed = min(self.limits.min_insync_replicas, max(len(self.replicas), 1))
            return _NOT_ENOUGH if len(self.isr) < needed else None
        return None if acks in (0, 1) else _BAD_ACKS

    def check(self) -> None:
        """Assert the invariants."""
        assert self.log_start <= self.high_watermark, str(self)
        assert self.high_watermark <= self.log_end, str(self)
        assert self.synced_end <= self.log_end, str(self)

    def __str__(self) -> str:
        """One line: ``orders-3 L e7  0/_40/_42 isr=1``."""
        return (
            f"{self.topic_partition} {self.role.value} e{self.leader_epoch}  "
            f"{self.log_start}/_{self.high_watermark}/_{self.log_end}"
            f" isr={','.join(map(str, self.isr))}"
        )


def _structure_refused(
    header: BatchHeader, size_bytes: int, limits: PartitionLimits
) -> Refusal | None:
    """Which of the structural rules a batch breaks, in Kafka's order."""
    attributes = header.attributes
    rules = (
        (header.magic != MAGIC_V2, _OLD_MAGIC),
        (header.batch_length + LENGTH_PREFIX_BYTES != size_bytes, _NOT_ONE_BATCH),
        (size_bytes < HEADER_BYTES, _NOT_ONE_BATCH),
        (size_bytes > limits.batch_bytes_max, _TOO_LARGE),
        (header.record_count <= 0, _BAD_COUNT),
        (header.last_offset_delta != header.record_count - 1, _BAD_COUNT),
        (
            not attributes & COMPRESSION_MASK
            and header.record_count * RECORD_BYTES_MIN > size_bytes - HEADER_BYTES,
            _BAD_COUNT,
        ),
        (attributes & CONTROL_BIT, _CONTROL),
        (attributes & TRANSACTIONAL_BIT, _TRANSACTIONAL),
        (attributes & TIMESTAMP_TYPE_BIT, _TIMESTAMP_TYPE),
        (attributes & DELETE_HORIZON_BIT, _HORIZON),
        (attributes & COMPRESSION_MASK > COMPRESSION_LAST, _CODEC),
    )
    return next((refusal for broken, refusal in rules if broken), None)


def _timestamps_refused(
    header: BatchHeader, now_ms: int, limits: PartitionLimits
) -> Refusal | None:
    """A timestamp of -1 means none, which is always taken."""
    earliest = now_ms - limits.timestamp_before_ms_max
    latest = now_ms + limits.timestamp_after_ms_max
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            return _TIMESTAMP
    return None
