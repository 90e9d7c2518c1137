"""Everything the controller can be told: plain values, with the dice already rolled."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    InstantMs,
    TopicId,
)
from tidemark.model.metadata import BrokerImage, CoordinatorImage, FeedPosition

from controller.core.cluster import StoredCluster
from controller.core.liveness import CoordinatorListing, LiveListing

Assignment = tuple[int, tuple[BrokerId, ...]]
"""Partition number and its replicas, preferred first."""


class Request(NamedTuple):
    """Which request to answer, and until when it is worth it."""

    request_id: int
    deadline: InstantMs


# What happens to the controller itself.


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
    """No longer the active controller, or no longer sure to be."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreWritten:
    """A WriteStore is in ZooKeeper, all of it."""

    write_id: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A WriteStore failed for good, or its outcome cannot be known: this term is over."""

    write_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class LiveBrokersChanged:
    """Who has a ZooKeeper session now."""

    listing: LiveListing


@dataclass(frozen=True, slots=True)
class LiveCoordinatorsChanged:
    """Which coordinators of one kind have a ZooKeeper session now."""

    listing: CoordinatorListing


# A stream is known by the epoch of the registration that it belongs to: a broker's, or a
# coordinator's; both are numbers of one sequence.


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
    """A broker that had no stream has one."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: ``Controller.next_deadline``."""


# What others ask for.


LogKey = tuple[TopicId, int]
"""Topic id and partition number."""


@dataclass(frozen=True, slots=True)
class HeldLogs:
    """The logs in the directories of a broker, by what they are worth."""

    sound: frozenset[LogKey] = frozenset()
    damaged: frozenset[LogKey] = frozenset()
    """Some batch is missing, or not what was written, but the log's end is whole."""
    lost: frozenset[LogKey] = frozenset()
    """The log's end may be missing: its directory failed, or it was cut short."""
    missing: frozenset[tuple[str, int]] = frozenset()
    """By topic name: a checkpoint names them, and there is no log."""


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """``broker.broker_epoch`` is the transaction that made its live znode; -1: there is none.

    ``cluster_id`` is what the broker's disks say, '' for new ones. ``listing`` was read after the
    broker asked.
    """

    request: Request
    broker: BrokerImage
    cluster_id: str
    listing: LiveListing
    clean_stop: bool = False
    previous_broker_epoch: int = -1
    """Under which it stopped; -1: not known."""
    held: HeldLogs | None = None
    """None: a release that does not send it."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """One topic to create; counts of -1 mean the cluster's defaults. ``topic_id`` is random."""

    name: str
    topic_id: TopicId
    partition_count: int
    replication_factor: int
    assignments: tuple[Assignment, ...] = ()
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """``dice`` (any random number) decides between brokers that are equally good."""

    request: Request
    topics: tuple[NewTopic, ...]
    dice: int
    validate_only: bool = False


class TopicRef(NamedTuple):
    """A topic by its name, or, where the name is '', by its id."""

    name: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Each by name or by id."""

    request: Request
    topics: tuple[TopicRef, ...]


class MorePartitions(NamedTuple):
    """``partition_count`` is the new total, ``assignments`` are the added partitions', in order."""

    name: str
    partition_count: int
    assignments: tuple[tuple[BrokerId, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to topics."""

    request: Request
    topics: tuple[MorePartitions, ...]
    dice: int
    validate_only: bool = False


class ConfigOperation(IntEnum):
    """IncrementalAlterConfigs' numbers (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One key of one resource."""

    name: str
    operation: ConfigOperation
    value: str = ""


class ConfigResource(NamedTuple):
    """All changes of one resource. Type 2 is a topic, 4 a broker ('': the cluster-wide default), 32
    a group.

    ``replace_all``: what is not named goes back to its default (AlterConfigs, KIP-133).
    """

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Change dynamic configuration."""

    request: Request
    resources: tuple[ConfigResource, ...]
    validate_only: bool = False


class CoordinatorRef(NamedTuple):
    """One incarnation of one coordinator replica."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker, or a coordinator, asks for a block of producer ids that nobody else ever gets."""

    request: Request
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    coordinator: CoordinatorRef | None = None
    """Who asks, where it is no broker."""


@dataclass(frozen=True, slots=True)
class RegisterCoordinator:
    """``coordinator.coordinator_epoch`` is the transaction that made its live znode; -1: there is
    none. ``listing`` was read after the coordinator asked.
    """

    request: Request
    coordinator: CoordinatorImage
    cluster_id: str
    listing: CoordinatorListing


@dataclass(frozen=True, slots=True)
class AcquireShard:
    """The owner of a shard begins to serve it, from its log: under an owner epoch of its own."""

    request: Request
    coordinator: CoordinatorRef
    shard: int


class IsrMember(NamedTuple):
    """One member of a proposed ISR; epoch -1 is not known."""

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
    """A broker proposes ISRs of partitions that it leads (KIP-497, KIP-903)."""

    request: Request
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    changes: tuple[IsrChange, ...]


class UnsoundReplica(NamedTuple):
    """A replica whose disk failed, or lost bytes."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    """The latest that it has led or followed in: no fetch of it names a later one."""
    offline: bool
    """It serves nobody; else it is damaged, and leads on until another does."""


@dataclass(frozen=True, slots=True)
class ReportReplicas:
    """A broker names its own unsound replicas. It asks until none is in an ISR or an ELR."""

    request: Request
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: tuple[UnsoundReplica, ...]


class PartitionRef(NamedTuple):
    """One partition by its topic's name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect preferred leaders, or unclean ones where there is none. ``partitions`` None: all."""

    request: Request
    preferred: bool
    partitions: tuple[PartitionRef, ...] | None


class Move(NamedTuple):
    """Where one partition's replicas are to be; ``replicas`` None cancels what is under way."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """Move replicas (KIP-455)."""

    request: Request
    moves: tuple[Move, ...]
    allow_rf_change: bool = True


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """A broker wants to lead nothing any more. It asks until nothing is left."""

    request: Request
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


Asked = (
    RegisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
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
    | LiveBrokersChanged
    | LiveCoordinatorsChanged
    | FeedAcknowledged
    | FeedLost
    | FeedRegained
    | Tick
    | Asked
)
