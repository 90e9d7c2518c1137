"""TransactionCoordinator on every broker: each call goes on to the txn-coordinator that decides.

So native clients need to know brokers only. The answer is the coordinator's own; where there is
none in time, it is the error that says so.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc.aio
from tidemark.codec import txn_handle
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from broker.core.authorizer import (
    Operation,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from broker.shell.internal_topics import ensure_internal_topic
from broker.shell.node import BrokerNode
from broker.shell.request_context import RequestContext
from broker.shell.rpc.streams import caller_of
from broker.shell.txn_relay import RELAY_TIMEOUT_S, merge_listings, told

SERVICE_NAME: Final = "tidemark_wire.v1.TransactionCoordinator"

Context = grpc.aio.ServicerContext[Any, Any]
ResponseT = TypeVar("ResponseT")


class TransactionRelay(txn_pb2_grpc.TransactionCoordinatorServicer):
    """One broker's service. Whether the caller may is asked here, of who is at the other end; the
    coordinator asks again, of whom this broker names.
    """

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    async def InitTransactionalId(  # noqa: N802 - the name in the proto
        self, request: pb.InitTransactionalIdRequest, context: Context
    ) -> pb.InitTransactionalIdResponse:
        """The first use of transactions makes the topic of their state."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.transactional_id)
            await call.ensure(TRANSACTION_STATE)
            return await call.relay(
                "InitTransactionalId", request.transactional_id, pb.InitTransactionalIdResponse
            )
        except TidemarkError as failure:
            return pb.InitTransactionalIdResponse(
                **_error(failure), producer_id=-1, producer_epoch=-1
            )

    async def AddPartitions(  # noqa: N802
        self, request: pb.AddPartitionsRequest, context: Context
    ) -> pb.AddPartitionsResponse:
        """For clients: explicit, as in transactions v1."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.transactional_id)
            for topic in {one.topic for one in request.partitions}:
                call.refuse_unless_topic(topic)
            return await call.relay(
                "AddPartitions", request.transactional_id, pb.AddPartitionsResponse
            )
        except TidemarkError as failure:
            return pb.AddPartitionsResponse(**_error(failure))

    async def AddOffsets(  # noqa: N802
        self, request: pb.AddOffsetsRequest, context: Context
    ) -> pb.AddOffsetsResponse:
        """The partition of a group's offsets, which must exist."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.transactional_id)
            call.refuse_unless_group(request.group_id)
            await call.ensure(CONSUMER_OFFSETS)
            return await call.relay("AddOffsets", request.transactional_id, pb.AddOffsetsResponse)
        except TidemarkError as failure:
            return pb.AddOffsetsResponse(**_error(failure))

    async def EndTransaction(  # noqa: N802
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        """Commit or abort."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.transactional_id)
            return await call.relay(
                "EndTransaction", request.transactional_id, pb.EndTransactionResponse
            )
        except TidemarkError as failure:
            return pb.EndTransactionResponse(**_error(failure), producer_id=-1, producer_epoch=-1)

    async def DescribeTransactions(  # noqa: N802
        self, request: pb.DescribeTransactionsRequest, context: Context
    ) -> pb.DescribeTransactionsResponse:
        """Ids of any coordinators, in the order asked; each may have an error of its own."""
        call = _Call(self._node, request, context)
        ids = list(dict.fromkeys(request.transactional_ids))
        permitted = [one for one in ids if call.may(Operation.DESCRIBE, one)]
        found = {one.transactional_id: one for one in await call.describe(permitted)}
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return pb.DescribeTransactionsResponse(
            transactions=[
                found.get(one) or pb.TransactionState(transactional_id=one, error_code=denied)
                for one in ids
            ]
        )

    async def ListTransactions(  # noqa: N802
        self, request: pb.ListTransactionsRequest, context: Context
    ) -> pb.ListTransactionsResponse:
        """Of every coordinator, unlike Kafka's: whoever asks any broker has them all."""
        call = _Call(self._node, request, context)
        try:
            merged = merge_listings(
                await self._node.txn.client.call_all("ListTransactions", request, call.timeout_s)
            )
        except TidemarkError as failure:
            return pb.ListTransactionsResponse(error_code=told(failure.code))
        visible = [
            one for one in merged.transactions if call.may(Operation.DESCRIBE, one.transactional_id)
        ]
        return pb.ListTransactionsResponse(
            error_code=merged.error_code,
            unknown_states=merged.unknown_states,
            transactions=visible,
        )

    async def BeginTransaction(  # noqa: N802
        self, request: pb.BeginTransactionRequest, context: Context
    ) -> pb.BeginTransactionResponse:
        """A transaction with several writers; the topic is made as for InitTransactionalId."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.transactional_id)
            await call.ensure(TRANSACTION_STATE)
            return await call.relay(
                "BeginTransaction", request.transactional_id, pb.BeginTransactionResponse
            )
        except TidemarkError as failure:
            return pb.BeginTransactionResponse(**_error(failure))

    async def EnlistWriter(  # noqa: N802
        self, request: pb.EnlistWriterRequest, context: Context
    ) -> pb.EnlistWriterResponse:
        """Hand out a slot of a transaction."""
        call = _Call(self._node, request, context)
        try:
            transactional_id = transactional_id_of(request.handle)
            call.refuse_unless(Operation.WRITE, transactional_id)
            return await call.relay("EnlistWriter", transactional_id, pb.EnlistWriterResponse)
        except TidemarkError as failure:
            return pb.EnlistWriterResponse(**_error(failure), producer_id=-1, producer_epoch=-1)

    async def FinishTransaction(  # noqa: N802
        self, request: pb.FinishTransactionRequest, context: Context
    ) -> pb.FinishTransactionResponse:
        """End a transaction with several writers."""
        call = _Call(self._node, request, context)
        try:
            transactional_id = transactional_id_of(request.handle)
            call.refuse_unless(Operation.WRITE, transactional_id)
            return await call.relay(
                "FinishTransaction", transactional_id, pb.FinishTransactionResponse
            )
        except TidemarkError as failure:
            return pb.FinishTransactionResponse(**_error(failure))

    async def EnlistInBatch(  # noqa: N802
        self, request: pb.EnlistInBatchRequest, context: Context
    ) -> pb.EnlistInBatchResponse:
        """A writer of a sink's batch; the topic is made as for InitTransactionalId."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.sink_id)
            await call.ensure(TRANSACTION_STATE)
            return await call.relay("EnlistInBatch", request.sink_id, pb.EnlistInBatchResponse)
        except TidemarkError as failure:
            return pb.EnlistInBatchResponse(**_error(failure), producer_id=-1, producer_epoch=-1)

    async def KeepBatchAlive(  # noqa: N802
        self, request: pb.KeepBatchAliveRequest, context: Context
    ) -> pb.KeepBatchAliveResponse:
        """An open batch outlasts its timeout."""
        call = _Call(self._node, request, context)
        try:
            sink_id = transactional_id_of(request.handle)
            call.refuse_unless(Operation.WRITE, sink_id)
            return await call.relay("KeepBatchAlive", sink_id, pb.KeepBatchAliveResponse)
        except TidemarkError as failure:
            return pb.KeepBatchAliveResponse(**_error(failure))

    async def FinishBatch(  # noqa: N802
        self, request: pb.FinishBatchRequest, context: Context
    ) -> pb.FinishBatchResponse:
        """Commit or abort a batch; one that nobody wrote may be the sink's first."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.sink_id)
            await call.ensure(TRANSACTION_STATE)
            return await call.relay("FinishBatch", request.sink_id, pb.FinishBatchResponse)
        except TidemarkError as failure:
            return pb.FinishBatchResponse(**_error(failure))

    async def ForgetSink(  # noqa: N802
        self, request: pb.ForgetSinkRequest, context: Context
    ) -> pb.ForgetSinkResponse:
        """Lose what is known of a sink's batches."""
        call = _Call(self._node, request, context)
        try:
            call.refuse_unless(Operation.WRITE, request.sink_id)
            await call.ensure(TRANSACTION_STATE)
            return await call.relay("ForgetSink", request.sink_id, pb.ForgetSinkResponse)
        except TidemarkError as failure:
            return pb.ForgetSinkResponse(**_error(failure))


class _Call:
    """One call under way. Names the caller in ``request``, which goes on as it is otherwise."""

    def __init__(self, node: BrokerNode, request: Any, context: Context) -> None:
        self._node = node
        self._request = request
        caller = caller_of(context)
        self._context = RequestContext(
            caller.principal,
            request.caller.client_id,
            0,
            0,
            "GRPC",
            caller.peer,
            caller.request_id,
        )
        request.caller.principal = caller.principal
        request.caller.request_id = caller.request_id
        left_s = context.time_remaining()
        self.timeout_s = RELAY_TIMEOUT_S if left_s is None else min(left_s, RELAY_TIMEOUT_S)

    def may(self, operation: Operation, transactional_id: str) -> bool:
        """Whether the caller may do this to the transactional id."""
        resource = transactional_id_resource(transactional_id)
        return self._node.authorizer.authorize(self._context.principal, operation, resource)

    def refuse_unless(self, operation: Operation, transactional_id: str) -> None:
        """Raises TidemarkError."""
        if not self.may(operation, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise TidemarkError(code, f"may not {operation.name} {transactional_id!r}")

    def refuse_unless_topic(self, topic: str) -> None:
        """Raises TidemarkError for a topic that the caller may not write."""
        resource, allowed = topic_resource(topic), self._node.authorizer.authorize
        if topic in INTERNAL_TOPICS or not allowed(
            self._context.principal, Operation.WRITE, resource
        ):
            raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"may not write {topic!r}")

    def refuse_unless_group(self, group_id: str) -> None:
        """Raises TidemarkError for a group whose offsets the caller may not commit."""
        resource, allowed = group_resource(group_id), self._node.authorizer.authorize
        if not allowed(self._context.principal, Operation.READ, resource):
            raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"may not use {group_id!r}")

    async def ensure(self, topic: str) -> None:
        """Make an internal topic if it is missing. Raises TidemarkError."""
        missing = await ensure_internal_topic(self._node, self._context, topic)
        if missing is not None:
            raise missing

    async def relay(self, method: str, transactional_id: str, kind: type[ResponseT]) -> ResponseT:
        """The coordinator's answer. Raises TidemarkError."""
        client = self._node.txn.client
        answer = await client.call(method, transactional_id, self._request, self.timeout_s)
        assert isinstance(answer, kind), answer
        return answer

    async def describe(self, ids: list[str]) -> list[pb.TransactionState]:
        """Those ids; each with the error if there is no answer."""
        if not ids:
            return []
        try:
            # Without it there is nobody to say that an id is not known.
            await self.ensure(TRANSACTION_STATE)
            return await self._node.txn.client.describe(ids, self._request.caller, self.timeout_s)
        except TidemarkError as failure:
            return [pb.TransactionState(transactional_id=one, **_error(failure)) for one in ids]


def transactional_id_of(handle: str) -> str:
    """Whose transaction a handle names. Raises TidemarkError INVALID_REQUEST."""
    transactional_id = txn_handle.transactional_id_of(handle)
    if transactional_id is None:
        words = f"{handle!r} is no handle of a transaction"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    return transactional_id


def _error(failure: TidemarkError) -> dict[str, Any]:
    return {"error_code": told(failure.code), "error_message": failure.message}


def registration(service: TransactionRelay) -> Callable[[Any], None]:
    """What ``make_grpc_server`` calls to put the service on a server."""

    def register(server: Any) -> None:
        add = txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
