"""Requests to a shard of transactions and their replies: one pair for each RPC of
``TransactionCoordinator``, and ``MarkersWritten``, the report of the marker sender.

``spare_producer_id`` is an unused id from the controller, obtained before the request because the
shard cannot request one. It is in use only if the reply's ``producer_id`` is that id. After any
other reply it is free for another request; without a reply it counts as used.
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
    """-1: a new session; otherwise the session that continues after an error (KIP-360)."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    transactions_v2: bool = False
    """True if the client uses transactions v2. No rule depends on it: the way in which a
    transaction is written and ended counts.
    """


@dataclass(frozen=True, slots=True)
class InitTransactionalIdReply:
    """Producer id and epoch of the session; -1 and -1 with an error."""

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
    """True if a partition's leader verifies that each partition is in the open transaction (KIP-890
    part 1), and none is added.
    """
    transactions_v2: bool = False
    """True if a partition's leader adds the partitions for a v2 producer. With ``verify_only``: the
    producer understands TRANSACTION_ABORTABLE.
    """


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Result of one partition of AddPartitions."""

    partition: TopicPartition
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class AddPartitionsReply:
    """Reply to AddPartitions. ``error_code`` is of the whole request. With NONE, ``results`` has
    each partition of the request, in its order.
    """

    error_code: ErrorCode
    error_message: str = ""
    results: tuple[PartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Kafka's AddOffsetsToTxn, which adds the partition with the group's offsets."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddOffsetsReply:
    """Reply to AddOffsets. With NONE the group's offsets are a part of the transaction."""

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
    """True for EndTxn >= 5, whose reply has the next transaction's producer id and epoch."""
    spare_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class EndTransactionReply:
    """Reply to EndTxn. Producer id and epoch are of the next v2 transaction; else -1 and -1."""

    error_code: ErrorCode
    error_message: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class WriterView:
    """A producer of a transaction. ``writer`` is '' for that of Kafka's API."""

    writer: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SinkView:
    """State of a query's batches."""

    query_id: str
    committed_batch_id: int
    """-1: this query has committed none."""
    note: str
    """Note of that commit."""
    retired_query_ids: tuple[str, ...]
    """Oldest first."""
    open_batch_id: int
    """-1: none is open."""


@dataclass(frozen=True, slots=True)
class TransactionView:
    """View of a transactional id. A listing leaves ``partitions``, ``writers`` and ``sink`` out."""

    transactional_id: str
    error_code: ErrorCode
    error_message: str = ""
    state: str = ""
    timeout_ms: int = 0
    started_ms: int = NO_TIME
    """Wall ms; -1: no transaction is open."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    partitions: tuple[TopicPartition, ...] = ()
    writers: tuple[WriterView, ...] = ()
    handle: str = ""
    sink: SinkView | None = None
    """Present if the transactions of the id are a query's batches."""


@dataclass(frozen=True, slots=True)
class DescribeTransactions:
    """Describe these ids, which all belong to this shard."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsReply:
    """Views of the ids, in the order of the request."""

    transactions: tuple[TransactionView, ...]


@dataclass(frozen=True, slots=True)
class ListIds:
    """List all ids of this shard, in no order."""


@dataclass(frozen=True, slots=True)
class ListIdsReply:
    """Reply to ListIds."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """Filters of a listing: it has the ids that match all. An empty filter matches everything."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms_min: int = -1
    """Time for which a transaction has been open at least; -1: all, open or not."""
    transactional_id_pattern: str = ""
    """Regular expression that must match the whole id (KIP-1152)."""


