"""Conversion of metadata, images and deltas, to and from protobuf."""

from collections.abc import Generator, Mapping
from typing import Final

from tidemark_wire.v1 import common_pb2, controller_pb2

from tidemark.model.ids import (
    BrokerEpoch,
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
    Endpoint,
    FeedPosition,
    PartitionImage,
    ShardOwner,
    TopicImage,
)
from tidemark.runtime.acl_wire import read_acls, write_acls
from tidemark.runtime.quotas_wire import read_quotas, write_quotas
from tidemark.runtime.users_wire import read_users, write_users

Configs = Mapping[str, Mapping[str, str]]
Shards = Mapping[str, tuple[ShardOwner, ...]]

READ_AT_ONCE: Final = 500
"""Partitions read in one step of reading a snapshot."""


def write_position(position: FeedPosition) -> common_pb2.FeedPosition:
    """Convert from model to wire."""
    return common_pb2.FeedPosition(
        controller_epoch=position.controller_epoch, version=position.version
    )


def read_position(wire: common_pb2.FeedPosition) -> FeedPosition:
    """Convert from wire to model."""
    return FeedPosition(ControllerEpoch(wire.controller_epoch), wire.version)


def write_broker(broker: BrokerImage) -> controller_pb2.BrokerInfo:
    """Convert from model to wire."""
    return controller_pb2.BrokerInfo(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        incarnation_id=broker.incarnation_id,
        endpoints=[
            controller_pb2.Endpoint(
                listener=point.listener,
                host=point.host,
                port=point.port,
                security_protocol=point.security_protocol,
            )
            for point in broker.endpoints
        ],
        grpc_endpoint=broker.grpc_endpoint,
        rack=broker.rack or "",
        node=broker.node,
        fenced=broker.fenced,
        boot_id=broker.boot_id,
        log_dir_ids=broker.log_dir_ids,
        shutting_down=broker.shutting_down,
    )


def read_broker(wire: controller_pb2.BrokerInfo) -> BrokerImage:
    """Convert from wire to model."""
    return BrokerImage(
        broker_id=BrokerId(wire.broker_id),
        broker_epoch=BrokerEpoch(wire.broker_epoch),
        incarnation_id=wire.incarnation_id,
        endpoints=tuple(
            Endpoint(point.listener, point.host, point.port, point.security_protocol or "PLAINTEXT")
            for point in wire.endpoints
        ),
        grpc_endpoint=wire.grpc_endpoint,
        rack=wire.rack or None,
        node=wire.node,
        fenced=wire.fenced,
        boot_id=wire.boot_id,
        log_dir_ids=tuple(wire.log_dir_ids),
        shutting_down=wire.shutting_down,
    )


def write_partition(partition: PartitionImage) -> controller_pb2.PartitionState:
    """Convert from model to wire."""
    return controller_pb2.PartitionState(
        partition=partition.partition,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        elr=partition.elr,
        last_known_leader=partition.last_known_leader,
        adding=partition.adding,
        removing=partition.removing,
    )


def read_partition(wire: controller_pb2.PartitionState) -> PartitionImage:
    """Convert from wire to model."""
    return PartitionImage(
        partition=wire.partition,
        replicas=tuple(map(BrokerId, wire.replicas)),
        isr=tuple(map(BrokerId, wire.isr)),
        leader=BrokerId(wire.leader),
        leader_epoch=LeaderEpoch(wire.leader_epoch),
        partition_epoch=PartitionEpoch(wire.partition_epoch),
        elr=tuple(map(BrokerId, wire.elr)),
        last_known_leader=BrokerId(wire.last_known_leader),
        adding=tuple(map(BrokerId, wire.adding)),
        removing=tuple(map(BrokerId, wire.removing)),
    )


def write_topic(topic: TopicImage) -> controller_pb2.TopicState:
    """Convert from model to wire."""
    return controller_pb2.TopicState(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=topic.configs,
        partitions=map(write_partition, topic.partitions),
    )


def read_topic(wire: controller_pb2.TopicState) -> TopicImage:
    """Convert from wire to model."""
    return TopicImage(
        name=wire.name,
        topic_id=TopicId(wire.topic_id),
        configs=dict(wire.configs),
        partitions=tuple(map(read_partition, wire.partitions)),
    )


