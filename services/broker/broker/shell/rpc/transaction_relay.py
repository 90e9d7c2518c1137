"""TransactionRelay: the service TransactionCoordinator on every broker, which forwards each call to
the txn-coordinator that decides.

Native clients therefore connect to brokers only. The answer is the coordinator's own, or an error
if there is none in time.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import grpc.aio
from tidemark.codec import txn_handle
from tidemark.model.authorization import (
    Operation,
    Resource,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE
from tidemark.runtime.server import MESSAGE_BYTES_MAX
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc

from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.rpc.streams import caller_of
from broker.shell.transactions.txn_relay import (
    RELAY_TIMEOUT_S,
    TxnRelay,
    client_error,
    merge_listings,
)

SERVICE_NAME: Final = "tidemark_wire.v1.TransactionCoordinator"

Context = grpc.aio.ServicerContext[Any, Any]
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class _Relayed:
    """RPC that the owner of one transactional id answers."""

    kind: type[Any]
    """Type of the response."""
    name_of: Callable[[Any], str]
    """Return the transactional id of a request. Raises TidemarkError."""
    topic: str | None = None
    """Internal topic that is created if it does not exist."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Fields of a response that is an error."""
    check: Callable[["_Call", Any], None] | None = None
    """Raises TidemarkError if the caller may not use something else that the request names."""


def _transaction(request: Any) -> str:
    name: str = request.transactional_id
    return name


def _sink(request: Any) -> str:
    name: str = request.sink_id
    return name


def _of_handle(request: Any) -> str:
    return transactional_id_of(request.handle)


def _check_topics(call: "_Call", request: pb.AddPartitionsRequest) -> None:
    for topic in {one.topic for one in request.partitions}:
        call.refuse_unless_topic(topic)


def _check_group(call: "_Call", request: pb.AddOffsetsRequest) -> None:
    call.refuse_unless_group(request.group_id)


_NO_PRODUCER: Final = {"producer_id": -1, "producer_epoch": -1}
# The first use of transactions creates the topic of their state.
RELAYED: Final[Mapping[str, _Relayed]] = {
    "InitTransactionalId": _Relayed(
        pb.InitTransactionalIdResponse, _transaction, TRANSACTION_STATE, _NO_PRODUCER
    ),
    # For clients: explicit, as in transactions v1.
    "AddPartitions": _Relayed(pb.AddPartitionsResponse, _transaction, check=_check_topics),
    # The partition of a group's offsets, which must exist.
    "AddOffsets": _Relayed(
        pb.AddOffsetsResponse, _transaction, CONSUMER_OFFSETS, check=_check_group
    ),
    "EndTransaction": _Relayed(pb.EndTransactionResponse, _transaction, refused=_NO_PRODUCER),
    "BeginTransaction": _Relayed(pb.BeginTransactionResponse, _transaction, TRANSACTION_STATE),
    "EnlistWriter": _Relayed(pb.EnlistWriterResponse, _of_handle, refused=_NO_PRODUCER),
    "FinishTransaction": _Relayed(pb.FinishTransactionResponse, _of_handle),
    "EnlistInBatch": _Relayed(pb.EnlistInBatchResponse, _sink, TRANSACTION_STATE, _NO_PRODUCER),
    "KeepBatchAlive": _Relayed(pb.KeepBatchAliveResponse, _of_handle),
    # A batch that no task wrote may be the sink's first.
    "FinishBatch": _Relayed(pb.FinishBatchResponse, _sink, TRANSACTION_STATE),
    "ForgetSink": _Relayed(pb.ForgetSinkResponse, _sink, TRANSACTION_STATE),
}


class TransactionRelay:
    """One broker's service. The broker authorizes the caller by its connection; the coordinator
    authorizes it again, by the principal that the broker names.
    """

    def __init__(self, facts: BrokerFacts, txn: TxnRelay, internal_topics: InternalTopics) -> None:
        self._facts = facts
        self._txn = txn
        self._internal_topics = internal_topics
        for rpc, row in RELAYED.items():
            setattr(self, rpc, self._relay(rpc, row))

    def _call(self, request: Any, context: Context) -> "_Call":
        return _Call(self._facts, self._txn, self._internal_topics, request, context)

    def _relay(self, rpc: str, row: _Relayed) -> Callable[[Any, Context], Awaitable[Any]]:
        async def serve(request: Any, context: Context) -> Any:
            call = self._call(request, context)
            try:
                name = row.name_of(request)
                call.refuse_unless(Operation.WRITE, name)
                if row.check is not None:
                    row.check(call, request)
                if row.topic is not None:
                    await call.ensure(row.topic)
                return await call.relay(rpc, name, row.kind)
            except TidemarkError as failure:
                return row.kind(**_error(failure), **row.refused)

        return serve

    async def DescribeTransactions(  # noqa: N802 - the name in the proto
        self, request: pb.DescribeTransactionsRequest, context: Context
    ) -> pb.DescribeTransactionsResponse:
        """Describe ids of any coordinators, in the order of the request; each may have an error of
        its own. Topics that the caller may not describe are left out.
        """
        call = self._call(request, context)
        ids = list(dict.fromkeys(request.transactional_ids))
        permitted = [one for one in ids if call.may(Operation.DESCRIBE, one)]
        found = {one.transactional_id: call.shown(one) for one in await call.describe(permitted)}
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
        """List the transactions of every coordinator, without topics that the caller may not
        describe. Unlike Kafka's ListTransactions, any broker has them all. More than a message may
        have are refused: the filters have to be narrower.
        """
        call = self._call(request, context)
        try:
            merged = merge_listings(
                await self._txn.client.list_all("ListTransactions", request, call.timeout_s)
            )
        except TidemarkError as failure:
            return pb.ListTransactionsResponse(error_code=client_error(failure.code))
        visible = [
            call.shown(one)
            for one in merged.transactions
            if call.sees(transactional_id_resource(one.transactional_id))
        ]
        answer = pb.ListTransactionsResponse(
            error_code=merged.error_code,
            unknown_states=merged.unknown_states,
            transactions=visible,
        )
        if answer.ByteSize() > MESSAGE_BYTES_MAX:
            return pb.ListTransactionsResponse(error_code=ErrorCode.MESSAGE_TOO_LARGE)
        return answer


