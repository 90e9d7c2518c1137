"""ClusterImage: the metadata of a cluster at one position of the controller's feed.

It is frozen; applying a delta creates a new image.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tidemark.model.acls import Acls, acls_after
from tidemark.model.ids import (
    NO_BROKER,
    NO_CONTROLLER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.quotas import ClientQuotas, quotas_after
from tidemark.model.scram import UserCredentials


class FeedPosition(NamedTuple):
    """Position in the metadata feed; compares as a pair."""

    controller_epoch: ControllerEpoch
    version: int


NO_COORDINATOR: Final = -1
TXN: Final = "txn"
"""Kind of coordinator of the txn-coordinators."""
SHARE: Final = "share"
"""Kind of coordinator of the share-coordinators."""
COORDINATOR_KINDS: Final = (TXN, SHARE)

PLAINTEXT: Final = "PLAINTEXT"
"""Kafka's name of the security protocol of a listener without TLS."""
SSL: Final = "SSL"
"""Kafka's name of the security protocol of a listener with TLS and without SASL."""
INTERNAL_LISTENER: Final = "INTERNAL"
"""Name of the listener for other brokers."""
CLIENT_LISTENER: Final = "CLIENT"
"""Name of the listener for clients of Kafka's protocol, where there is one."""
GRPC_LISTENER: Final = "GRPC"
"""Name of the listener for clients over gRPC; the others speak Kafka's protocol."""

START_OF_FEED: Final = FeedPosition(ControllerEpoch(-1), -1)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Advertised address of one named listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = PLAINTEXT

    @property
    def uses_tls(self) -> bool:
        """True if the listener's protocol is SSL."""
        return self.security_protocol == SSL


class InternalTopic(NamedTuple):
    """A broker's configuration for creating one of the internal topics."""

    name: str
    replication_factor: int
    min_insync_replicas: int
    """min.insync.replicas of the topic; 0 for that of all topics."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    grpc_endpoint: str
    rack: str | None
    node: str
    fenced: bool
    boot_id: str = ""
    """Boot id of the kernel at registration. After a change the page cache is lost."""
    log_dir_ids: tuple[bytes, ...] = ()
    shutting_down: bool = False
    """True once the broker has requested a controlled shutdown."""
    lease_ms: int = 0
    """lease.ms of the broker; 0 for a release that does not send it. Stored, not in the feed."""
    internal_topics: tuple[InternalTopic, ...] = ()
    """Empty for a release that does not send them. Stored, not in the feed."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address advertised for a named listener."""
        return next((point for point in self.endpoints if point.listener == listener), None)

    def replication_endpoint(self) -> Endpoint | None:
        """Return the endpoint from which followers fetch: listener INTERNAL, else the first one
        without TLS; None if there is neither.
        """
        internal = self.endpoint(INTERNAL_LISTENER)
        if internal is not None and internal.security_protocol in (PLAINTEXT, SSL):
            return internal
        return next(
            (point for point in self._kafka() if point.security_protocol == PLAINTEXT), None
        )

    def client_endpoint(self) -> Endpoint | None:
        """Return the endpoint of clients of Kafka's protocol: listener CLIENT, else the first one
        that is not for brokers.
        """
        named = self.endpoint(CLIENT_LISTENER)
        if named is not None:
            return named
        return next((point for point in self._kafka() if point.listener != INTERNAL_LISTENER), None)

    def _kafka(self) -> Iterator[Endpoint]:
        return (point for point in self.endpoints if point.listener != GRPC_LISTENER)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """State of one partition, as stored in ZooKeeper. ``replicas`` is in order of preference."""

    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    elr: tuple[BrokerId, ...] = ()
    """Eligible leader replicas (KIP-966). They left the ISR when it fell below
    min.insync.replicas, and hold all records below the high watermark, which has not moved since.
    """
    last_known_leader: BrokerId = NO_BROKER
    adding: tuple[BrokerId, ...] = ()
    """Members of ``replicas`` that a reassignment adds (KIP-455)."""
    removing: tuple[BrokerId, ...] = ()
    """Members of ``replicas`` that a reassignment removes."""

    @property
    def is_reassigning(self) -> bool:
        """True while replicas are being reassigned."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic. ``configs`` holds only the keys set; ``partitions`` is indexed by number."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionImage, ...]


CoordinatorKey = tuple[str, int]
"""Kind and id of a coordinator."""


@dataclass(frozen=True, slots=True)
class CoordinatorImage:
    """One live replica of a coordinator service; ``kind`` is one of COORDINATOR_KINDS."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes
    grpc_endpoint: str
    coordinator_epoch: int = -1
    """Epoch of the registration, increasing in the cluster; brokers' epochs never equal it."""

    @property
    def key(self) -> CoordinatorKey:
        """Unique key of the coordinator."""
        return self.kind, self.coordinator_id


