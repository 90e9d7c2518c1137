"""Tidemark's native Python client: typed and asynchronous.

Import public names from here; `tidemark.client.sync` has the same classes without ``await``. The
packages below hold the implementation: `producer`, `consumer`, `transactions` and `admin` over
`wire`.
"""

from typing import TYPE_CHECKING, Any

from tidemark.client.admin.admin import (
    Admin,
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    LogDir,
    NewTopic,
    ProducerState,
    Reassignment,
    ReplicaBounds,
    ReplicaLog,
    TopicDescription,
)
from tidemark.client.admin.group_types import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    TransactionDescription,
    TransactionListing,
)
from tidemark.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.group_types import (
    GroupMetadata,
    NoListener,
    OffsetAndMetadata,
    RebalanceListener,
)
from tidemark.client.consumer.offset_lookup import OffsetAndTimestamp
from tidemark.client.consumer.positions import ConsumerRecord, OffsetSpec
from tidemark.client.consumer.range_reader import RangeReader, RangeReaderConfig
from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    CommitFailedError,
    DuplicateSequenceNumber,
    InvalidSequenceNumber,
    ProducerFencedError,
    TidemarkError,
)
from tidemark.client.producer.batches import Delivery, RecordMetadata
from tidemark.client.producer.producer import Producer
from tidemark.client.transactions.transactional_producer import TransactionalProducer
from tidemark.model.topics import TopicPartition

if TYPE_CHECKING:
    from tidemark.client.transactions.multi_writer import (
        TransactionHandle,
        Transactions,
        Writer,
        WriterReceipt,
    )
    from tidemark.client.transactions.sink_batches import BatchId, BatchOutcome, SinkBatches

_HANDLES = ("TransactionHandle", "Transactions", "Writer", "WriterReceipt")
_SINKS = ("BatchId", "BatchOutcome", "SinkBatches")

__all__ = [
    "AbortableTransactionError",
    "Admin",
    "AdminConfig",
    "AlterConfig",
    "BatchId",
    "BatchOutcome",
    "ClientConfig",
    "ClientError",
    "ClusterDescription",
    "CommitFailedError",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "Delivery",
    "DuplicateSequenceNumber",
    "GroupDescription",
    "GroupListing",
    "GroupMetadata",
    "InvalidSequenceNumber",
    "LogDir",
    "MemberDescription",
    "NewTopic",
    "NoListener",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Producer",
    "ProducerConfig",
    "ProducerFencedError",
    "ProducerState",
    "RangeReader",
    "RangeReaderConfig",
    "Reassignment",
    "RebalanceListener",
    "RecordMetadata",
    "ReplicaBounds",
    "ReplicaLog",
    "SinkBatches",
    "TidemarkError",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "TransactionHandle",
    "TransactionListing",
    "TransactionalProducer",
    "Transactions",
    "Writer",
    "WriterReceipt",
]


def __getattr__(name: str) -> Any:
    """Load multi-writer transactions and sinks on first use: they import gRPC."""
    if name in _HANDLES:
        from tidemark.client.transactions import multi_writer

        return getattr(multi_writer, name)
    if name in _SINKS:
        from tidemark.client.transactions import sink_batches

        return getattr(sink_batches, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
