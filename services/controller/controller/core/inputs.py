"""Inputs of the controller: plain values. Random numbers are part of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tidemark.model.acls import AclFilter, RawBinding
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    InstantMs,
    TopicId,
)
from tidemark.model.metadata import BrokerImage, CoordinatorImage, FeedPosition
from tidemark.model.quotas import QuotaEntity, QuotaValues
from tidemark.model.scram import ScramCredential

from controller.core.cluster import StoredCluster
from controller.core.effects import PartitionResult
from controller.core.liveness import CoordinatorListing, LiveListing

Assignment = tuple[int, tuple[BrokerId, ...]]
"""Partition number and its replicas, preferred first."""


class RequestHeader(NamedTuple):
    """Id of a request, and the time after which its reply is of no use."""

    request_id: int
    deadline: InstantMs


# -- events


@dataclass(frozen=True, slots=True)
class Elected:
    """This replica is active in a new epoch; ``stored`` was read after the epoch was written."""

    controller_id: ControllerId
    controller_epoch: ControllerEpoch
    stored: StoredCluster
    listing: LiveListing
    coordinators: tuple[CoordinatorListing, ...] = ()
    """One for each kind."""


@dataclass(frozen=True, slots=True)
class Deposed:
    """This replica is no longer the active controller, or no longer certain to be."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreWritten:
    """A WriteStore is in ZooKeeper as a whole."""

    write_id: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A WriteStore failed, or its outcome cannot be known: the term is over."""

    write_id: int
    reason: str
    fault: Exception | None = None
    """The error of this program for which it failed."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """The shell failed by an error of its own, before it answered these requests."""

    error: Exception
    unanswered: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveBrokersChanged:
    """The brokers that have a ZooKeeper session changed."""

    listing: LiveListing


@dataclass(frozen=True, slots=True)
class LiveCoordinatorsChanged:
    """The coordinators of one kind that have a ZooKeeper session changed."""

    listing: CoordinatorListing


# A stream is identified by the epoch of its registration, a broker's or a coordinator's. Both are
# numbers of one sequence.


@dataclass(frozen=True, slots=True)
class FeedAcknowledged:
    """A broker has applied the feed up to ``position``."""

    broker_epoch: BrokerEpoch
    position: FeedPosition


@dataclass(frozen=True, slots=True)
class FeedLost:
    """The last stream of a broker broke."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class FeedRegained:
    """A broker has a stream, and had none before."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of ``Controller.next_deadline`` has come."""


# -- requests

LogKey = tuple[TopicId, int]
"""Topic id and partition number."""


@dataclass(frozen=True, slots=True)
class HeldLogs:
    """Logs in the directories of a broker, by their soundness."""

    sound: frozenset[LogKey] = frozenset()
    damaged: frozenset[LogKey] = frozenset()
    """A batch is missing or altered, but the end of the log is whole."""
    lost: frozenset[LogKey] = frozenset()
    """The end of the log may be missing: its directory failed, or it was truncated."""
    missing: frozenset[tuple[str, int]] = frozenset()
    """Partitions, by topic name, that a checkpoint names and that have no log."""
    directory_of: Mapping[LogKey, bytes] = field(default_factory=dict)
    """Id of the directory of each log; empty for a broker of an older release."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """Register a broker. ``broker.broker_epoch`` is the ZooKeeper transaction that created its live
    znode; -1: there is none.

    ``cluster_id`` is the one on the broker's disks; '' for new disks. ``listing`` was read after
    the request came.
    """

    header: RequestHeader
    broker: BrokerImage
    cluster_id: str
    listing: LiveListing
    clean_stop: bool = False
    previous_broker_epoch: int = -1
    """Epoch under which the broker stopped; -1: not known."""
    held: HeldLogs | None = None
    """None: the broker's release does not send it."""


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker that will not return. ``listing`` was read after the request came."""

    header: RequestHeader
    broker_id: BrokerId
    listing: LiveListing


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Counts of -1 stand for the cluster's defaults. ``topic_id`` is random."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    assignments: tuple[Assignment, ...] = ()
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics. ``dice``, a random number, decides between equally suitable brokers."""

    header: RequestHeader
    topics: tuple[NewTopic, ...]
    dice: int
    validate_only: bool = False


class TopicRef(NamedTuple):
    """A topic by its name, or by its id if the name is ''."""

    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Delete topics, each by name or by id."""

    header: RequestHeader
    topics: tuple[TopicRef, ...]


class MorePartitions(NamedTuple):
    """Growth of a topic: the new total, and the replicas of each added partition, in order."""

    name: str
    partition_count: int
    assignments: tuple[tuple[BrokerId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to topics."""

    header: RequestHeader
    topics: tuple[MorePartitions, ...]
    dice: int
    validate_only: bool = False