class ShardOwner(NamedTuple):
    """Owner of one partition of a coordinator's state topic.

    ``owner_epoch`` is 0 before the first owner, and only increases. It may be ahead of the epoch
    that the owner uses, if the response to an acquisition was lost.
    """

    shard: int
    coordinator_id: int = NO_COORDINATOR
    owner_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ClusterDelta:
    """Change of metadata at one position of the feed. A changed topic is whole, or represented by
    its changed partitions; a deleted one by its id. ``shards_changed`` holds only changed shards.
    """

    brokers_changed: tuple[BrokerImage, ...] = ()
    brokers_gone: tuple[BrokerId, ...] = ()
    topics_changed: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicId, ...] = ()
    broker_configs_changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configurations by broker; empty for a broker that has none left."""
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    coordinators_changed: tuple[CoordinatorImage, ...] = ()
    coordinators_gone: tuple[CoordinatorKey, ...] = ()
    shards_changed: Mapping[str, tuple[ShardOwner, ...]] = field(default_factory=dict)
    group_configs_changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configurations by group; empty for a group that has none left."""
    partitions_changed: Mapping[TopicId, tuple[PartitionImage, ...]] = field(default_factory=dict)
    """Existing partitions of topics that do not change otherwise."""
    acls_changed: Acls = field(default_factory=dict)
    """Entries by pattern; empty for a pattern that has none left."""
    users_changed: Mapping[str, UserCredentials] = field(default_factory=dict, repr=False)
    """Credentials by user; empty for a user that has none left."""
    quotas_changed: ClientQuotas = field(default_factory=dict)
    """Values by entity; empty for an entity that has none left."""
    client_metrics_changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Subscriptions to metrics of clients by name; empty for one that is gone."""

    def narrowed(self, before: "ClusterImage") -> "ClusterDelta":
        """Return the same change of ``before``, with partitions in place of whole topics where
        only partitions change.
        """
        whole: list[TopicImage] = []
        partitions = dict(self.partitions_changed)
        for topic in self.topics_changed:
            old = before.topics_by_id.get(topic.topic_id)
            if (
                old is None
                or old.configs != topic.configs
                or len(old.partitions) != len(topic.partitions)
            ):
                whole.append(topic)
                continue
            pairs = zip(old.partitions, topic.partitions, strict=True)
            partitions[topic.topic_id] = tuple(
                new for was, new in pairs if was is not new and was != new
            )
        return replace(self, topics_changed=tuple(whole), partitions_changed=partitions)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All metadata at one position of the feed. ``broker_configs[""]`` is the cluster-wide default.
    ``shards[kind][n]`` is the owner of shard n; ``shards[kind]`` is empty until the kind's state
    topic exists. ``group_configs`` has only groups with a configuration.
    """

    position: FeedPosition = START_OF_FEED
    cluster_id: str = ""
    controller_id: ControllerId = NO_CONTROLLER
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    coordinators: Mapping[CoordinatorKey, CoordinatorImage] = field(default_factory=dict)
    shards: Mapping[str, tuple[ShardOwner, ...]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    acls: Acls = field(default_factory=dict)
    users: Mapping[str, UserCredentials] = field(default_factory=dict, repr=False)
    """SCRAM credentials by user, only of users that have some."""
    login_secret: bytes = field(default=b"", repr=False)
    """Secret of the cluster from which the answers to unknown users are made."""
    quotas: ClientQuotas = field(default_factory=dict)
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Subscriptions to metrics of clients by name."""

    def shard_owner(self, kind: str, shard: int) -> CoordinatorImage | None:
        """Return the coordinator that owns this shard; None while there is none."""
        owners = self.shards.get(kind, ())
        if not 0 <= shard < len(owners):
            return None
        return self.coordinators.get((kind, owners[shard].coordinator_id))

    def apply(
        self, delta: ClusterDelta, position: FeedPosition, controller_id: ControllerId
    ) -> "ClusterImage":
        """Return the image after a delta; this one does not change."""
        assert position > self.position, f"feed went back: {self.position} then {position}"
        topics, topics_by_id = self._topics_after(delta)
        brokers = self.brokers
        if delta.brokers_changed or delta.brokers_gone:
            changed = {broker.broker_id: broker for broker in delta.brokers_changed}
            kept = {**brokers, **changed}
            brokers = {key: one for key, one in kept.items() if key not in delta.brokers_gone}
        broker_configs = self.broker_configs
        if delta.broker_configs_changed:
            after = {**broker_configs, **delta.broker_configs_changed}
            broker_configs = {broker: configs for broker, configs in after.items() if configs}
        coordinators, shards = self.coordinators_after(delta)
        return replace(
            self,
            position=position,
            controller_id=controller_id,
            brokers=brokers,
            topics=topics,
            topics_by_id=topics_by_id,
            broker_configs=broker_configs,
            finalized_features={**self.finalized_features, **delta.finalized_features},
            coordinators=coordinators,
            shards=shards,
            group_configs=without_empty(self.group_configs, delta.group_configs_changed),
            acls=acls_after(self.acls, delta.acls_changed),
            users=self.users_after(delta),
            quotas=quotas_after(self.quotas, delta.quotas_changed),
            client_metrics=without_empty(self.client_metrics, delta.client_metrics_changed),
        )

    def _topics_after(
        self, delta: ClusterDelta
    ) -> tuple[Mapping[str, TopicImage], Mapping[TopicId, TopicImage]]:
        """Return ``topics`` and ``topics_by_id`` after a delta. For a topic whose partitions change
        only the tuple of references is copied: 70 us for 5,000 partitions.
        """
        if not (delta.topics_changed or delta.topics_deleted or delta.partitions_changed):
            return self.topics, self.topics_by_id
        topics, topics_by_id = dict(self.topics), dict(self.topics_by_id)
        for topic_id in delta.topics_deleted:
            gone = topics_by_id.pop(topic_id, None)
            if gone is not None and topics.get(gone.name, gone).topic_id == topic_id:
                topics.pop(gone.name, None)
        for topic in delta.topics_changed:
            topics[topic.name] = topics_by_id[topic.topic_id] = topic
        for topic_id, changed in delta.partitions_changed.items():
            old = topics_by_id[topic_id]
            partitions = list(old.partitions)
            for one in changed:
                partitions[one.partition] = one
            new = replace(old, partitions=tuple(partitions))
            topics[new.name] = topics_by_id[topic_id] = new
        return topics, topics_by_id

    def users_after(self, delta: ClusterDelta) -> Mapping[str, UserCredentials]:
        """Return ``users`` after a delta."""
        if not delta.users_changed:
            return self.users
        after = {**self.users, **delta.users_changed}
        return {user: credentials for user, credentials in after.items() if credentials}

    def coordinators_after(
        self, delta: ClusterDelta
    ) -> tuple[Mapping[CoordinatorKey, CoordinatorImage], Mapping[str, tuple[ShardOwner, ...]]]:
        """Return ``coordinators`` and ``shards`` after a delta."""
        coordinators, shards = self.coordinators, self.shards
        if delta.coordinators_changed or delta.coordinators_gone:
            changed = {one.key: one for one in delta.coordinators_changed}
            kept = {**coordinators, **changed}
            coordinators = {
                key: one for key, one in kept.items() if key not in delta.coordinators_gone
            }
        if delta.shards_changed:
            after = {
                kind: with_owners(shards.get(kind, ()), owners)
                for kind, owners in delta.shards_changed.items()
            }
            shards = {**shards, **after}
        return coordinators, shards


def without_empty(
    present: Mapping[str, Mapping[str, str]], changed: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    """Return configurations by name after a change of some; those that became empty are gone."""
    if not changed:
        return present
    after = {**present, **changed}
    return {name: configs for name, configs in after.items() if configs}


def with_owners(
    owners: tuple[ShardOwner, ...], changed: tuple[ShardOwner, ...]
) -> tuple[ShardOwner, ...]:
    """Return the owners after a change of some; new shards follow the existing ones."""
    by_shard = {one.shard: one for one in (*owners, *changed)}
    return tuple(by_shard[shard] for shard in sorted(by_shard))
