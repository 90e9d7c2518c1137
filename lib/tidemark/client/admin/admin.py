"""Admin: all of Kafka's admin APIs in one client."""

from tidemark.client.admin.acls import AclAdmin
from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.client.admin.groups import GroupAdmin
from tidemark.client.admin.quotas import QuotaAdmin
from tidemark.client.admin.share_groups import ShareGroupAdmin
from tidemark.client.admin.transactions import TransactionAdmin
from tidemark.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    LogDir,
    NewTopic,
    PartitionDescription,
    ProducerState,
    Reassignment,
    ReplicaBounds,
    ReplicaLog,
    TopicDescription,
)
from tidemark.client.admin.users import UserAdmin

__all__ = [
    "Admin",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "CreatedTopic",
    "LogDir",
    "NewTopic",
    "PartitionDescription",
    "ProducerState",
    "Reassignment",
    "ReplicaBounds",
    "ReplicaLog",
    "TopicDescription",
]


class Admin(
    ClusterAdmin, GroupAdmin, ShareGroupAdmin, TransactionAdmin, UserAdmin, QuotaAdmin, AclAdmin
):
    """Client for administration: ``async with Admin("host:9092") as admin: await
    admin.create_topics([NewTopic("orders", 3)])``.

    A call for several resources raises the first failure, with the others as notes; successful
    parts stay. ``settings`` are fields of AdminConfig by name. With transport="grpc" bootstrap
    servers are gRPC addresses, which return those of the Kafka listeners.
    """