def write_coordinator(coordinator: CoordinatorImage) -> controller_pb2.CoordinatorInfo:
    """Convert from model to wire."""
    return controller_pb2.CoordinatorInfo(
        kind=coordinator.kind,
        coordinator_id=coordinator.coordinator_id,
        incarnation_id=coordinator.incarnation_id,
        grpc_endpoint=coordinator.grpc_endpoint,
        coordinator_epoch=coordinator.coordinator_epoch,
    )


def read_coordinator(wire: controller_pb2.CoordinatorInfo) -> CoordinatorImage:
    """Convert from wire to model."""
    return CoordinatorImage(
        kind=wire.kind,
        coordinator_id=wire.coordinator_id,
        incarnation_id=wire.incarnation_id,
        grpc_endpoint=wire.grpc_endpoint,
        coordinator_epoch=wire.coordinator_epoch,
    )


def write_delta(delta: ClusterDelta) -> controller_pb2.MetadataDelta:
    """Convert from model to wire."""
    return controller_pb2.MetadataDelta(
        brokers_changed=map(write_broker, delta.brokers_changed),
        brokers_gone=delta.brokers_gone,
        topics_changed=map(write_topic, delta.topics_changed),
        topics_deleted=delta.topics_deleted,
        broker_configs_changed=_write_configs(delta.broker_configs_changed),
        finalized_features=delta.finalized_features,
        coordinators_changed=map(write_coordinator, delta.coordinators_changed),
        coordinators_gone=[
            controller_pb2.CoordinatorKey(kind=kind, coordinator_id=coordinator_id)
            for kind, coordinator_id in delta.coordinators_gone
        ],
        shards_changed=_write_shards(delta.shards_changed),
        group_configs_changed=_write_configs(delta.group_configs_changed),
        partitions_changed=[
            controller_pb2.ChangedPartitions(
                topic_id=topic_id, partitions=map(write_partition, partitions)
            )
            for topic_id, partitions in delta.partitions_changed.items()
        ],
        acls_changed=write_acls(delta.acls_changed),
        users_changed=write_users(delta.users_changed),
        quotas_changed=write_quotas(delta.quotas_changed),
        client_metrics_changed=_write_configs(delta.client_metrics_changed),
    )


def read_delta(wire: controller_pb2.MetadataDelta) -> ClusterDelta:
    """Convert from wire to model."""
    return ClusterDelta(
        brokers_changed=tuple(map(read_broker, wire.brokers_changed)),
        brokers_gone=tuple(map(BrokerId, wire.brokers_gone)),
        topics_changed=tuple(map(read_topic, wire.topics_changed)),
        topics_deleted=tuple(map(TopicId, wire.topics_deleted)),
        broker_configs_changed=_read_configs(wire.broker_configs_changed),
        finalized_features=dict(wire.finalized_features),
        coordinators_changed=tuple(map(read_coordinator, wire.coordinators_changed)),
        coordinators_gone=tuple((one.kind, one.coordinator_id) for one in wire.coordinators_gone),
        shards_changed=_read_shards(wire.shards_changed),
        group_configs_changed=_read_configs(wire.group_configs_changed),
        partitions_changed={
            TopicId(one.topic_id): tuple(map(read_partition, one.partitions))
            for one in wire.partitions_changed
        },
        acls_changed=read_acls(wire.acls_changed),
        users_changed=read_users(wire.users_changed),
        quotas_changed=read_quotas(wire.quotas_changed),
        client_metrics_changed=_read_configs(wire.client_metrics_changed),
    )


def write_snapshot(image: ClusterImage) -> controller_pb2.MetadataSnapshot:
    """Convert from model to wire. Position and controller are in the update that holds it."""
    return controller_pb2.MetadataSnapshot(
        cluster_id=image.cluster_id,
        brokers=map(write_broker, image.brokers.values()),
        topics=map(write_topic, image.topics.values()),
        broker_configs=_write_configs(image.broker_configs),
        finalized_features=image.finalized_features,
        coordinators=map(write_coordinator, image.coordinators.values()),
        shards=_write_shards(image.shards),
        group_configs=_write_configs(image.group_configs),
        acls=write_acls(image.acls),
        users=write_users(image.users),
        login_secret=image.login_secret,
        quotas=write_quotas(image.quotas),
        client_metrics=_write_configs(image.client_metrics),
    )


