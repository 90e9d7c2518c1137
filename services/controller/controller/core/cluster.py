"""State of the cluster, the only place where it changes, and the writes that store a change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Final, NamedTuple

from tidemark.model.acls import AclEntry, Acls, ResourcePattern
from tidemark.model.ids import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.model.quotas import ClientQuotas, QuotaEntity, QuotaValues
from tidemark.model.scram import UserCredentials
from tidemark.model.topics import metric_name

from controller.core.constants import Constants
from controller.core.shard_owners import Owners, check_owners

FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
FIRST_PARTITION_EPOCH: Final = PartitionEpoch(0)


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """Content of the store, as read at the beginning of a term."""

    cluster_id: str
    brokers: tuple[BrokerImage, ...] = ()
    topics: tuple[TopicImage, ...] = ()
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    coordinators: tuple[CoordinatorImage, ...] = ()
    shards: Mapping[str, Owners] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    acls: Acls = field(default_factory=dict)
    constants: Constants | None = None
    """None: no controller has written any."""
    users: Mapping[str, UserCredentials] = field(default_factory=dict, repr=False)
    login_secret: bytes = field(default=b"", repr=False)
    quotas: ClientQuotas = field(default_factory=dict)
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """Outcome of one decision. The feed sends the delta as it is."""

    delta: ClusterDelta
    next_producer_id: int | None = None
    unclean: int = 0
    """Number of elections in it that may have lost committed records."""

    @property
    def published(self) -> bool:
        """True if subscribers of the feed need the change, and not the store alone."""
        return self.delta != ClusterDelta()


# Writes, one value a znode. A large change takes several transactions, and the controller may die
# between any two, so their order matters. A topic exists from its PutTopic, which comes after its
# partitions, to its DropTopic, which comes before theirs: an unfinished change leaves partitions of
# no topic, which the next controller removes. A broker's registration comes after all partitions
# that it changes: until it is written, the next controller compares with the registration before,
# and makes the same decision again. Configuration comes after the partitions whose ELR it voids.
# A broker's configuration goes before its registration, so that the request can be repeated.


class PutBroker(NamedTuple):
    """A broker's registration."""

    broker: BrokerImage


class DropBroker(NamedTuple):
    """Remove a broker's registration, and the records of its processes that have ended."""

    broker_id: BrokerId


class PutPartition(NamedTuple):
    """A partition's leader, ISR and epochs."""

    topic_id: TopicId
    partition: PartitionImage


class PutTopic(NamedTuple):
    """A topic's assignment and configuration."""

    topic: TopicImage


class DropTopic(NamedTuple):
    """Remove a topic and its partitions."""

    topic: TopicImage


class PutBrokerConfigs(NamedTuple):
    """A broker's dynamic configuration; '' is the cluster-wide default. An empty one is removed."""

    broker: str
    configs: Mapping[str, str]


class PutGroupConfigs(NamedTuple):
    """A group's dynamic configuration. An empty one is removed."""

    group: str
    configs: Mapping[str, str]


class PutClientMetrics(NamedTuple):
    """A subscription to metrics of clients. An empty one is removed."""

    subscription: str
    configs: Mapping[str, str]


class PutAcls(NamedTuple):
    """Access control list of one pattern. An empty one is removed."""

    pattern: ResourcePattern
    entries: frozenset[AclEntry]


class PutUser(NamedTuple):
    """A user's credentials. A user without any is removed."""

    user: str
    credentials: UserCredentials


class PutQuotas(NamedTuple):
    """Client quotas of an entity. Without values it is removed."""

    entity: QuotaEntity
    values: QuotaValues


class PutProducerIds(NamedTuple):
    """The first producer id that is not allocated."""

    next_producer_id: int


class PutShards(NamedTuple):
    """Registered coordinators of one kind, and the owner of each of their shards. It is one value,
    so that the owner of a shard is always registered.
    """

    kind: str
    coordinators: tuple[CoordinatorImage, ...]
    owners: Owners


