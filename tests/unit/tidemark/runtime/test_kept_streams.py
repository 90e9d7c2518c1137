"""The server's end of a stream that is kept."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from tidemark.runtime.kept_streams import answer_each
from virtual_time import run_skipping
from waiting import patience, until

METHOD = "/test/StreamWrites"


class Coordinator:
    """Answers a write with itself, once it may."""

    def __init__(self) -> None:
        self.drained = asyncio.Event()
        self.writes: list[bytes] = []
        self.streams_ended = 0

    async def write(self, request: bytes, context: Any) -> bytes:
        assert context.time_remaining() is None
        self.writes.append(request)
        return request

    async def stream(self, _requests: Any, context: Any) -> None:
        try:
            await answer_each(self.write, context, self.drained)
        finally:
            self.streams_ended += 1


def run(scenario: Callable[[Coordinator, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        coordinator, server = Coordinator(), grpc.aio.server()
        handler: Any = grpc.stream_stream_rpc_method_handler(coordinator.stream)
        generic = grpc.method_handlers_generic_handler("test", {"StreamWrites": handler})
        server.add_generic_rpc_handlers((generic,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        async with patience(), channel:
            await scenario(coordinator, channel.stream_stream(METHOD)())
        await server.stop(None)

    run_skipping(main())


def test_each_write_is_answered_in_its_turn() -> None:
    async def scenario(coordinator: Coordinator, stream: Any) -> None:
        for request in (b"one", b"two"):
            await stream.write(request)
            assert await stream.read() == request
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
        assert await stream.code() is grpc.StatusCode.OK
        assert coordinator.writes == [b"one", b"two"]

    run(scenario)


def test_a_replica_that_stops_ends_a_stream_without_writes() -> None:
    async def scenario(coordinator: Coordinator, stream: Any) -> None:
        await stream.write(b"one")
        assert await stream.read() == b"one"
        coordinator.drained.set()
        assert await stream.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
        assert await stream.code() is grpc.StatusCode.OK

    run(scenario)


@pytest.mark.parametrize("reads", [0, 1])
def test_a_caller_that_ends_the_stream_ends_its_handler(reads: int) -> None:
    async def scenario(coordinator: Coordinator, stream: Any) -> None:
        await stream.write(b"one")
        for _ in range(reads):
            await stream.read()
        await until(lambda: coordinator.writes, "the write")
        stream.cancel()
        await until(lambda: coordinator.streams_ended, "the end of the handler")

    run(scenario)
