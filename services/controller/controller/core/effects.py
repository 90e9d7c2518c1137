"""Effects of the controller, which its shell performs, and the results of requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemark.model.acls import AclBinding
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
    """Result of one topic of a request."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class ConfigResult(NamedTuple):
    """Result of one resource of AlterConfigs."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class AclResult(NamedTuple):
    """Result of one binding of CreateAcls, or of one filter of DeleteAcls with what it deleted."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    deleted: tuple[AclBinding, ...] = ()


@dataclass(frozen=True, slots=True)
class AclResults:
    """Results of CreateAcls or DeleteAcls, in the order of the request."""

    results: tuple[AclResult, ...]


class UserResult(NamedTuple):
    """Result of one user of AlterUsers."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class UserResults:
    """Results of AlterUsers."""

    users: tuple[UserResult, ...]


class QuotaResult(NamedTuple):
    """Result of one entry of AlterQuotas."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class QuotaResults:
    """Results of AlterQuotas, in the order of the request."""

    entries: tuple[QuotaResult, ...]


class Registered(NamedTuple):
    """Result of RegisterBroker."""

    broker_epoch: BrokerEpoch
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """Block of ``count`` producer ids, from ``first`` on."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class CoordinatorRegistered:
    """Result of RegisterCoordinator."""

    coordinator_epoch: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ShardAcquired:
    """Epoch under which the owner of a shard writes from now on."""

    owner_epoch: int


class PartitionResult(NamedTuple):
    """Result of one partition of a request."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class PartitionResults:
    """Results of ElectLeaders and AlterReassignments."""

    partitions: tuple[PartitionResult, ...]


class AlteredPartition(NamedTuple):
    """Result of one proposed ISR. ``state`` is the partition as agreed now; None if unknown."""

    topic_id: TopicId
    partition: int
    error: ErrorCode
    state: PartitionImage | None


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """Results of AlterPartitions."""

    partitions: tuple[AlteredPartition, ...]


class ReportedReplica(NamedTuple):
    """Result of one unsound replica. ELIGIBLE_LEADERS_NOT_AVAILABLE: it keeps its place."""

    topic_id: TopicId
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ReportedReplicas:
    """Results of ReportReplicas."""

    replicas: tuple[ReportedReplica, ...]


@dataclass(frozen=True, slots=True)
class ShutdownProgress:
    """Number of partitions that a stopping broker still leads and another could lead."""

    partitions_led: int


Result = (
    AclResults
    | PartitionResults
    | AlteredPartitions
    | ReportedReplicas
    | ShutdownProgress
    | UserResults
    | QuotaResults
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
    """One action of the shell. Effects are performed in the order given."""


@dataclass(frozen=True, slots=True)
class WriteStore(Effect):
    """Write in this order; StoreWritten or StoreFailed follows. One is under way at a time."""

    write_id: int
    ops: tuple[StoreOp, ...]


@dataclass(frozen=True, slots=True)
class OpenFeed(Effect):
    """Open the feed of a new term: subscribers begin with this image."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Send a delta to every subscriber. ``image`` has it applied."""

    delta: ClusterDelta
    image: ClusterImage
    unclean: int = 0
    """Number of elections in it that may have lost committed records."""


@dataclass(frozen=True, slots=True)
class RemoveLiveZnode(Effect):
    """Remove the live znode of a broker's process, to fence it: its stream is lost."""

    broker_id: BrokerId
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class RemoveCoordinatorZnode(Effect):
    """Remove the live znode of a coordinator's process, to fence it."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class CloseFeed(Effect):
    """Close the feed at the end of the term, and end every subscription."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resign(Effect):
    """Stop being the active controller, and stand for election again."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoteFault(Effect):
    """Log and count an error of the controller's own code; ``where`` it happened."""

    where: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Reply(Effect):
    """Answer a request. At ``position`` the feed shows its change."""

    request_id: int
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    position: FeedPosition = START_OF_FEED
    result: Result = field(default=None)
