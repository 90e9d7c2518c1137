"""Everything the controller can ask its shell to do, and the answers it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerEpoch, BrokerId, TopicId
from tidemark.model.metadata import (
    START_OF_FEED,
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
)

from controller.core.cluster import StoreOp


class TopicResult(NamedTuple):
    """What became of one topic of a request."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class ConfigResult(NamedTuple):
    """What became of one resource of AlterConfigs."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class Registered(NamedTuple):
    """A broker's entitlement."""

    broker_epoch: BrokerEpoch
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """``count`` producer ids from ``first`` on."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class CoordinatorRegistered:
    """A coordinator's entitlement."""

    coordinator_epoch: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ShardAcquired:
    """Under which epoch the owner of a shard writes from now on."""

    owner_epoch: int


class PartitionResult(NamedTuple):
    """What became of one partition of a request."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartitionResults:
    """Of ElectLeaders and AlterReassignments."""

    partitions: tuple[PartitionResult, ...]


class AlteredPartition(NamedTuple):
    """What became of one proposed ISR; ``state`` is what is agreed now, None if unknown."""

    topic_id: TopicId
    partition: int
    error: ErrorCode
    state: PartitionImage | None


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """Of AlterPartitions."""

    partitions: tuple[AlteredPartition, ...]


class ReportedReplica(NamedTuple):
    """What became of one unsound replica. ELIGIBLE_LEADERS_NOT_AVAILABLE: it stays as it is."""

    topic_id: TopicId
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ReportedReplicas:
    """Of ReportReplicas."""

    replicas: tuple[ReportedReplica, ...]


@dataclass(frozen=True, slots=True)
class ShutdownProgress:
    """What a stopping broker still leads, and others could lead."""

    partitions_led: int


Result = (
    PartitionResults
    | AlteredPartitions
    | ReportedReplicas
    | ShutdownProgress
    | tuple[TopicResult, ...]
    | tuple[ConfigResult, ...]
    | Registered
    | ProducerIds
    | CoordinatorRegistered
    | ShardAcquired
    | None
)


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing the shell must do, in the order given."""


@dataclass(frozen=True, slots=True)
class WriteStore(Effect):
    """Write in this order; answer StoreWritten or StoreFailed. One is under way at a time."""

    write_id: int
    ops: tuple[StoreOp, ...]


@dataclass(frozen=True, slots=True)
class OpenFeed(Effect):
    """A new term: subscribers may come and begin with this image."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Send a delta to every subscriber; ``image`` is what it leads to."""

    delta: ClusterDelta
    image: ClusterImage
    unclean: int = 0
    """Of the elections in it, those that may have lost committed records."""


@dataclass(frozen=True, slots=True)
class RemoveLiveZnode(Effect):
    """Fence an incarnation that does not listen any more: its live znode is to go."""

    broker_id: BrokerId
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class RemoveCoordinatorZnode(Effect):
    """The same of a coordinator's."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class CloseFeed(Effect):
    """The term is over: send every subscriber away."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resign(Effect):
    """Give up being the controller, and stand for election anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reply(Effect):
    """Answer a request. ``position`` is where the feed shows what it did."""

    request_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    position: FeedPosition = START_OF_FEED
    result: Result = field(default=None)
