"""Handlers of the Controller's RPCs, by their names on the wire.

Requests that one input of the machine answers differ in the rows below only: the resources to
authorize, the reader of the request, and the writer of the reply. The others have a module of their
own.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from tidemark.model.authorization import CLUSTER, Operation, Resource
from tidemark.model.errors import ErrorCode

from controller.core.effects import Reply
from controller.core.inputs import Request, RequestHeader
from controller.shell.acl_mapping import (
    read_acl_filters,
    read_new_acls,
    write_created_acls,
    write_deleted_acls,
)
from controller.shell.coordinator_mapping import (
    read_acquisition,
    read_allocation,
    write_shard_acquired,
)
from controller.shell.node import ControllerNode
from controller.shell.quota_mapping import read_quota_changes, write_altered_quotas
from controller.shell.replication_mapping import (
    read_elections,
    read_isr_proposals,
    read_reassignments,
    read_shutdown,
    write_altered_partitions,
    write_altered_reassignments,
    write_elected_leaders,
    write_shutdown_progress,
)
from controller.shell.rpc import (
    create_partitions,
    create_topics,
    describe_feed,
    register_broker,
    register_coordinator,
    report_replicas,
    unregister_broker,
    watch_metadata,
)
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused, refused_member
from controller.shell.user_mapping import read_user_changes, write_altered_users
from controller.shell.wire_mapping import (
    FromClient,
    configs_named,
    read_config_changes,
    read_deletion,
    read_requester,
    timeout_asked,
    topics_to_delete,
    write_altered_configs,
    write_deleted_topics,
    write_producer_ids,
)

RequestT = TypeVar("RequestT")
ClientRequestT = TypeVar("ClientRequestT", bound=FromClient)
Handler = Callable[[ControllerNode, Any, Context], Awaitable[Any]]


def _of_cluster(request: object) -> Sequence[Resource]:
    del request
    return (CLUSTER,)


def _from_client(
    operation: Operation,
    resources: Callable[[ClientRequestT], Sequence[Resource]],
    read: Callable[[ClientRequestT], Callable[[RequestHeader], Request] | None],
    write: Callable[[Reply, str], object],
) -> Handler:
    """Return the handler of requests that brokers relay. ``read`` may return None: the request is
    invalid.
    """

    async def handle(node: ControllerNode, request: ClientRequestT, context: Context) -> object:
        denied = refused(node, read_requester(request), operation, resources(request))
        if denied is not None:
            return write(denied, "")
        make = read(request)
        if make is None:
            return write(Reply(NO_REQUEST, ErrorCode.INVALID_REQUEST), "")
        reply, hint = await ask(node, context, make, timeout_asked(request))
        return write(reply, hint)

    return handle


def _from_member(
    read: Callable[[RequestT], Callable[[RequestHeader], Request]],
    write: Callable[[Reply, str], object],
) -> Handler:
    """Return the handler of requests of brokers and coordinators about themselves."""

    async def handle(node: ControllerNode, request: RequestT, context: Context) -> object:
        denied = refused_member(node)
        if denied is not None:
            return write(denied, "")
        reply, hint = await ask(node, context, read(request))
        return write(reply, hint)

    return handle


HANDLERS: Final[Mapping[str, Handler]] = {
    "RegisterBroker": register_broker.handle,
    "UnregisterBroker": unregister_broker.handle,
    "WatchMetadata": watch_metadata.handle,
    "CreateTopics": create_topics.handle,
    # By name or by id. Each topic succeeds or fails alone.
    "DeleteTopics": _from_client(
        Operation.DELETE, topics_to_delete, read_deletion, write_deleted_topics
    ),
    "CreatePartitions": create_partitions.handle,
    # AlterConfigs and IncrementalAlterConfigs of Kafka. Each resource succeeds or fails alone.
    "AlterConfigs": _from_client(
        Operation.ALTER_CONFIGS, configs_named, read_config_changes, write_altered_configs
    ),
    # Each binding, and each filter, succeeds or fails alone.
    "CreateAcls": _from_client(Operation.ALTER, _of_cluster, read_new_acls, write_created_acls),
    "DeleteAcls": _from_client(Operation.ALTER, _of_cluster, read_acl_filters, write_deleted_acls),
    # Credentials of users are set and removed, each user alone (KIP-554).
    "AlterUsers": _from_client(
        Operation.ALTER, _of_cluster, read_user_changes, write_altered_users
    ),
    # Quotas of entities are set and removed, each entity alone (KIP-546).
    "AlterQuotas": _from_client(
        Operation.ALTER_CONFIGS, _of_cluster, read_quota_changes, write_altered_quotas
    ),
    # A block of producer ids for one broker or coordinator, never given to another.
    "AllocateProducerIds": _from_member(read_allocation, write_producer_ids),
    # Agreement to the ISRs that a leader proposes, each alone.
    "AlterPartitions": _from_member(read_isr_proposals, write_altered_partitions),
    # Preferred leaders, or any replica for partitions without a leader, each partition alone.
    "ElectLeaders": _from_client(
        Operation.ALTER, _of_cluster, read_elections, write_elected_leaders
    ),
    # Moves of replicas are started, replaced or cancelled, each partition alone (KIP-455).
    "AlterReassignments": _from_client(
        Operation.ALTER, _of_cluster, read_reassignments, write_altered_reassignments
    ),
    "ReportReplicas": report_replicas.handle,
    # A stopping broker hands over its partitions, and repeats the request until it leads none.
    "ControlledShutdown": _from_member(read_shutdown, write_shutdown_progress),
    "RegisterCoordinator": register_coordinator.handle,
    # A new owner epoch for a shard's present owner.
    "AcquireShard": _from_member(read_acquisition, write_shard_acquired),
    "DescribeFeed": describe_feed.handle,
}