class ConfigOperation(IntEnum):
    """Operation on a key, with the numbers of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """Change of one key of a resource."""

    name: str
    operation: ConfigOperation
    value: str = ""


class ConfigResource(NamedTuple):
    """All changes of one resource. Type 2 is a topic, 4 a broker ('': the cluster-wide default), 32
    a group.

    ``replace_all``: keys that are not named return to their defaults (AlterConfigs, KIP-133).
    """

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change dynamic configuration."""

    header: RequestHeader
    resources: tuple[ConfigResource, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Add bindings, each alone."""

    header: RequestHeader
    bindings: tuple[RawBinding, ...]


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Delete the bindings that filters select, each filter alone."""

    header: RequestHeader
    filters: tuple[AclFilter, ...]


class CredentialRef(NamedTuple):
    """Credential to remove: a user and the number of a mechanism, which may be unknown."""

    user: str
    mechanism: int


class NewCredential(NamedTuple):
    """Credential to set; ``credential`` None: its mechanism is unknown."""

    user: str
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class AlterUsers:
    """Set and remove credentials (KIP-554)."""

    header: RequestHeader
    deletions: tuple[CredentialRef, ...] = ()
    upsertions: tuple[NewCredential, ...] = ()


class QuotaAlteration(NamedTuple):
    """Quotas of one entity to set, and keys to remove; neither is checked yet."""

    entity: QuotaEntity
    values: QuotaValues
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    """Set and remove client quotas (KIP-546), each entity alone."""

    header: RequestHeader
    entries: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class CoordinatorRef(NamedTuple):
    """One process of a coordinator replica."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """Allocate a block of producer ids, which is never allocated again, to a broker or a
    coordinator.
    """

    header: RequestHeader
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    coordinator: CoordinatorRef | None = None
    """The requester, if it is a coordinator."""


@dataclass(frozen=True, slots=True)
class RegisterCoordinator:
    """Register a coordinator. ``coordinator.coordinator_epoch`` is the ZooKeeper transaction that
    created its live znode; -1: there is none. ``listing`` was read after the request came.
    """

    header: RequestHeader
    coordinator: CoordinatorImage
    cluster_id: str
    listing: CoordinatorListing


@dataclass(frozen=True, slots=True)
class AcquireShard:
    """Give the owner of a shard a new owner epoch, under which it loads and serves the shard."""

    header: RequestHeader
    coordinator: CoordinatorRef
    shard: int


class IsrMember(NamedTuple):
    """Member of a proposed ISR. Epoch -1: not known."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class IsrChange(NamedTuple):
    """The ISR that a leader proposes for one partition."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """Agree to ISRs that a leader proposes for its partitions (KIP-497, KIP-903)."""

    header: RequestHeader
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    changes: tuple[IsrChange, ...]


class UnsoundReplica(NamedTuple):
    """A replica whose disk failed or lost bytes."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """Latest epoch in which the replica led or followed. No fetch of it names a later one."""
    offline: bool
    """True if the replica is not served. Otherwise it is damaged, and leads until another does."""


@dataclass(frozen=True, slots=True)
class ReportReplicas:
    """Remove unsound replicas of a broker from ISR and ELR. The broker repeats the request until
    none is a member.
    """

    header: RequestHeader
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: tuple[UnsoundReplica, ...]


class PartitionRef(NamedTuple):
    """One partition by its topic's name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect preferred leaders, or by unclean elections leaders of partitions that have none.
    ``partitions`` None: all. ``decided``: results of a part that is written already.
    """

    header: RequestHeader
    preferred: bool
    partitions: tuple[PartitionRef, ...] | None
    decided: tuple[PartitionResult, ...] = ()


class Move(NamedTuple):
    """Target of a partition's replicas; ``replicas`` None cancels a move that is under way."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Move replicas (KIP-455)."""

    header: RequestHeader
    moves: tuple[Move, ...]
    allow_rf_change: bool = True


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """Hand over the partitions that a broker leads. The broker repeats the request until it leads
    none that another could lead.
    """

    header: RequestHeader
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


Request = (
    RegisterBroker
    | UnregisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | CreateAcls
    | DeleteAcls
    | AlterUsers
    | AlterQuotas
    | AllocateProducerIds
    | AlterPartitions
    | ReportReplicas
    | ElectLeaders
    | AlterReassignments
    | ControlledShutdown
    | RegisterCoordinator
    | AcquireShard
)
Input = (
    Elected
    | Deposed
    | StoreWritten
    | StoreFailed
    | Faulted
    | LiveBrokersChanged
    | LiveCoordinatorsChanged
    | FeedAcknowledged
    | FeedLost
    | FeedRegained
    | Tick
    | Request
)
