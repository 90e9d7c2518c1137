"""The floor of share fetches: what no broker can leave out whose share-coordinator is another
process that is called over gRPC, and keeps its log on this broker.

    member               broker                                share-coordinator
      | -- request ------> | -- write of state: call or stream -> |
      |                    | <- append, of a kept stream --------- |
      |                    | -- its answer ----------------------> |
      | <- 1 MB, sendfile -| <- answer of the write -------------- |

No parsing, no checks, no state, no protobuf. A write has as many requests as ``gathered`` says. It
goes out as a call of its own, or as a message of a stream that is kept.

Run as two processes: ``python -m bench.share_floor broker JSON`` and ``... coordinator JSON``.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import uvloop
from bench.floor import FetchConnection
from bench.processes import ENVIRONMENT, wait_for_port
from free_ports import free_port

LINGER_S: Final = 0.005
"""Bound on the wait for further requests, as in the broker."""
WRITE_BYTES: Final = (32, 34)
"""Size of a write of state: of a group, and of each share-partition. Measured on the broker's."""
WRITE_ANSWER_BYTES: Final = (0, 2)
APPEND_BYTES: Final = (146, 90)
"""Size of the coordinator's append, likewise."""
APPEND_ANSWER_BYTES: Final = 16
_SERVICE: Final = "floor"
_OPTIONS: Final = (("grpc.so_reuseport", 0),)
_END: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


@dataclass
class FloorPlan:
    """Both processes."""

    port: int
    grpc_port: int
    coordinator_port: int
    directory: str
    answer_bytes: int
    gathered: int
    """Requests of a write."""
    keeps_stream: bool
    """False: each write is a call."""


def sized(bytes_of: tuple[int, int], parts: int) -> bytes:
    """A message of this size."""
    return bytes(bytes_of[0] + bytes_of[1] * parts)


def _channel(port: int) -> Any:
    """A channel, for whose generics the stubs want serializers."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


# -- the broker


class FloorBroker:
    """Requests wait for a write. One is under way at a time; it takes all that wait."""

    def __init__(self, plan: FloorPlan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._waiting: list[FetchConnection] = []
        self._is_under_way = False
        self._is_due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve until killed."""
        plan = self._plan
        server = grpc.aio.server(options=_OPTIONS)
        append = grpc.stream_stream_rpc_method_handler(self._appends)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {"Append": append}),)
        )
        server.add_insecure_port(f"127.0.0.1:{plan.grpc_port}")
        await server.start()
        listener = socket.create_server(("127.0.0.1", plan.port))
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept, listener)
        async with _channel(plan.coordinator_port) as channel:
            write = channel.stream_stream(f"/{_SERVICE}/Writes")(wait_for_ready=True)
            call = channel.unary_unary(f"/{_SERVICE}/Write")
            while True:
                await self._is_due.wait()
                taken, self._waiting = self._waiting, []
                self._is_under_way = True
                self._note_due()
                message = sized(WRITE_BYTES, len(taken))
                if plan.keeps_stream:
                    await write.write(message)
                    assert await write.read() is not _END, "the coordinator answers"
                else:
                    await call(message, wait_for_ready=True)
                self._is_under_way = False
                self._timer = self._loop.call_later(LINGER_S, self._linger_ended)
                self._note_due()
                for one in taken:
                    one.answer()

    async def _appends(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield bytes(APPEND_ANSWER_BYTES)

    def _accept(self, listener: socket.socket) -> None:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        path = Path(self._plan.directory) / "floor.log"
        connection = FetchConnection(peer, path, self._plan.answer_bytes)
        self._loop.add_reader(peer, self._readable, connection)

    def _readable(self, connection: FetchConnection) -> None:
        if not connection.receive():
            self._loop.remove_reader(connection.socket)
            connection.socket.close()
            os.close(connection.file)
            return
        self._waiting.append(connection)
        self._note_due()

    def _linger_ended(self) -> None:
        self._timer = None
        self._note_due()

    def _note_due(self) -> None:
        enough = len(self._waiting) >= self._plan.gathered or self._timer is None
        if enough and self._waiting and not self._is_under_way:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._is_due.set()
        else:
            self._is_due.clear()


# -- the coordinator


class FloorCoordinator:
    """One append for each write, over a stream that is kept."""

    def __init__(self, plan: FloorPlan) -> None:
        self._plan = plan

    async def run(self) -> None:
        """Serve until killed."""
        plan = self._plan
        async with _channel(plan.grpc_port) as channel:
            self._append = channel.stream_stream(f"/{_SERVICE}/Append")(wait_for_ready=True)
            server = grpc.aio.server(options=_OPTIONS)
            methods = {
                "Write": grpc.unary_unary_rpc_method_handler(self._write),
                "Writes": grpc.stream_stream_rpc_method_handler(self._writes),
            }
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(_SERVICE, methods),)
            )
            server.add_insecure_port(f"127.0.0.1:{plan.coordinator_port}")
            await server.start()
            await server.wait_for_termination()

    async def _write(self, request: bytes, _: Any) -> bytes:
        parts = (len(request) - WRITE_BYTES[0]) // WRITE_BYTES[1]
        await self._append.write(sized(APPEND_BYTES, parts))
        assert await self._append.read() is not _END, "the broker answers"
        return sized(WRITE_ANSWER_BYTES, parts)

    async def _writes(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self._write(request, context)


@contextmanager
def share_floor(
    directory: Path, answer_bytes: int, *, gathered: int, keeps_stream: bool
) -> Iterator[tuple[int, int]]:
    """Both processes; yields the port and the pid of the broker."""
    plan = FloorPlan(
        port=free_port(),
        grpc_port=free_port(),
        coordinator_port=free_port(),
        directory=str(directory),
        answer_bytes=answer_bytes,
        gathered=gathered,
        keeps_stream=keeps_stream,
    )
    command = [sys.executable, "-m", "bench.share_floor"]
    processes = [
        subprocess.Popen([*command, role, json.dumps(asdict(plan))], env=ENVIRONMENT)
        for role in ("broker", "coordinator")
    ]
    try:
        wait_for_port(plan.coordinator_port)
        wait_for_port(plan.port)
        yield plan.port, processes[0].pid
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def serve(role: str, plan: FloorPlan) -> None:
    """Serve until killed."""
    await (FloorBroker(plan) if role == "broker" else FloorCoordinator(plan)).run()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], FloorPlan(**json.loads(sys.argv[2]))))
