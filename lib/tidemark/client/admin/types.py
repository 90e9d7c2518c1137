"""Types of the admin client: plain frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tidemark.client.wire.metadata_cache import BrokerView, PartitionView, TopicView
from tidemark.model.topics import TopicPartition

TopicDescription = TopicView
PartitionDescription = PartitionView

RESOURCE_TYPES: Final[Mapping[str, int]] = {
    "topic": 2,
    "broker": 4,
    "broker-logger": 8,
    "client-metrics": 16,
    "group": 32,
}
OPERATIONS: Final[Mapping[str, int]] = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
CONFIG_SOURCES: Final[Mapping[int, str]] = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "broker file",
    5: "default",
    6: "broker logger",
    7: "subscription",
    8: "group",
}
CONFIG_TYPES: Final[Mapping[int, str]] = {
    0: "unknown",
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Topic to create; -1 selects the cluster's default.

    ``assignments`` are replicas by partition.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


class CreatedTopic(NamedTuple):
    """Topic that was created."""

    topic: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class ConfigResource(NamedTuple):
    """Owner of a configuration. A broker's name is its id; "" is the default of all brokers. The
    settings of a broker-logger, also named by the broker's id, are log levels by logger. Those of
    client-metrics are a subscription to metrics of clients.
    """

    kind: Literal["topic", "broker", "broker-logger", "client-metrics", "group"]
    name: str


class ConfigSynonym(NamedTuple):
    """Source of a value, in order of precedence."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """Effective setting. ``source`` is where the value comes from; ``value`` is None if secret."""

    name: str
    value: str | None
    source: str
    kind: str = "unknown"
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """True if the value is not set anywhere."""
        return self.source == "default"


class AlterConfig(NamedTuple):
    """Change of one setting. Append and subtract apply to lists; delete restores the default."""

    name: str
    value: str | None = None
    operation: Literal["set", "delete", "append", "subtract"] = "set"


class ClusterDescription(NamedTuple):
    """Live brokers. ``controller_id`` is a broker that accepts admin requests."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerView, ...]


class ReplicaLog(NamedTuple):
    """Replica's log in a directory; ``offset_lag`` is the number of records that it lacks."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """Log directory of a broker; byte counts are -1 if not reported."""

    broker_id: int
    path: str
    error_code: int
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: Mapping[TopicPartition, ReplicaLog] = field(default_factory=dict)


class ProducerState(NamedTuple):
    """State of one idempotent producer at a partition's leader."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Reassignment(NamedTuple):
    """Reassignment in progress (KIP-455); ``replicas`` lists targets before removed ones."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas after the move."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Replicas to which a cancelled move returns."""
        return tuple(one for one in self.replicas if one not in self.adding)


class ReplicaBounds(NamedTuple):
    """Start and end of one replica's own log, including uncommitted records."""

    log_start: int
    log_end: int
