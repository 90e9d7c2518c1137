"""ShareGroups: requests of the share-coordinators to brokers."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc.aio
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import TransactionKey
from tidemark.protocol.shard import CLIENT_ERRORS
from tidemark_wire.v1 import share_pb2, share_pb2_grpc

from broker.core.groups import id_requests
from broker.core.groups.id_requests import GroupIdReply
from broker.shell.facts import BrokerFacts
from broker.shell.groups.coordinator import Groups
from broker.shell.rpc.streams import caller_of
from broker.shell.share.share_partitions import SharePartitions

SERVICE_NAME: Final = "tidemark_wire.v1.ShareGroups"

Context = grpc.aio.ServicerContext[Any, Any]


class ShareGroups(share_pb2_grpc.ShareGroupsServicer):
    """One broker's service."""

    def __init__(self, facts: BrokerFacts, groups: Groups, shares: SharePartitions) -> None:
        self._facts = facts
        self._groups = groups
        self._shares = shares

    async def ReserveGroupId(  # noqa: N802 - the name in the proto
        self, request: share_pb2.ReserveGroupIdRequest, context: Context
    ) -> share_pb2.ReserveGroupIdResponse:
        """Reserve an id for a share group, at the group's coordinator."""
        await self._check(context)
        reply = await self._change(
            id_requests.ReserveGroupId(request.group_id, request.owner_epoch)
        )
        return share_pb2.ReserveGroupIdResponse(
            error_code=reply.error_code, error_message=reply.error_message
        )

    async def ReleaseGroupId(  # noqa: N802 - the name in the proto
        self, request: share_pb2.ReleaseGroupIdRequest, context: Context
    ) -> share_pb2.ReleaseGroupIdResponse:
        """Release the id of a share group that is deleted, at the group's coordinator."""
        await self._check(context)
        reply = await self._change(
            id_requests.ReleaseGroupId(request.group_id, request.owner_epoch)
        )
        return share_pb2.ReleaseGroupIdResponse(
            error_code=reply.error_code, error_message=reply.error_message
        )

    async def DropWindows(  # noqa: N802 - the name in the proto
        self, request: share_pb2.DropWindowsRequest, context: Context
    ) -> share_pb2.DropWindowsResponse:
        """Drop share-partitions whose state has begun again or was deleted, at the partitions'
        leader. Those that are not loaded here need nothing.
        """
        await self._check(context)
        self._shares.drop_windows(request.group_id, _keys(request.topics))
        return share_pb2.DropWindowsResponse()

    async def LoadWindows(  # noqa: N802 - the name in the proto
        self, request: share_pb2.LoadWindowsRequest, context: Context
    ) -> share_pb2.LoadWindowsResponse:
        """Load share-partitions with dead letters, at the partitions' leader, so that they are
        copied though no member fetches. Those that are loaded, or not led here, need nothing.
        """
        await self._check(context)
        for group in request.groups:
            self._shares.load_windows(group.group_id, _keys(group.topics))
        return share_pb2.LoadWindowsResponse()

    async def TransactionEnded(  # noqa: N802 - the name in the proto
        self, request: share_pb2.ShareTransactionEndedRequest, context: Context
    ) -> share_pb2.ShareTransactionEndedResponse:
        """End a transaction that holds records of share-partitions, at the partitions' leader."""
        await self._check(context)
        transaction = TransactionKey(
            ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
        )
        for group in request.groups:
            keys = _keys(group.topics)
            self._shares.end_transaction(
                group.group_id, keys, transaction, is_committed=request.commit
            )
        return share_pb2.ShareTransactionEndedResponse()

    async def _check(self, context: Context) -> None:
        requester = caller_of(context).requester
        if not self._facts.authorizer.authorize(requester, Operation.CLUSTER_ACTION, CLUSTER):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "ClusterAction is needed")

    async def _change(
        self, request: id_requests.ReserveGroupId | id_requests.ReleaseGroupId
    ) -> GroupIdReply:
        if request.owner_epoch < 0:
            message = f"an owner epoch of {request.owner_epoch}; owner epochs start at 0"
            return GroupIdReply(ErrorCode.INVALID_REQUEST, message)
        try:
            return await self._groups.change_id(request)
        except TidemarkError as failure:
            return GroupIdReply(CLIENT_ERRORS.get(failure.code, failure.code), failure.message)


def _keys(topics: Iterable[share_pb2.ShareTopicPartitions]) -> list[tuple[TopicId, int]]:
    return [
        (TopicId(topic.topic_id), partition) for topic in topics for partition in topic.partitions
    ]


def registration(service: ShareGroups) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = share_pb2_grpc.add_ShareGroupsServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
