"""gRPC service of a coordinator: its handlers, timed and counted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from tidemark.runtime.coordinator.calls import Context
from tidemark.runtime.coordinator.node import CoordinatorNode

NodeT = TypeVar("NodeT", bound=CoordinatorNode[Any])
Handler = Callable[[NodeT, Any, Context], Awaitable[Any]]


class CountedService:
    """Service with a method for each handler of a table, by its name on the wire."""

    def __init__(self, node: NodeT, handlers: Mapping[str, Handler[NodeT]]) -> None:
        for rpc, handle in handlers.items():
            setattr(self, rpc, _counted(node, rpc, handle))


def _counted(
    node: NodeT, rpc: str, handle: Handler[NodeT]
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def serve(request: Any, context: Context) -> Any:
        now = asyncio.get_running_loop().time
        began = now()
        response = await handle(node, request, context)
        node.stats.count(rpc, response, now() - began)
        return response

    return serve
