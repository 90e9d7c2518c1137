"""Steps that all RPCs share: authorize, find the shard, ask it within the caller's deadline."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

import grpc.aio
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ProducerId

from txn_coordinator.core.requests import Request
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import FromCaller, read_principal

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
ReplyT = TypeVar("ReplyT")


class WithProducerId(Protocol):
    """A reply that says which producer id it gives."""

    @property
    def producer_id(self) -> int:
        """-1: none."""
        ...


GivingT = TypeVar("GivingT", bound=WithProducerId)


async def answered(work: Awaitable[ReplyT], refusal: Callable[[ErrorCode, str], ReplyT]) -> ReplyT:
    """The reply, or what a refusal on the way to the shard makes of it."""
    try:
        return await work
    except TidemarkError as refused:
        return refusal(refused.code, refused.message)


def check_allowed(
    node: TxnCoordinatorNode, request: FromCaller, operation: Operation, transactional_id: str
) -> None:
    """Raises TidemarkError for a caller that is not allowed."""
    principal = read_principal(request)
    resource = f"transactional-id:{transactional_id}"
    if not node.authorizer.authorize(principal, operation, resource):
        raise TidemarkError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{principal or 'anonymous'} may not {operation.value} {transactional_id}",
        )


def budget_s(node: TxnCoordinatorNode, context: Any) -> float:
    """What is left of the call's deadline, or what a request may take when that is less."""
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
    """The reply of the shard that the transactional id belongs to. Raises TidemarkError."""
    shard = node.shards.shard_of(transactional_id)
    return await ask_shard(node, shard, request, kind, context)


async def ask_shard(
    node: TxnCoordinatorNode, shard: int, request: Request, kind: type[ReplyT], context: Any
) -> ReplyT:
    """The reply of one shard. Raises TidemarkError."""
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
    """As ``ask``, with a producer id that nobody ever used for the shard to take. One that it did
    not take serves another request; without an answer it may have been taken.
    """
    node.shards.check(node.shards.shard_of(transactional_id))
    spare: ProducerId = await node.producer_ids.next()
    reply = await ask(node, transactional_id, make(spare), kind, context)
    if reply.producer_id != spare:
        node.producer_ids.give_back(spare)
    return reply
