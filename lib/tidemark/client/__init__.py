"""Tidemark's native Python client: typed and asynchronous.

Import public names from here; `tidemark.client.sync` has the same classes without ``await``. The
packages below hold the implementation: `producer`, `consumer`, `transactions` and `admin` over
`wire`. A name is imported at its first use: a program that only administers does not load
producers, and a program without handles, sinks and views does not load gRPC.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    from tidemark.client.consumer.consumer import (
        Consumer,
    )
    from tidemark.client.consumer.fetched_chunk import ConsumerRecord
    from tidemark.client.consumer.group_types import (
        GroupMetadata,
        NoListener,
        OffsetAndMetadata,
        RebalanceListener,
    )
    from tidemark.client.consumer.offset_lookup import (
        OffsetAndTimestamp,
    )
    from tidemark.client.consumer.positions import OffsetSpec
    from tidemark.client.consumer.range_reader import (
        RangeReader,
        RangeReaderConfig,
    )
    from tidemark.client.errors import (
        AbortableTransactionError,
        ClientError,
        CommitFailedError,
        DuplicateSequenceNumber,
        InvalidRecordStateError,
        InvalidSequenceNumber,
        LogTruncationError,
        ProducerFencedError,
        ShareSessionLostError,
        TidemarkError,
    )
    from tidemark.client.producer.batches import (
        Delivery,
        RecordMetadata,
    )
    from tidemark.client.producer.producer import (
        Producer,
    )
    from tidemark.client.share.ack_batches import (
        AcknowledgeType,
    )
    from tidemark.client.share.deliveries import (
        ShareRecord,
    )
    from tidemark.client.share.factory import (
        make_consumer,
    )
    from tidemark.client.share.share_consumer import (
        ShareConsumer,
    )
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
    from tidemark.client.transactions.sink_batches import (
        BatchId,
        BatchOutcome,
        SinkBatches,
    )
    from tidemark.client.transactions.transactional_producer import (
        TransactionalProducer,
    )
    from tidemark.model.topics import (
        TopicPartition,
    )

_HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "tidemark.client.admin.admin": (
        "Admin",
        "AlterConfig",
        "ClusterDescription",
        "ConfigEntry",
        "ConfigResource",
        "LogDir",
        "NewTopic",
        "ProducerState",
        "Reassignment",
        "ReplicaBounds",
        "ReplicaLog",
        "TopicDescription",
    ),
    "tidemark.client.admin.group_types": (
        "GroupDescription",
        "GroupListing",
        "MemberDescription",
        "TransactionDescription",
        "TransactionListing",
    ),
    "tidemark.client.admin.share_types": (
        "ShareGroupDescription",
        "ShareGroupOffset",
        "ShareMemberDescription",
    ),
    "tidemark.client.config": (
        "AdminConfig",
        "ClientConfig",
        "ConsumerConfig",
        "ProducerConfig",
        "ShareConsumerConfig",
    ),
    "tidemark.client.consumer.consumer": ("Consumer",),
    "tidemark.client.consumer.group_types": (
        "GroupMetadata",
        "NoListener",
        "OffsetAndMetadata",
        "RebalanceListener",
    ),
    "tidemark.client.consumer.offset_lookup": ("OffsetAndTimestamp",),
    "tidemark.client.consumer.fetched_chunk": ("ConsumerRecord",),
    "tidemark.client.consumer.positions": ("OffsetSpec",),
    "tidemark.client.consumer.range_reader": (
        "RangeReader",
        "RangeReaderConfig",
    ),
    "tidemark.client.errors": (
        "AbortableTransactionError",
        "ClientError",
        "CommitFailedError",
        "DuplicateSequenceNumber",
        "InvalidRecordStateError",
        "InvalidSequenceNumber",
        "LogTruncationError",
        "ProducerFencedError",
        "ShareSessionLostError",
        "TidemarkError",
    ),
    "tidemark.client.producer.batches": (
        "Delivery",
        "RecordMetadata",
    ),
    "tidemark.client.producer.producer": ("Producer",),
    "tidemark.client.share.ack_batches": ("AcknowledgeType",),
    "tidemark.client.share.deliveries": ("ShareRecord",),
    "tidemark.client.share.factory": ("make_consumer",),
    "tidemark.client.share.share_consumer": ("ShareConsumer",),
    "tidemark.client.share.share_views": (
        "ShareLag",
        "ShareRange",
        "ShareViews",
        "ShareWindow",
    ),
    "tidemark.client.transactions.multi_writer": (
        "TransactionHandle",
        "Transactions",
        "Writer",
        "WriterReceipt",
    ),
    "tidemark.client.transactions.sink_batches": (
        "BatchId",
        "BatchOutcome",
        "SinkBatches",
    ),
    "tidemark.client.transactions.transactional_producer": ("TransactionalProducer",),
    "tidemark.model.topics": ("TopicPartition",),
}
"""Public names by module."""
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

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
    "LogTruncationError",
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
    """Import a public name from its module."""
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
