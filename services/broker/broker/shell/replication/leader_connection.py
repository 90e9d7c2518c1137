"""LeaderConnection: one TCP connection to a leader, with one buffer for all answers."""

import asyncio
import socket
from typing import Final, Protocol

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchRequest,
    FetchResponse,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.model.metadata import Endpoint

FETCH_VERSION: Final = 18
LENGTH_BYTES: Final = 4
BUFFER_BYTES_FIRST: Final = 256 * 1024
RECEIVE_BUFFER_BYTES: Final = 2 * 1024 * 1024
WAKE_BYTES_MAX: Final = 512 * 1024
"""Bytes of a large answer that are waited for at a time: a wake costs as much as copying 100 KB."""
WAKE_BYTES_WORTH: Final = 64 * 1024


class Connect(Protocol):
    """Connects to a leader: ``connect_with``, except in the simulator."""

    async def __call__(
        self, leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> "LeaderConnection":
        """Connect. Raises OSError, TimeoutError."""


class LeaderConnection:
    """One connection. Raises OSError and ConnectionError as sockets do."""

    def __init__(self, sock: socket.socket, *, client_id: str, answer_bytes_max: int) -> None:
        self._socket = sock
        self._client_id = client_id
        self._answer_bytes_max = answer_bytes_max
        self._correlation_id = 0
        self._buffer = memoryview(bytearray(BUFFER_BYTES_FIRST))

    @classmethod
    async def open(
        cls, leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> "LeaderConnection":
        """Connect without TLS. Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(leader.host, leader.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return cls(sock, client_id=client_id, answer_bytes_max=answer_bytes_max)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def fetch(self, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send a fetch and wait for the answer. Records are views into a buffer that the next call
        overwrites.
        """
        async with asyncio.timeout(timeout_s):
            await self._send(request)
            return await self._receive()

    async def _send(self, request: FetchRequest) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = request_header(ApiKey.FETCH, FETCH_VERSION, self._correlation_id, self._client_id)
        frame = header + write_fetch_request(FETCH_VERSION, request)
        size = len(frame).to_bytes(LENGTH_BYTES, "big")
        await self._send_all(size + frame)

    async def _send_all(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def _receive(self) -> FetchResponse:
        await self._read_exactly(LENGTH_BYTES)
        size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if not 0 < size <= self._answer_bytes_max:
            raise ConnectionError(f"invalid size of an answer: {size} bytes")
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(max(size, 2 * len(self._buffer))))
        await self._read_exactly(size)
        frame = self._buffer[:size]
        correlation_id, position = read_response_header(frame, ApiKey.FETCH, FETCH_VERSION)
        if correlation_id != self._correlation_id:
            raise ConnectionError(f"answer {correlation_id} to request {self._correlation_id}")
        return read_fetch_response(frame[position:], FETCH_VERSION)

    async def _read_exactly(self, size: int) -> None:
        loop, position = asyncio.get_running_loop(), 0
        while position < size:
            if size >= WAKE_BYTES_WORTH:
                self._wake_at(min(size - position, WAKE_BYTES_MAX))
            got = await loop.sock_recv_into(self._socket, self._buffer[position:size])
            if got == 0:
                raise ConnectionError("the leader closed the connection")
            position += got
        if size >= WAKE_BYTES_WORTH:
            self._wake_at(1)

    def _wake_at(self, size_bytes: int) -> None:
        """Report the socket as readable once it has this many bytes (or its end)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
