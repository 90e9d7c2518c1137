"""A controller that says what a test tells it to, behind a real gRPC server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc

Feed = Callable[[pb.WatchMetadataRequest], list[pb.MetadataUpdate]]


class ScriptedController(controller_pb2_grpc.ControllerServicer):
    """Answers RPCs from lists; the last answer repeats."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[Any] = []
        self.feed: list[list[pb.MetadataUpdate]] = []
        self.all_acknowledged = asyncio.Event()
        self.at_last: list[pb.MetadataUpdate] = []
        """What a feed goes on with once it is released."""
        self.release = asyncio.Event()
        self.acknowledged: list[int] = []
        self.on_asked: Callable[[], None] = lambda: None

    def _answer(self, method: str, request: Any) -> Any:
        self.asked.append(request)
        self.on_asked()
        answers = self.answers[method]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def CreateTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("CreateTopics", request)

    async def RegisterBroker(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("RegisterBroker", request)

    async def RegisterCoordinator(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("RegisterCoordinator", request)

    async def AcquireShard(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("AcquireShard", request)

    async def AllocateProducerIds(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer("AllocateProducerIds", request)

    async def WatchMetadata(self, request_iterator: Any, context: Any) -> None:  # noqa: N802
        requests = aiter(request_iterator)
        self.asked.append(await anext(requests))
        updates = self.feed.pop(0) if len(self.feed) > 1 else self.feed[0]
        for update in updates:
            await context.write(update)
            if update.error_code:
                return
            self.acknowledged.append((await anext(requests)).applied.version)
        self.all_acknowledged.set()
        await self.release.wait()
        for update in self.at_last:
            await context.write(update)
        await asyncio.Event().wait()


@asynccontextmanager
async def serving() -> AsyncIterator[ScriptedController]:
    """One on a free port."""
    controller = ScriptedController()
    server = grpc.aio.server()
    controller_pb2_grpc.add_ControllerServicer_to_server(controller, server)
    port = server.add_insecure_port("127.0.0.1:0")
    controller.endpoint = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield controller
    finally:
        await server.stop(None)
