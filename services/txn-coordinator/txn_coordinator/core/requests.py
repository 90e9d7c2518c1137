"""What is asked of a shard of transactions, and what it answers: one pair for each RPC of
``TransactionCoordinator``, and ``MarkersWritten``, which the marker sender feeds back.

``spare_producer_id`` is an id that nobody ever used, taken from the controller before asking: the
shard cannot ask for one. It was taken into use only if the reply's ``producer_id`` is that id; any
other answer leaves it free for another request (without an answer it must be counted as used).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class InitTransactionalId:
    """Kafka's InitProducerId of a transactional id."""

    transactional_id: str
    transaction_timeout_ms: int
    spare_producer_id: int
    producer_id: int = NO_PRODUCER_ID
    """-1: a new session; else the session that goes on after an error (KIP-360)."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    transactions_v2: bool = False
    """No rule depends on it: what counts is how a transaction is written and ended."""


@dataclass(frozen=True, slots=True)
class InitTransactionalIdReply:
    """The session's producer id and epoch; -1 and -1 with an error."""

    error_code: ErrorCode
    error_message: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Kafka's AddPartitionsToTxn of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    """By a partition's leader (KIP-890 part 1): is each a part of the open transaction?"""
    transactions_v2: bool = False
    """The implicit add of a v2 producer, by the partition's leader; with ``verify_only``: the
    producer understands TRANSACTION_ABORTABLE.
    """


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """One partition's part of an AddPartitionsReply."""

    partition: TopicPartition
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class AddPartitionsReply:
    """``error_code`` is of the whole call; with NONE, ``results`` has each partition asked, in
    that order.
    """

    error_code: ErrorCode
    error_message: str = ""
    results: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Kafka's AddOffsetsToTxn: adds the partition of the group's offsets."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddOffsetsReply:
    """Whether the group's offsets are a part of the transaction now."""

    error_code: ErrorCode
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Kafka's EndTxn. ``spare_producer_id`` is needed with ``transactions_v2`` only."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    transactions_v2: bool = False
    """EndTxn >= 5: answered with the next transaction's producer id and epoch."""
    spare_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class EndTransactionReply:
    """With v2, who may write the next transaction; else -1 and -1."""

    error_code: ErrorCode
    error_message: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class WriterView:
    """One producer of a transaction; ``writer`` is '' for the one of Kafka's API."""

    writer: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SinkView:
    """What is known of a query's batches."""

    query_id: str
    committed_batch_id: int
    """-1: this query has committed none."""
    note: str
    """Of that commit."""
    retired_query_ids: tuple[str, ...]
    """Oldest first."""
    open_batch_id: int
    """-1: none is open."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """One transactional id. A listing leaves ``partitions``, ``writers`` and ``sink`` out."""

    transactional_id: str
    error_code: ErrorCode
    error_message: str = ""
    state: str = ""
    timeout_ms: int = 0
    started_ms: int = NO_TIME
    """Wall clock; -1: none is open."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    writers: tuple[WriterView, ...] = ()
    handle: str = ""
    sink: SinkView | None = None
    """Of an id whose transactions are a query's batches."""


@dataclass(frozen=True, slots=True)
class DescribeTransactions:
    """Of these ids, which are all of this shard."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsReply:
    """In the order asked."""

    transactions: tuple[TransactionView, ...]


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """All of this shard that match all of the filters; an empty filter matches everything."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms_min: int = -1
    """Open for at least this long; -1: all, open or not."""
    transactional_id_pattern: str = ""
    """A regular expression that the whole id must match (KIP-1152)."""


