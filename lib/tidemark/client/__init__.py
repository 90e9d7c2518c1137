"""Tidemark's own Python client: typed, async first; `tidemark.client.sync` has the same without
``await``.
"""

from tidemark.client.admin import (
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
from tidemark.client.batches import Delivery, RecordMetadata
from tidemark.client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from tidemark.client.consumer import Consumer
from tidemark.client.errors import (
    ClientError,
    DuplicateSequenceNumber,
    InvalidSequenceNumber,
    TidemarkError,
)
from tidemark.client.offset_lookup import OffsetAndTimestamp
from tidemark.client.positions import ConsumerRecord, OffsetSpec
from tidemark.client.producer import Producer
from tidemark.model.topics import TopicPartition

__all__ = [
    "Admin",
    "AdminConfig",
    "AlterConfig",
    "ClientConfig",
    "ClientError",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "Delivery",
    "DuplicateSequenceNumber",
    "InvalidSequenceNumber",
    "LogDir",
    "NewTopic",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Producer",
    "ProducerConfig",
    "ProducerState",
    "Reassignment",
    "RecordMetadata",
    "ReplicaBounds",
    "ReplicaLog",
    "TidemarkError",
    "TopicDescription",
    "TopicPartition",
]