@dataclass(frozen=True, slots=True)
class ListSlice:
    """List those of some ids that match all filters: a shard may have too many for one decision.
    Ids that the shard does not have any longer are left out.
    """

    filters: ListTransactions
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListTransactionsReply:
    """Reply to ListSlice, in its order. ``unknown_states`` are names in the filters that no state
    has, and that match nothing. The wire has no field for ``error_message``.
    """

    error_code: ErrorCode
    error_message: str = ""
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[TransactionView, ...] = ()


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Begin a transaction that several writers may write and any process may finish."""

    transactional_id: str
    transaction_timeout_ms: int
    abort_previous: bool = False
    attempt_id: bytes = b""
    """Drawn by the caller. A repeated request has the same one, and gets the same handle; empty: a
    repeated request finds a transaction open.
    """


@dataclass(frozen=True, slots=True)
class BeginTransactionReply:
    """Reply to BeginTransaction. ``handle`` identifies the transaction in any process."""

    error_code: ErrorCode
    error_message: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class EnlistWriter:
    """Assign a slot to a writer, at the shard of ``txn_handle.transactional_id_of(handle)``."""

    handle: str
    writer: str
    spare_producer_id: int


@dataclass(frozen=True, slots=True)
class EnlistWriterReply:
    """Producer id and epoch of the writer, as its slot was assigned."""

    error_code: ErrorCode
    error_message: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class CountedWriter:
    """A writer that counts in a commit, with the producer id and epoch of its slot."""

    writer: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class FinishTransaction:
    """End the handle's transaction. A commit aborts all writers but ``writers``."""

    handle: str
    commit: bool
    writers: tuple[CountedWriter, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishTransactionReply:
    """Reply to FinishTransaction. ``committed`` is the outcome, the same for every repetition. A
    request for another outcome or with other writers gets it with INVALID_TXN_STATE. With any other
    error the outcome is not known.
    """

    error_code: ErrorCode
    error_message: str = ""
    committed: bool = False


class BatchRefusal(IntEnum):
    """Reason why a batch is refused in any state, in addition to the error code."""

    NONE = 0
    STALE_BATCH = 1
    """The batch is older than one that the query has committed or has open."""
    RETIRED_QUERY = 2
    """Another query has taken over the sink."""


@dataclass(frozen=True, slots=True)
class EnlistInBatch:
    """Assign a slot of the transaction of (sink, query, batch id), and open it if it is not."""

    sink_id: str
    query_id: str
    batch_id: int
    writer: str
    transaction_timeout_ms: int
    """Timeout of the batch, if this request opens it."""
    spare_producer_id: int
    expires: bool = False
    """A sink that this request begins is removed when it is unused, as other ids are."""


@dataclass(frozen=True, slots=True)
class EnlistInBatchReply:
    """Producer id and epoch of the writer; or ``committed``, if the batch is committed already."""

    error_code: ErrorCode
    error_message: str = ""
    refusal: BatchRefusal = BatchRefusal.NONE
    committed: bool = False
    note: str = ""
    """Note of the commit."""
    handle: str = ""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    retired_query_id: str = ""
    """Until the query's first commit: the query that had the sink before; '' if none had."""


@dataclass(frozen=True, slots=True)
class KeepBatchAlive:
    """Count the timeout of the open batch from now. This is not logged: when a shard is loaded, its
    open batches get their whole timeout again.
    """

    handle: str


@dataclass(frozen=True, slots=True)
class KeepBatchAliveReply:
    """Reply to KeepBatchAlive. INVALID_TXN_STATE: the batch has ended."""

    error_code: ErrorCode
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class FinishBatch:
    """End a batch. A commit aborts all writers but ``writers``."""

    sink_id: str
    query_id: str
    batch_id: int
    commit: bool
    writers: tuple[CountedWriter, ...] = ()
    note: str = ""
    expires: bool = False
    """As for EnlistInBatch."""


@dataclass(frozen=True, slots=True)
class FinishBatchReply:
    """Reply to FinishBatch. ``committed``: the batch is committed, by this or an earlier request,
    and stays so.
    """

    error_code: ErrorCode
    error_message: str = ""
    refusal: BatchRefusal = BatchRefusal.NONE
    committed: bool = False
    first: bool = False
    """True if this request committed it."""
    note: str = ""
    """Note of the first commit."""
    same_writers: bool = False
    """True if the first commit named the same writers."""


@dataclass(frozen=True, slots=True)
class ForgetSink:
    """Remove the state of a sink's batches: any query may write them again."""

    sink_id: str
    abort_open: bool = False


@dataclass(frozen=True, slots=True)
class ForgetSinkReply:
    """Reply to ForgetSink. ``forgotten`` is False if there was no state."""

    error_code: ErrorCode
    error_message: str = ""
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Report that some markers of a ``SendMarkers`` are in their partitions, or that the partitions
    no longer exist. Other fields than ``partitions`` are those of the effect. There is no reply.
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
    | ListIds
    | ListSlice
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
    | ListIdsReply
    | ListTransactionsReply
    | BeginTransactionReply
    | EnlistWriterReply
    | FinishTransactionReply
    | EnlistInBatchReply
    | KeepBatchAliveReply
    | FinishBatchReply
    | ForgetSinkReply
)