class _Call:
    """One call under way. Names the caller in ``request``, which is forwarded otherwise
    unchanged.
    """

    def __init__(
        self,
        facts: BrokerFacts,
        txn: TxnRelay,
        internal_topics: InternalTopics,
        request: Any,
        context: Context,
    ) -> None:
        self._authorizer = facts.authorizer
        self._txn = txn
        self._internal_topics = internal_topics
        self._request = request
        caller = caller_of(context)
        self._context = RequestContext(
            caller.requester,
            request.caller.client_id,
            0,
            0,
            "GRPC",
            caller.peer,
            caller.request_id,
        )
        request.caller.principal, request.caller.host = caller.requester
        request.caller.request_id = caller.request_id
        left_s = context.time_remaining()
        self.timeout_s = RELAY_TIMEOUT_S if left_s is None else min(left_s, RELAY_TIMEOUT_S)

    def may(self, operation: Operation, transactional_id: str) -> bool:
        """True if the caller may do this to the transactional id."""
        resource = transactional_id_resource(transactional_id)
        return self._authorizer.authorize(self._context.requester, operation, resource)

    def shown(self, state: pb.TransactionState) -> pb.TransactionState:
        """Return a transaction without the partitions of topics that the caller may not
        describe.
        """
        for places in (state.partitions, *(one.partitions for one in state.writers)):
            seen = [at for at in places if self.sees(topic_resource(at.topic))]
            del places[:]
            places.extend(seen)
        return state

    def sees(self, resource: Resource) -> bool:
        """True if the caller may describe what it has not named."""
        return self._authorizer.sees(self._context.requester, Operation.DESCRIBE, resource)

    def refuse_unless(self, operation: Operation, transactional_id: str) -> None:
        """Raise TidemarkError unless the caller may do this to the transactional id."""
        if not self.may(operation, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise TidemarkError(code, f"may not {operation.name} {transactional_id!r}")

    def refuse_unless_topic(self, topic: str) -> None:
        """Raise TidemarkError for a topic that the caller may not write."""
        resource, allowed = topic_resource(topic), self._authorizer.authorize
        if topic in INTERNAL_TOPICS or not allowed(
            self._context.requester, Operation.WRITE, resource
        ):
            raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"may not write {topic!r}")

    def refuse_unless_group(self, group_id: str) -> None:
        """Raise TidemarkError for a group whose offsets the caller may not commit."""
        resource, allowed = group_resource(group_id), self._authorizer.authorize
        if not allowed(self._context.requester, Operation.READ, resource):
            raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"may not use {group_id!r}")

    async def ensure(self, topic: str) -> None:
        """Create an internal topic if it does not exist. Raises TidemarkError."""
        missing = await self._internal_topics.ensure(self._context, topic)
        if missing is not None:
            raise missing

    async def relay(self, method: str, transactional_id: str, kind: type[ResponseT]) -> ResponseT:
        """Return the coordinator's answer. Raises TidemarkError."""
        client = self._txn.client
        answer = await client.call(method, transactional_id, self._request, self.timeout_s)
        assert isinstance(answer, kind), answer
        return answer

    async def describe(self, ids: list[str]) -> list[pb.TransactionState]:
        """Describe these ids; each has the error if there is no answer."""
        if not ids:
            return []
        try:
            # Without the topic there is no coordinator to answer that an id is not known.
            await self.ensure(TRANSACTION_STATE)
            return await self._txn.client.describe(ids, self._request.caller, self.timeout_s)
        except TidemarkError as failure:
            return [pb.TransactionState(transactional_id=one, **_error(failure)) for one in ids]


def transactional_id_of(handle: str) -> str:
    """Return the transactional id of a handle. Raises TidemarkError INVALID_REQUEST."""
    transactional_id = txn_handle.transactional_id_of(handle)
    if transactional_id is None:
        words = f"{handle!r} is not a transaction handle"
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)
    return transactional_id


def _error(failure: TidemarkError) -> dict[str, Any]:
    return {"error_code": client_error(failure.code), "error_message": failure.message}


def registration(service: TransactionRelay) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
