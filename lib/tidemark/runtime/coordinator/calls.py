"""Steps of a coordinator's RPCs: the shard of a request, the caller's deadline, refusals."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.coordinator.node import CoordinatorNode

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
ReplyT = TypeVar("ReplyT")


async def answered(work: Awaitable[ReplyT], refusal: Callable[[ErrorCode, str], ReplyT]) -> ReplyT:
    """Return the reply of ``work``, or the one that ``refusal`` makes of a TidemarkError."""
    try:
        return await work
    except TidemarkError as refused:
        return refusal(refused.code, refused.message)


def budget_s(node: CoordinatorNode[Any], context: Any) -> float:
    """Return the time for a request: what is left of the call's deadline, but bounded."""
    left_s: float | None = context.time_remaining()
    longest_s: float = node.config.request_timeout_ms / 1_000
    return longest_s if left_s is None else max(0.001, min(left_s, longest_s))


async def ask(
    node: CoordinatorNode[Any], name: str, request: object, kind: type[ReplyT], context: Any
) -> ReplyT:
    """Return the reply of the shard of ``name``: a transactional id, or a group id. Raises
    TidemarkError.
    """
    return await ask_shard(node, node.shards.shard_of(name), request, kind, context)


async def ask_shard(
    node: CoordinatorNode[Any], shard: int, request: object, kind: type[ReplyT], context: Any
) -> ReplyT:
    """Return the reply of one shard. Raises TidemarkError."""
    reply = await node.shards.ask(shard, request, budget_s(node, context))
    assert isinstance(reply, kind), f"{type(reply).__name__} to {type(request).__name__}"
    return reply
