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
from tidemark.client.admin.share_types import (
    ShareGroupDescription,
    ShareGroupOffset,
    ShareMemberDescription,
)
from tidemark.client.config import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumerConfig,
)
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
    InvalidRecordStateError,
    InvalidSequenceNumber,
    ProducerFencedError,
    ShareSessionLostError,
    TidemarkError,
)
from tidemark.client.producer.batches import Delivery, RecordMetadata
from tidemark.client.producer.producer import Producer
from tidemark.client.share.ack_batches import AcknowledgeType
from tidemark.client.share.deliveries import ShareRecord
from tidemark.client.share.factory import make_consumer
from tidemark.client.share.share_consumer import ShareConsumer
from tidemark.client.transactions.transactional_producer import TransactionalProducer
from tidemark.model.topics import TopicPartition

if TYPE_CHECKING:
    from tidemark.client.share.share_views import (
        ShareLag,
        ShareRange,
        ShareViews,
        ShareWindow,
    )
    from tidemark.client.transactions.multi_writer import (
        TransactionHandle,
        Transactions,
        Writer,
        WriterReceipt,
    )
    from tidemark.client.transactions.sink_batches import BatchId, BatchOutcome, SinkBatches

_HANDLES = ("TransactionHandle", "Transactions", "Writer", "WriterReceipt")
_SINKS = ("BatchId", "BatchOutcome", "SinkBatches")
_VIEWS = ("ShareLag", "ShareRange", "ShareViews", "ShareWindow")

__all__ = [
    "AbortableTransactionError",
    "AcknowledgeType",
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
    "InvalidRecordStateError",
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
    "ShareConsumer",
    "ShareConsumerConfig",
    "ShareGroupDescription",
    "ShareGroupOffset",
    "ShareLag",
    "ShareMemberDescription",
    "ShareRange",
    "ShareRecord",
    "ShareSessionLostError",
    "ShareViews",
    "ShareWindow",
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
    "make_consumer",
]


def __getattr__(name: str) -> Any:
    """Load multi-writer transactions, sinks and views on first use: they import gRPC."""
    if name in _HANDLES:
        from tidemark.client.transactions import multi_writer

        return getattr(multi_writer, name)
    if name in _SINKS:
        from tidemark.client.transactions import sink_batches

        return getattr(sink_batches, name)
    if name in _VIEWS:
        from tidemark.client.share import share_views

        return getattr(share_views, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
