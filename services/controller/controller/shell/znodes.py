"""Contents of the controller's znodes: model to compact JSON and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidemark.model.acls import AclEntry, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import ResourceType
from tidemark.model.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    CoordinatorImage,
    Endpoint,
    InternalTopic,
    PartitionImage,
    ShardOwner,
    TopicImage,
)
from tidemark.model.quotas import QuotaEntity, QuotaValues
from tidemark.model.scram import MECHANISM_NAMES, ScramCredential, UserCredentials
from tidemark.runtime import zk_paths
from tidemark.runtime.exit_codes import ExitCode

from controller.core.constants import Constants

Content = dict[str, Any]


class DamagedStoreError(Exception):
    """The znodes are inconsistent, as no controller leaves them. A controller does not lead then:
    without the znode a topic, a refusal or a limit could be lost.
    """

    exit_code = ExitCode.DATA


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise DamagedStoreError, with the path, where a content lacks something or has other types.
    The path of an inner block counts.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedStoreError(
            f"znode {path} has a content that no controller writes"
            f" ({type(error).__name__}: {error}); {zk_paths.HOW_TO_MEND}"
        ) from error


def write_broker(broker: BrokerImage) -> bytes:
    """Encode a broker's registration."""
    return zk_paths.encode(
        {
            "broker_id": broker.broker_id,
            "broker_epoch": broker.broker_epoch,
            "incarnation_id": broker.incarnation_id.hex(),
            "endpoints": [
                [point.listener, point.host, point.port, point.security_protocol]
                for point in broker.endpoints
            ],
            "grpc_endpoint": broker.grpc_endpoint,
            "rack": broker.rack,
            "node": broker.node,
            "fenced": broker.fenced,
            "boot_id": broker.boot_id,
            "log_dir_ids": [one.hex() for one in broker.log_dir_ids],
            "shutting_down": broker.shutting_down,
            "lease_ms": broker.lease_ms,
            "internal_topics": broker.internal_topics,
        }
    )


def read_broker(content: Content) -> BrokerImage:
    """Inverse of ``write_broker``."""
    return BrokerImage(
        broker_id=BrokerId(content["broker_id"]),
        broker_epoch=BrokerEpoch(content["broker_epoch"]),
        incarnation_id=bytes.fromhex(content["incarnation_id"]),
        endpoints=tuple(Endpoint(*point) for point in content["endpoints"]),
        grpc_endpoint=content["grpc_endpoint"],
        rack=content["rack"],
        node=content["node"],
        fenced=content["fenced"],
        boot_id=content.get("boot_id", ""),
        log_dir_ids=tuple(map(bytes.fromhex, content.get("log_dir_ids", ()))),
        shutting_down=content.get("shutting_down", False),
        lease_ms=content.get("lease_ms", 0),
        internal_topics=tuple(InternalTopic(*one) for one in content.get("internal_topics", ())),
    )


def write_acls(pattern: ResourcePattern, entries: frozenset[AclEntry]) -> bytes:
    """Encode the access control list of a pattern."""
    return zk_paths.encode({"pattern": pattern, "entries": sorted(entries)})


def read_acls(content: Content) -> tuple[ResourcePattern, frozenset[AclEntry]]:
    """Inverse of ``write_acls``."""
    resource_type, name, pattern_type = content["pattern"]
    pattern = ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type))
    return pattern, frozenset(
        AclEntry(principal, host, operation, Permission(permission))
        for principal, host, operation, permission in content["entries"]
    )


def write_quotas(entity: QuotaEntity, values: QuotaValues) -> bytes:
    """Encode the client quotas of an entity."""
    return zk_paths.encode({"entity": entity, "values": dict(values)})


def read_quotas(content: Content) -> tuple[QuotaEntity, QuotaValues]:
    """Inverse of ``write_quotas``."""
    return QuotaEntity(*content["entity"]), dict(content["values"])


def write_constants(constants: Constants) -> bytes:
    """Encode the values that all processes of the cluster share."""
    content: Content = {"lease_ms": constants.lease_ms}
    if constants.lease_ms_before:
        content["lease_ms_before"] = constants.lease_ms_before
    return zk_paths.encode(content)


def read_constants(content: Content) -> Constants:
    """Inverse of ``write_constants``."""
    return Constants(content["lease_ms"], content.get("lease_ms_before", 0))


def write_user(credentials: UserCredentials) -> bytes:
    """Encode a user's credentials."""
    return zk_paths.encode(
        {
            "credentials": [
                {
                    "mechanism": one.mechanism.sasl_name,
                    "iterations": one.iterations,
                    "salt": one.salt.hex(),
                    "stored_key": one.stored_key.hex(),
                    "server_key": one.server_key.hex(),
                }
                for one in credentials
            ]
        }
    )