@dataclass(frozen=True, slots=True)
class ListTransactionsReply:
    """``unknown_states`` are those asked that are no state's name; they match nothing. The wire has
    no field for ``error_message``.
    """

    error_code: ErrorCode
    error_message: str = ""
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[TransactionView, ...] = ()


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Open a transaction that any process may finish and several writers may write."""

    transactional_id: str
    transaction_timeout_ms: int
    abort_previous: bool = False


@dataclass(frozen=True, slots=True)
class BeginTransactionReply:
    """``handle`` names this very transaction, from any process."""

    error_code: ErrorCode
    error_message: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class EnlistWriter:
    """Hand out a slot; ``txn_handle.transactional_id_of(handle)`` says which shard to ask."""

    handle: str
    writer: str
    spare_producer_id: int


@dataclass(frozen=True, slots=True)
class EnlistWriterReply:
    """Who the writer is: this hand-out of the slot."""

    error_code: ErrorCode
    error_message: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class CountedWriter:
    """A hand-out of a slot that counts in a commit."""

    writer: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class FinishTransaction:
    """End the handle's transaction; in a commit all writers but ``writers`` are aborted."""

    handle: str
    commit: bool
    writers: tuple[CountedWriter, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishTransactionReply:
    """``committed``: how the transaction ended, the same however often it is asked. Whoever asked
    for another outcome, or for other winners, hears INVALID_TXN_STATE with it; with all other
    errors nothing is said of the outcome.
    """

    error_code: ErrorCode
    error_message: str = ""
    committed: bool = False


class BatchRefusal(IntEnum):
    """Why a batch is refused for good, where the error code alone does not say it."""

    NONE = 0
    STALE_BATCH = 1
    """Older than what the query has committed, or has open."""
    RETIRED_QUERY = 2
    """Another query took the sink over."""


@dataclass(frozen=True, slots=True)
class EnlistInBatch:
    """Hand out a slot of the transaction of (sink, query, batch), which is opened if it is not."""

    sink_id: str
    query_id: str
    batch_id: int
    writer: str
    transaction_timeout_ms: int
    """Of the batch, if this opens it."""
    spare_producer_id: int


@dataclass(frozen=True, slots=True)
class EnlistInBatchReply:
    """Who the writer is; or, with ``committed``, that there is nothing to write any more."""

    error_code: ErrorCode
    error_message: str = ""
    refusal: BatchRefusal = BatchRefusal.NONE
    committed: bool = False
    note: str = ""
    """Of the commit."""
    handle: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    retired_query_id: str = ""
    """Until the query's first commit: whom it took the sink over from, if anybody had it."""


@dataclass(frozen=True, slots=True)
class KeepBatchAlive:
    """The timeout of the open batch counts from now. Nothing is logged: a batch that is open when
    its shard is loaded gets its whole timeout anew.
    """

    handle: str


@dataclass(frozen=True, slots=True)
class KeepBatchAliveReply:
    """INVALID_TXN_STATE: the batch has ended, and its writers with it."""

    error_code: ErrorCode
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class FinishBatch:
    """End a batch; in a commit all writers but ``writers`` are aborted."""

    sink_id: str
    query_id: str
    batch_id: int
    commit: bool
    writers: tuple[CountedWriter, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class FinishBatchReply:
    """``committed``: whether the batch is, by this or by an earlier commit; it stays so."""

    error_code: ErrorCode
    error_message: str = ""
    refusal: BatchRefusal = BatchRefusal.NONE
    committed: bool = False
    first: bool = False
    """By this very request."""
    note: str = ""
    """Of the first commit."""
    same_writers: bool = False
    """The first commit named the same writers."""


@dataclass(frozen=True, slots=True)
class ForgetSink:
    """Lose all that is known of a sink's batches: any query may write them again."""

    sink_id: str
    abort_open: bool = False


@dataclass(frozen=True, slots=True)
class ForgetSinkReply:
    """``forgotten`` is False when nothing was known."""

    error_code: ErrorCode
    error_message: str = ""
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Some of the markers of a ``SendMarkers`` are in their partitions' logs, or their partitions
    no longer exist. Fields but ``partitions`` repeat the effect's. Nobody waits for an answer, and
    there is none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    prepared_at: int
    partitions: tuple[TopicPartition, ...]


Request = (
    InitTransactionalId
    | AddPartitions
    | AddOffsets
    | EndTransaction
    | DescribeTransactions
    | ListTransactions
    | BeginTransaction
    | EnlistWriter
    | FinishTransaction
    | EnlistInBatch
    | KeepBatchAlive
    | FinishBatch
    | ForgetSink
    | MarkersWritten
)
Reply = (
    InitTransactionalIdReply
    | AddPartitionsReply
    | AddOffsetsReply
    | EndTransactionReply
    | DescribeTransactionsReply
    | ListTransactionsReply
    | BeginTransactionReply
    | EnlistWriterReply
    | FinishTransactionReply
    | EnlistInBatchReply
    | KeepBatchAliveReply
    | FinishBatchReply
    | ForgetSinkReply
)