def read_snapshot(
    wire: controller_pb2.MetadataSnapshot, position: FeedPosition, controller_id: ControllerId
) -> Generator[None, None, ClusterImage]:
    """Convert a whole image from wire to model, in steps of a few milliseconds."""
    topics: list[TopicImage] = []
    for topic in wire.topics:
        topics.append((yield from _read_topic_in_steps(topic)))
    brokers = [read_broker(broker) for broker in wire.brokers]
    coordinators = [read_coordinator(one) for one in wire.coordinators]
    return ClusterImage(
        position=position,
        cluster_id=wire.cluster_id,
        controller_id=controller_id,
        brokers={broker.broker_id: broker for broker in brokers},
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        broker_configs=_read_configs(wire.broker_configs),
        finalized_features=dict(wire.finalized_features),
        coordinators={one.key: one for one in coordinators},
        shards=_read_shards(wire.shards),
        group_configs=_read_configs(wire.group_configs),
        acls=read_acls(wire.acls),
        users=read_users(wire.users),
        login_secret=wire.login_secret,
        quotas=read_quotas(wire.quotas),
        client_metrics=_read_configs(wire.client_metrics),
    )


def snapshot_update(image: ClusterImage) -> controller_pb2.MetadataUpdate:
    """Build the first update of a new subscriber."""
    return controller_pb2.MetadataUpdate(
        position=write_position(image.position),
        controller_id=image.controller_id,
        snapshot=write_snapshot(image),
    )


def delta_update(
    delta: ClusterDelta, position: FeedPosition, controller_id: ControllerId
) -> controller_pb2.MetadataUpdate:
    """Build the update that every subscriber gets at a change."""
    return controller_pb2.MetadataUpdate(
        position=write_position(position), controller_id=controller_id, delta=write_delta(delta)
    )


def _read_topic_in_steps(wire: controller_pb2.TopicState) -> Generator[None, None, TopicImage]:
    partitions: list[PartitionImage] = []
    for first in range(0, len(wire.partitions), READ_AT_ONCE):
        partitions += map(read_partition, wire.partitions[first : first + READ_AT_ONCE])
        yield
    return TopicImage(wire.name, TopicId(wire.topic_id), dict(wire.configs), tuple(partitions))


def apply_update(
    image: ClusterImage, update: controller_pb2.MetadataUpdate
) -> Generator[None, None, tuple[ClusterImage, ClusterDelta | None]]:
    """Return the image after an update, and its delta, in steps of a few milliseconds. The delta
    of a snapshot is None: everything may have changed.
    """
    position = read_position(update.position)
    controller_id = ControllerId(update.controller_id)
    if update.HasField("snapshot"):
        return (yield from read_snapshot(update.snapshot, position, controller_id)), None
    delta = read_delta(update.delta)
    return image.apply(delta, position, controller_id), delta


def _write_configs(configs: Configs) -> dict[str, controller_pb2.BrokerConfigs]:
    return {name: controller_pb2.BrokerConfigs(configs=values) for name, values in configs.items()}


def _read_configs(wire: Mapping[str, controller_pb2.BrokerConfigs]) -> dict[str, dict[str, str]]:
    return {name: dict(values.configs) for name, values in wire.items()}


def _write_shards(shards: Shards) -> dict[str, controller_pb2.ShardOwners]:
    return {
        kind: controller_pb2.ShardOwners(
            owners=[
                controller_pb2.ShardOwner(
                    shard=one.shard, coordinator_id=one.coordinator_id, owner_epoch=one.owner_epoch
                )
                for one in owners
            ]
        )
        for kind, owners in shards.items()
    }


def _read_shards(
    wire: Mapping[str, controller_pb2.ShardOwners],
) -> dict[str, tuple[ShardOwner, ...]]:
    return {
        kind: tuple(
            ShardOwner(one.shard, one.coordinator_id, one.owner_epoch) for one in owners.owners
        )
        for kind, owners in wire.items()
    }