StoreOp = (
    PutBroker
    | DropBroker
    | PutPartition
    | PutTopic
    | DropTopic
    | PutBrokerConfigs
    | PutGroupConfigs
    | PutClientMetrics
    | PutAcls
    | PutUser
    | PutQuotas
    | PutProducerIds
    | PutShards
)


def store_ops(image: ClusterImage, change: Change) -> Iterator[StoreOp]:
    """Yield the writes that store ``change``, without those that leave ``image`` as it is.

    After any first part of them the next controller can do the rest: see above.
    """
    delta = change.delta
    for topic in delta.topics_changed:
        old = image.topics_by_id.get(topic.topic_id)
        before = () if old is None else old.partitions
        for partition in topic.partitions:
            number = partition.partition
            was = before[number] if number < len(before) else None
            if was is not partition and was != partition:
                yield PutPartition(topic.topic_id, partition)
        if old is None or _assignment(old) != _assignment(topic) or old.configs != topic.configs:
            yield PutTopic(topic)
    for topic_id in delta.topics_deleted:
        yield DropTopic(image.topics_by_id[topic_id])
    yield from starmap(PutBrokerConfigs, delta.broker_configs_changed.items())
    yield from starmap(PutGroupConfigs, delta.group_configs_changed.items())
    yield from starmap(PutClientMetrics, delta.client_metrics_changed.items())
    yield from starmap(PutAcls, delta.acls_changed.items())
    yield from starmap(PutUser, delta.users_changed.items())
    yield from starmap(PutQuotas, delta.quotas_changed.items())
    if change.next_producer_id is not None:
        yield PutProducerIds(change.next_producer_id)
    yield from _shard_ops(image, delta)
    yield from map(PutBroker, delta.brokers_changed)
    yield from map(DropBroker, delta.brokers_gone)


def _shard_ops(image: ClusterImage, delta: ClusterDelta) -> Iterator[PutShards]:
    kinds = {one.kind for one in delta.coordinators_changed}
    kinds |= {kind for kind, _ in delta.coordinators_gone} | delta.shards_changed.keys()
    coordinators, shards = image.coordinators_after(delta)
    for kind in sorted(kinds):
        registered = tuple(one for one in coordinators.values() if one.kind == kind)
        yield PutShards(kind, registered, shards.get(kind, ()))


def _assignment(topic: TopicImage) -> list[tuple[BrokerId, ...]]:
    return [partition.replicas for partition in topic.partitions]


@dataclass(slots=True)
class Loads:
    """Numbers of replicas by broker. ``preferred`` counts partitions whose first replica it has."""

    preferred: Counter[BrokerId] = field(default_factory=Counter)
    replicas: Counter[BrokerId] = field(default_factory=Counter)

    def add(self, assignment: Iterable[tuple[BrokerId, ...]], sign: int = 1) -> None:
        """Add the replicas of partitions, or with ``sign`` -1 subtract them."""
        for replicas in assignment:
            self.preferred[replicas[0]] += sign
            for broker_id in replicas:
                self.replicas[broker_id] += sign

    def copy(self) -> "Loads":
        """Return a copy, to try a placement."""
        return Loads(Counter(self.preferred), Counter(self.replicas))


