"""What the admin client takes and gives: plain frozen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tidemark.client.wire.metadata_cache import BrokerView, PartitionView, TopicView
from tidemark.model.topics import TopicPartition

TopicDescription = TopicView
PartitionDescription = PartitionView

RESOURCE_TYPES: Final[Mapping[str, int]] = {"topic": 2, "broker": 4, "group": 32}
OPERATIONS: Final[Mapping[str, int]] = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
CONFIG_SOURCES: Final[Mapping[int, str]] = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "broker file",
    5: "default",
    6: "broker logger",
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
    """A topic to make; -1 leaves a number to the cluster. ``assignments``: replicas of each
    partition, in order.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


class CreatedTopic(NamedTuple):
    """What came of a NewTopic."""

    topic: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class ConfigResource(NamedTuple):
    """Whose configuration. A broker's name is its id; "" is the default of all brokers."""

    kind: Literal["topic", "broker", "group"]
    name: str


class ConfigSynonym(NamedTuple):
    """A place where the value could come from, in order of precedence."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One effective setting. ``source`` says where the value comes from; ``value`` is None when it
    is secret.
    """

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
        """Whether nobody set it."""
        return self.source == "default"


class AlterConfig(NamedTuple):
    """One change; append and subtract are for lists, delete goes back to the default."""

    name: str
    value: str | None = None
    operation: Literal["set", "delete", "append", "subtract"] = "set"


class ClusterDescription(NamedTuple):
    """Brokers alive. ``controller_id`` names one that takes admin requests."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerView, ...]


class ReplicaLog(NamedTuple):
    """One replica's log in a directory; ``offset_lag`` counts records it is behind."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of one broker; bytes are -1 where the broker does not tell."""

    broker_id: int
    path: str
    error_code: int
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: Mapping[TopicPartition, ReplicaLog] = field(default_factory=dict)


class ProducerState(NamedTuple):
    """What a partition's leader remembers of one idempotent producer (K03)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Reassignment(NamedTuple):
    """A move under way (KIP-455). ``replicas`` are all that the partition has now: the target
    first, then those that go.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Where the replicas will be."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Where a cancelled move goes back to."""
        return tuple(one for one in self.replicas if one not in self.adding)


class ReplicaBounds(NamedTuple):
    """Where one replica's own log begins and ends, whether committed or not."""

    log_start: int
    log_end: int