def read_user(content: Content) -> UserCredentials:
    """Inverse of ``write_user``."""
    return tuple(
        ScramCredential(
            MECHANISM_NAMES[one["mechanism"]],
            int(one["iterations"]),
            bytes.fromhex(one["salt"]),
            bytes.fromhex(one["stored_key"]),
            bytes.fromhex(one["server_key"]),
        )
        for one in content["credentials"]
    )


def write_shards(coordinators: Sequence[CoordinatorImage], owners: Sequence[ShardOwner]) -> bytes:
    """Encode the registered coordinators of one kind, and the owner of each shard, in order."""
    return zk_paths.encode(
        {
            "coordinators": [
                {
                    "coordinator_id": one.coordinator_id,
                    "coordinator_epoch": one.coordinator_epoch,
                    "incarnation_id": one.incarnation_id.hex(),
                    "grpc_endpoint": one.grpc_endpoint,
                }
                for one in coordinators
            ],
            "owners": [[one.coordinator_id, one.owner_epoch] for one in owners],
        }
    )


def read_shards(
    kind: str, content: Content
) -> tuple[tuple[CoordinatorImage, ...], tuple[ShardOwner, ...]]:
    """Inverse of ``write_shards``."""
    coordinators = tuple(
        CoordinatorImage(
            kind=kind,
            coordinator_id=one["coordinator_id"],
            incarnation_id=bytes.fromhex(one["incarnation_id"]),
            grpc_endpoint=one["grpc_endpoint"],
            coordinator_epoch=one["coordinator_epoch"],
        )
        for one in content["coordinators"]
    )
    owners = tuple(ShardOwner(shard, *owner) for shard, owner in enumerate(content["owners"]))
    return coordinators, owners


def write_topic(topic: TopicImage) -> bytes:
    """Encode a topic's assignment and configuration."""
    return zk_paths.encode(
        {
            "topic_id": topic.topic_id.hex(),
            "replicas": [partition.replicas for partition in topic.partitions],
            "configs": dict(topic.configs),
        }
    )


def write_partition(partition: PartitionImage) -> bytes:
    """Encode a partition's leader, ISR and epochs, and the replicas that they refer to.

    The topic's znode has the replicas too, and thus the number of partitions. While replicas move,
    it may be one write behind or ahead, and the replicas of the partition's znode count.
    """
    content: Content = {
        "replicas": partition.replicas,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "partition_epoch": partition.partition_epoch,
    }
    if partition.elr:
        content["elr"] = partition.elr
    if partition.last_known_leader != NO_BROKER:
        content["last_known_leader"] = partition.last_known_leader
    if partition.is_reassigning:
        content["adding"] = partition.adding
        content["removing"] = partition.removing
    return zk_paths.encode(content)


def topic_id_of(content: Content) -> TopicId:
    """Return the topic id in a topic's znode."""
    return TopicId(bytes.fromhex(content["topic_id"]))


def read_topic(name: str, content: Content, partitions: Sequence[Content | None]) -> TopicImage:
    """Decode a topic's znode and those of its partitions. Raises DamagedStoreError if one of these
    is missing or cannot be read.
    """
    topic_id = topic_id_of(content)
    read = []
    for number, (replicas, state) in enumerate(zip(content["replicas"], partitions, strict=True)):
        path = zk_paths.partition(topic_id, number)
        if state is None:
            raise DamagedStoreError(
                f"topic {name} has {len(partitions)} partitions, but there is no znode {path};"
                f" {zk_paths.HOW_TO_MEND}"
            )
        with reading(path):
            read.append(_read_partition(number, replicas, state))
    return TopicImage(name, topic_id, dict(content["configs"]), tuple(read))


def _read_partition(number: int, replicas: Sequence[int], state: Content) -> PartitionImage:
    return PartitionImage(
        partition=number,
        replicas=tuple(map(BrokerId, state.get("replicas", replicas))),
        isr=tuple(map(BrokerId, state["isr"])),
        leader=BrokerId(state["leader"]),
        leader_epoch=LeaderEpoch(state["leader_epoch"]),
        partition_epoch=PartitionEpoch(state["partition_epoch"]),
        elr=tuple(map(BrokerId, state.get("elr", ()))),
        last_known_leader=BrokerId(state.get("last_known_leader", NO_BROKER)),
        adding=tuple(map(BrokerId, state.get("adding", ()))),
        removing=tuple(map(BrokerId, state.get("removing", ()))),
    )
