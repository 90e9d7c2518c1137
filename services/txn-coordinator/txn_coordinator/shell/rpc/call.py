"""Steps that all RPCs share: authorization, the shard of a request, the caller's deadline."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import grpc.aio
from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ProducerId

from txn_coordinator.core.requests import Request
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import FromCaller, read_principal

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
ReplyT = TypeVar("ReplyT")


class WithProducerId(Protocol):
    """Reply that may give a producer id."""

    @property
    def producer_id(self) -> int:
        """Producer id that is given; -1: none."""
        ...


GivingT = TypeVar("GivingT", bound=WithProducerId)


async def answered(work: Awaitable[ReplyT], refusal: Callable[[ErrorCode, str], ReplyT]) -> ReplyT:
    """Return the reply of ``work``, or the one that ``refusal`` makes of a TidemarkError."""
    try:
        return await work
    except TidemarkError as refused:
        return refusal(refused.code, refused.message)


def check_allowed(
    node: TxnCoordinatorNode, request: FromCaller, operation: Operation, transactional_id: str
) -> None:
    """Raise TidemarkError for a caller that is not allowed."""
    principal = read_principal(request)
    resource = transactional_id_resource(transactional_id)
    if not node.authorizer.authorize(principal, operation, resource):
        raise TidemarkError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{principal or 'anonymous'} may not {operation.name} {transactional_id}",
        )


def budget_s(node: TxnCoordinatorNode, context: Any) -> float:
    """Return the time for a request: what is left of the call's deadline, but bounded."""
    left_s: float | None = context.time_remaining()
    longest_s: float = node.config.request_timeout_ms / 1_000
    return longest_s if left_s is None else max(0.001, min(left_s, longest_s))


async def ask(
    node: TxnCoordinatorNode,
    transactional_id: str,
    request: Request,
    kind: type[ReplyT],
    context: Any,
) -> ReplyT:
    """Return the reply of the transactional id's shard. Raises TidemarkError."""
    shard = node.shards.shard_of(transactional_id)
    return await ask_shard(node, shard, request, kind, context)


async def ask_shard(
    node: TxnCoordinatorNode, shard: int, request: Request, kind: type[ReplyT], context: Any
) -> ReplyT:
    """Return the reply of one shard. Raises TidemarkError."""
    reply = await node.shards.ask(shard, request, budget_s(node, context))
    assert isinstance(reply, kind), f"{type(reply).__name__} to {type(request).__name__}"
    return reply


async def ask_with_spare(
    node: TxnCoordinatorNode,
    transactional_id: str,
    make: Callable[[int], Request],
    kind: type[GivingT],
    context: Any,
) -> GivingT:
    """Return the reply as ``ask``, with an unused producer id that the shard may take. If it is not
    taken, it serves another request. Without a reply it counts as taken.
    """
    node.shards.check(node.shards.shard_of(transactional_id))
    spare: ProducerId = await node.producer_ids.next()
    reply = await ask(node, transactional_id, make(spare), kind, context)
    if reply.producer_id != spare:
        node.producer_ids.give_back(spare)
    return reply
