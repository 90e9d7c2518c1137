"""Calls of a server that checks its callers, from the wire."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidemark.runtime.peers import PEER, AnonymousPeers, FindsPeers, Peer, RefusedPeerError
from tidemark.runtime.server import make_client_server
from waiting import PATIENCE_S

ONE, MANY, GATHERED, BOTH = KINDS = ("One", "Many", "Gathered", "Both")


class Strangers:
    """Check that knows nobody."""

    async def peer_of(self, context: Any) -> Peer:
        raise RefusedPeerError("log in", grpc.StatusCode.UNAUTHENTICATED)


async def _one(request: bytes, _: Any) -> bytes:
    return request + PEER.get().encode()


async def _many(request: bytes, _: Any) -> AsyncIterator[bytes]:
    yield request
    yield PEER.get().encode()


async def _gathered(requests: AsyncIterator[bytes], _: Any) -> bytes:
    return b"".join([request async for request in requests])


async def _both(requests: AsyncIterator[bytes], context: Any) -> None:
    async for request in requests:
        await context.write(request)


HANDLERS = {
    ONE: grpc.unary_unary_rpc_method_handler(_one),
    MANY: grpc.unary_stream_rpc_method_handler(_many),
    GATHERED: grpc.stream_unary_rpc_method_handler(_gathered),
    BOTH: grpc.stream_stream_rpc_method_handler(_both),
}


def called(peers: FindsPeers, use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What ``use`` returns of a channel to a server with these peers."""

    def register(server: Any) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", HANDLERS),))

    async def main() -> Any:
        async with (
            make_client_server("127.0.0.1:0", ["S"], register, tls=None, peers=peers) as server,
            grpc.aio.insecure_channel(str(server.address)) as channel,
        ):
            await server.set_serving(serving=True)
            return await use(channel)

    return asyncio.run(main())


async def end_of_a_call_without_a_request(channel: Any, path: str) -> Any:
    """How a call ends whose request does not come: its first byte is never sent."""
    call = channel.stream_unary(path, None, None)(timeout=PATIENCE_S)
    return await call.code()


@pytest.mark.feature("SE30")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_is_refused_before_the_request_is_read(kind: str) -> None:
    code = called(
        Strangers(), lambda channel: end_of_a_call_without_a_request(channel, f"/S/{kind}")
    )
    assert code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.feature("SE30")
def test_a_stranger_cannot_hold_calls_open_at_the_health_service() -> None:
    path = "/grpc.health.v1.Health/Watch"
    code = called(Strangers(), lambda channel: end_of_a_call_without_a_request(channel, path))
    assert code is grpc.StatusCode.UNAUTHENTICATED


def test_a_health_check_needs_no_login_and_its_request_is_not_read() -> None:
    async def checked(channel: Any) -> list[Any]:
        path = "/grpc.health.v1.Health/Check"
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="S"), timeout=PATIENCE_S
        )
        return [await end_of_a_call_without_a_request(channel, path), answer.status]

    serving = health_pb2.HealthCheckResponse.SERVING
    assert called(Strangers(), checked) == [grpc.StatusCode.OK, serving]


def test_all_kinds_of_calls_are_served_to_those_who_may_call() -> None:
    async def served(channel: Any) -> list[Any]:
        sent = [b"a", b"b"]
        many = channel.unary_stream(f"/S/{MANY}", None, None)(b"a")
        both = channel.stream_stream(f"/S/{BOTH}", None, None)(iter(sent))
        return [
            await channel.unary_unary(f"/S/{ONE}", None, None)(b"a"),
            [answer async for answer in many],
            await channel.stream_unary(f"/S/{GATHERED}", None, None)(iter(sent)),
            [answer async for answer in both],
        ]

    assert called(AnonymousPeers(), served) == [
        b"aUser:ANONYMOUS",
        [b"a", b"User:ANONYMOUS"],
        b"ab",
        [b"a", b"b"],
    ]


def test_a_call_that_ends_without_its_request_is_refused() -> None:
    async def ended(channel: Any) -> Any:
        call = channel.stream_unary(f"/S/{ONE}", None, None)(timeout=PATIENCE_S)
        await call.done_writing()
        return await call.code()

    assert called(AnonymousPeers(), ended) is grpc.StatusCode.INTERNAL
