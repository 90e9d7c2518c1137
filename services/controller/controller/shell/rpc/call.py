"""Steps that all RPCs share: authorization, the caller's deadline, the active controller's name."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import grpc.aio
from tidemark.model.authorization import CLUSTER, MEMBER, Operation, Requester, Resource
from tidemark.model.errors import ErrorCode

from controller.core.effects import Reply
from controller.core.inputs import Request, RequestHeader
from controller.shell.node import ControllerNode
from controller.shell.wire_mapping import hint_for, read_timeout_ms

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
NO_REQUEST = 0


def budget_ms(context: Any, timeout_ms: int) -> int:
    """Return the timeout of the request, but at most what is left of the call's deadline."""
    left_s = context.time_remaining()
    longest_ms = read_timeout_ms(timeout_ms)
    return longest_ms if left_s is None else max(1, min(longest_ms, int(left_s * 1000)))


async def ask(
    node: ControllerNode,
    context: Any,
    make: Callable[[RequestHeader], Request],
    timeout_ms: int = 0,
) -> tuple[Reply, str]:
    """Return the machine's reply, and the hint to send with it."""
    reply = await node.ask(make, budget_ms(context, timeout_ms))
    return reply, hint_for(reply.error, node.hint)


def refused(
    node: ControllerNode, requester: Requester, operation: Operation, resources: Iterable[Resource]
) -> Reply | None:
    """Return the reply to a caller that is not allowed; None if it is."""
    if all(node.authorizer.authorize(requester, operation, one) for one in resources):
        return None
    words = f"{requester.principal} may not {operation.name}"
    return Reply(NO_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, words)


def refused_member(node: ControllerNode) -> Reply | None:
    """Return a reply to a broker or coordinator whose request about itself is not allowed."""
    return refused(node, MEMBER, Operation.CLUSTER_ACTION, (CLUSTER,))
