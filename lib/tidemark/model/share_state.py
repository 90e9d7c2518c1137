"""Durable state of share-partitions (KIP-932), and the requests and results of its persistence.

The broker that leads a partition holds the window of each share group that reads it, and writes
what changed; the share-coordinator keeps it. Fields are those of Kafka's InitializeShareGroupState,
ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and ReadShareGroupStateSummary.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, NewType

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    NO_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from tidemark.model.topics import topic_id_text

StateEpoch = NewType("StateEpoch", int)
"""Raised by the share-coordinator when the state of a share-partition begins again; int32."""

FIRST_STATE_EPOCH: Final = StateEpoch(0)
UNKNOWN_START: Final = NO_OFFSET
"""Start offset of a share-partition whose start its group's configuration decides; of a write that
leaves the start as it is.
"""
UNKNOWN_COUNT: Final = -1
"""Delivery-complete count of a write or a summary that does not have it."""


class DeliveryState(IntEnum):
    """State of a record in a share group, by its number in requests and in state records."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Locked by a member. Never persisted."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """A copy to the dead-letter queue is under way."""
    ARCHIVED = 4


TERMINAL_STATES: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
PERSISTED_STATES: Final = frozenset(set(DeliveryState) - {DeliveryState.ACQUIRED})


class SharePartitionKey(NamedTuple):
    """One share group's view of one partition."""

    group_id: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        """Form for messages and logs: ``group:topic id-partition``."""
        return f"{self.group_id}:{topic_id_text(self.topic_id)}-{self.partition}"


class StateBatch(NamedTuple):
    """Consecutive offsets of one state and one delivery count."""

    first_offset: Offset
    last_offset: Offset
    """Inclusive."""
    delivery_state: DeliveryState
    delivery_count: int
    """int16; deliveries that count towards the group's limit."""


class TransactionKey(NamedTuple):
    """A transaction of a producer, as its end marker names it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class PendingBatch(NamedTuple):
    """Consecutive offsets whose next state belongs to an open transaction: a commit gives them
    ``outcome``, and an abort the state in which they were free: AVAILABLE if they are acquired,
    ARCHIVING if they are dead letters. In the order of (delivery count, delivery state), by which
    batches replace one another, it stands where ``before`` does, or right after it.
    """

    first_offset: Offset
    last_offset: Offset
    """Inclusive."""
    outcome: DeliveryState
    delivery_count: int
    transaction: TransactionKey
    before: DeliveryState = DeliveryState.ACQUIRED
    """State until then: ACQUIRED, or ARCHIVING if the transaction has their copies to the
    dead-letter queue.
    """


@dataclass(frozen=True, slots=True)
class InitializeState:
    """Begin the state of a share-partition, or begin it again under a higher state epoch."""

    key: SharePartitionKey
    state_epoch: StateEpoch
    start_offset: Offset
    """``UNKNOWN_START``: the first leader that reads the state decides."""


class LogEpochs(NamedTuple):
    """Leader epochs of a partition's log, from which follows what of a state the log has lost."""

    starts: tuple[tuple[LeaderEpoch, Offset], ...]
    """The latest epochs, ascending, each with its first offset."""
    log_end: Offset

    def end_of(self, leader_epoch: LeaderEpoch) -> Offset:
        """End, exclusive, of what was written up to an epoch."""
        return next((start for epoch, start in self.starts if epoch > leader_epoch), self.log_end)


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state for a leader. Its leader epoch fences those of earlier leaders."""

    key: SharePartitionKey
    leader_epoch: LeaderEpoch
    log: LogEpochs | None = None
    """None: unknown, in a request of a broker of an earlier release."""


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write what changed since the last write. Offsets below ``start_offset`` are forgotten; the
    start never goes back.
    """

    key: SharePartitionKey
    state_epoch: StateEpoch
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """``UNKNOWN_START``: stays."""
    batches: tuple[StateBatch, ...]
    """Ascending, without overlap. A batch replaces the kept state of an offset if its (delivery
    count, delivery state) is greater: a write that arrives late undoes none that was answered.
    """
    delivery_complete_count: int = UNKNOWN_COUNT
    """Offsets from the start offset on whose delivery is complete (KIP-1226): lag without them."""
    pending: tuple[PendingBatch, ...] = ()
    """Acknowledgements of transactions, ascending; in no batch."""


@dataclass(frozen=True, slots=True)
class DeleteState:
    """Delete the state of a share-partition."""

    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class ReadStateSummary:
    """Read epochs, start offset and count without the batches. Fences no leader."""

    key: SharePartitionKey
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class StateRead:
    """Answer to ReadState."""

    key: SharePartitionKey
    error_code: ErrorCode
    state_epoch: StateEpoch = FIRST_STATE_EPOCH
    start_offset: Offset = UNKNOWN_START
    batches: tuple[StateBatch, ...] = ()
    """Ascending, without overlap; gaps are possible."""
    pending: tuple[PendingBatch, ...] = ()
    """Acknowledgements of open transactions, ascending; in no batch."""
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class StateSummary:
    """Answer to ReadStateSummary."""

    key: SharePartitionKey
    error_code: ErrorCode
    state_epoch: StateEpoch = FIRST_STATE_EPOCH
    leader_epoch: LeaderEpoch = NO_EPOCH
    """The highest that has read or written the state."""
    start_offset: Offset = UNKNOWN_START
    delivery_complete_count: int = UNKNOWN_COUNT
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class StateResult:
    """Answer to InitializeState, WriteState and DeleteState."""

    key: SharePartitionKey
    error_code: ErrorCode
    refused: frozenset[TransactionKey] = frozenset()
    """Transactions that are not open: their pending batches were not written, all else was."""
    error_message: str | None = None
