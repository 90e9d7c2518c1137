"""Handlers of the ShareCoordinator's RPCs, by their names on the wire.

Most requests go to the shard of one group, and differ in the rows below only: the operation that
the caller must be allowed, the reader of the request, the kind of reply, and the writers of the
reply and of a refusal. The others have a module of their own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidemark.model.authorization import Operation
from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask
from tidemark.runtime.coordinator.server import Handler
from tidemark_wire.v1 import share_pb2 as pb

from share_coordinator.core import requests as core
from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc import end_transaction, list_groups, report_lags
from share_coordinator.shell.rpc.call import check_cluster, check_group
from share_coordinator.shell.wire_mapping import (
    AboutGroup,
    OfGroup,
    group_named,
    read_alter_offsets,
    read_delete,
    read_delete_offsets,
    read_describe,
    read_describe_offsets,
    read_heartbeat,
    read_requester,
    read_state_reads,
    read_state_summaries,
    read_state_writes,
    refusal_of,
    write_alter_offsets,
    write_delete,
    write_delete_offsets,
    write_describe,
    write_describe_offsets,
    write_heartbeat,
    write_state_reads,
    write_state_summaries,
    write_state_writes,
)

ClientRequestT = TypeVar("ClientRequestT", bound=AboutGroup)
BrokerRequestT = TypeVar("BrokerRequestT", bound=OfGroup)
ReplyT = TypeVar("ReplyT")


def _of_client(
    operation: Operation,
    read: Callable[[ClientRequestT], core.Request],
    kind: type[ReplyT],
    write: Callable[[ReplyT], Any],
    response: type[Any],
) -> Handler[ShareCoordinatorNode]:
    """Return the handler of requests that brokers relay for clients."""

    async def handle(node: ShareCoordinatorNode, request: ClientRequestT, context: Context) -> Any:
        try:
            group_id = group_named(request)
            check_group(node, read_requester(request), operation, group_id)
            return write(await ask(node, group_id, read(request), kind, context))
        except TidemarkError as refused:
            return refusal_of(response, refused)

    return handle


def _of_broker(
    read: Callable[[BrokerRequestT], core.AskStates],
    write: Callable[[core.AskStatesReply], Any],
    response: type[Any],
) -> Handler[ShareCoordinatorNode]:
    """Return the handler of requests of the brokers that lead share-partitions."""

    async def handle(node: ShareCoordinatorNode, request: BrokerRequestT, context: Context) -> Any:
        try:
            check_cluster(node)
            group_id = group_named(request)
            return write(await ask(node, group_id, read(request), core.AskStatesReply, context))
        except TidemarkError as refused:
            return refusal_of(response, refused)

    return handle


HANDLERS: Final[Mapping[str, Handler[ShareCoordinatorNode]]] = {
    # Members.
    "Heartbeat": _of_client(
        Operation.READ,
        read_heartbeat,
        core.ShareGroupHeartbeatReply,
        write_heartbeat,
        pb.ShareHeartbeatResponse,
    ),
    # Administration.
    "DescribeGroup": _of_client(
        Operation.DESCRIBE,
        read_describe,
        core.DescribeShareGroupReply,
        write_describe,
        pb.DescribeShareGroupResponse,
    ),
    "ListGroups": list_groups.handle,
    "DeleteGroup": _of_client(
        Operation.DELETE,
        read_delete,
        core.DeleteShareGroupReply,
        write_delete,
        pb.DeleteShareGroupResponse,
    ),
    "DescribeOffsets": _of_client(
        Operation.DESCRIBE,
        read_describe_offsets,
        core.DescribeOffsetsReply,
        write_describe_offsets,
        pb.DescribeShareOffsetsResponse,
    ),
    "AlterOffsets": _of_client(
        Operation.READ,
        read_alter_offsets,
        core.AlterOffsetsReply,
        write_alter_offsets,
        pb.AlterShareOffsetsResponse,
    ),
    "DeleteOffsets": _of_client(
        Operation.DELETE,
        read_delete_offsets,
        core.DeleteOffsetsReply,
        write_delete_offsets,
        pb.DeleteShareOffsetsResponse,
    ),
    # State of share-partitions.
    "ReadStates": _of_broker(read_state_reads, write_state_reads, pb.ReadShareStatesResponse),
    "WriteStates": _of_broker(read_state_writes, write_state_writes, pb.WriteShareStatesResponse),
    "ReadStateSummaries": _of_broker(
        read_state_summaries, write_state_summaries, pb.ReadShareStateSummariesResponse
    ),
    "EndTransaction": end_transaction.handle,
    # Lags for the assignor "load".
    "ReportLags": report_lags.handle,
}