class Cluster:
    """State of the active controller: what the store holds and the feed has sent.

    Invariant: ``loads`` and the index of names agree with ``image``.
    """

    def __init__(
        self,
        stored: StoredCluster,
        controller_id: ControllerId,
        controller_epoch: ControllerEpoch,
    ) -> None:
        self.image = ClusterImage(
            position=FeedPosition(controller_epoch, 0),
            cluster_id=stored.cluster_id,
            controller_id=controller_id,
            brokers={broker.broker_id: broker for broker in stored.brokers},
            topics={topic.name: topic for topic in stored.topics},
            topics_by_id={topic.topic_id: topic for topic in stored.topics},
            broker_configs=stored.broker_configs,
            finalized_features=stored.finalized_features,
            coordinators={one.key: one for one in stored.coordinators},
            shards=stored.shards,
            group_configs=stored.group_configs,
            acls=stored.acls,
            users=stored.users,
            login_secret=stored.login_secret,
            quotas=stored.quotas,
            client_metrics=stored.client_metrics,
        )
        self.next_producer_id = stored.next_producer_id
        self.loads = Loads()
        self._names: dict[str, str] = {}
        for topic in stored.topics:
            self._count_in(topic)

    def apply(self, change: Change) -> None:
        """Apply a change that the store holds. State changes in no other way."""
        if change.next_producer_id is not None:
            assert change.next_producer_id > self.next_producer_id, "producer ids are given once"
            self.next_producer_id = change.next_producer_id
        if not change.published:
            return
        for topic_id in change.delta.topics_deleted:
            self._count_out(self.image.topics_by_id[topic_id])
        for topic in change.delta.topics_changed:
            old = self.image.topics_by_id.get(topic.topic_id)
            if old is not None:
                self._count_out(old)
            self._count_in(topic)
        epoch, version = self.image.position
        position = FeedPosition(epoch, version + 1)
        self.image = self.image.apply(change.delta, position, self.image.controller_id)

    def _count_in(self, topic: TopicImage) -> None:
        self._names[metric_name(topic.name)] = topic.name
        self.loads.add(_assignment(topic))

    def _count_out(self, topic: TopicImage) -> None:
        del self._names[metric_name(topic.name)]
        self.loads.add(_assignment(topic), -1)

    def colliding_topic(self, name: str) -> str | None:
        """Return the topic, which may be ``name`` itself, that has the same name in metrics."""
        return self._names.get(metric_name(name))

    def check(self) -> None:
        """Assert the invariants."""
        image = self.image
        assert len(image.topics) == len(image.topics_by_id), "each topic has one name and one id"
        assert set(self._names.values()) == set(image.topics), "the index names every topic"
        counted = Loads()
        for topic in image.topics.values():
            assert topic.partitions, f"{topic.name} has no partition"
            counted.add(_assignment(topic))
            for number, partition in enumerate(topic.partitions):
                assert partition.partition == number, f"{topic.name}: partitions are in order"
                check_partition(partition)
        assert +counted.preferred == +self.loads.preferred, "preferred leaders are counted"
        assert +counted.replicas == +self.loads.replicas, "replicas are counted"
        for kind, owners in image.shards.items():
            check_owners(owners, {number for one, number in image.coordinators if one == kind})


def check_partition(partition: PartitionImage) -> None:
    """Assert the invariants of a partition."""
    assert len(set(partition.replicas)) == len(partition.replicas), "a replica is named once"
    assert set(partition.isr) <= set(partition.replicas), "the ISR is part of the replicas"
    assert partition.isr or partition.last_known_leader != NO_BROKER, "somebody is known to have it"
    assert set(partition.elr) <= set(partition.replicas), "the ELR is part of the replicas"
    assert not set(partition.elr) & set(partition.isr), "who is in sync is not merely eligible"
    assert partition.leader == -1 or partition.leader in partition.isr, "leaders are in sync"
    assert set(partition.adding) <= set(partition.replicas), "what is added is a replica already"
    assert set(partition.removing) <= set(partition.replicas), "what is removed still is one"


def new_partition(
    number: int, replicas: tuple[BrokerId, ...], active: frozenset[BrokerId]
) -> PartitionImage:
    """Return a new partition. Replicas on active brokers are in sync; the first of them leads."""
    isr = tuple(broker for broker in replicas if broker in active)
    assert isr, "a partition is placed on at least one active broker"
    return PartitionImage(
        partition=number,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        partition_epoch=FIRST_PARTITION_EPOCH,
    )


def with_partitions(
    image: ClusterImage, drafts: Mapping[TopicId, Mapping[int, PartitionImage]]
) -> tuple[TopicImage, ...]:
    """Return the topics whose partitions change, with the new states of the partitions."""
    return tuple(
        replace(
            topic,
            partitions=tuple(changed.get(one.partition, one) for one in topic.partitions),
        )
        for topic, changed in ((image.topics_by_id[key], new) for key, new in drafts.items())
    )


def fence(broker: BrokerImage) -> BrokerImage:
    """Return the broker as fenced."""
    return replace(broker, fenced=True)
