"""LeaderStream: a connection to a leader over TCP, with TLS or without, and one buffer for all
answers.

The event loop's callbacks receive an answer, and the fetcher is woken once, when it is whole. (A
socket that is awaited read by read is registered with the kernel and removed again for each.)
"""

import asyncio
import socket
import ssl
from typing import Any, Final, cast

from tidemark.model.metadata import Endpoint
from tidemark.runtime.tls import TlsError, TlsSettings, client_context

from broker.shell.replication.leader_connection import LENGTH_BYTES, Connect, LeaderConnection

BUFFER_BYTES_FIRST: Final = 256 * 1024
RECEIVE_BUFFER_BYTES: Final = 2 * 1024 * 1024
WAKE_BYTES_MAX: Final = 512 * 1024
"""Bytes of a large answer that are waited for at a time: a wake costs as much as copying 100 KB."""
WAKE_BYTES_WORTH: Final = 64 * 1024


class LeaderStream(LeaderConnection, asyncio.BufferedProtocol):
    """One connection. Between an answer and the next request the leader may send nothing."""

    def __init__(
        self, sock: socket.socket, *, is_plain: bool, client_id: str, answer_bytes_max: int
    ) -> None:
        """``sock``: the socket of the transport. ``is_plain``: without TLS."""
        super().__init__(client_id=client_id, answer_bytes_max=answer_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(BUFFER_BYTES_FIRST))
        self._end = 0
        self._wanted = LENGTH_BYTES
        """Bytes of the answer that are waited for: its length, then all of it."""
        self._answer: asyncio.Future[memoryview] | None = None
        """None without a request in flight."""
        self._lost: OSError | None = None
        self._wakes_late = is_plain
        """True if the kernel may hold back bytes until enough have come. Bytes that it has are not
        bytes of the answer with TLS.
        """
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        leader: Endpoint,
        context: ssl.SSLContext | None = None,
        *,
        client_id: str,
        answer_bytes_max: int,
        timeout_s: float,
    ) -> "LeaderStream":
        """Connect; with TLS if there is a ``context``. Raises OSError, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            sock = await _connected(leader, timeout_s)
            try:
                _, stream = await asyncio.get_running_loop().create_connection(
                    lambda: cls(
                        sock,
                        is_plain=context is None,
                        client_id=client_id,
                        answer_bytes_max=answer_bytes_max,
                    ),
                    sock=sock,
                    ssl=context,
                    server_hostname=leader.host if context is not None else None,
                )
            except BaseException:
                sock.close()
                raise
        return stream

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fail(ConnectionError("closed"))

    async def _exchange(self, data: bytes, timeout_s: float) -> memoryview:
        if self._lost is not None:
            raise self._lost
        assert self._transport is not None, "not connected"
        assert self._answer is None, "one request at a time"
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answer = answer
        self._deadline_s = self._loop.time() + timeout_s
        if self._timer is None or self._timer.when() > self._deadline_s:
            self._arm(timeout_s)
        self._transport.write(data)
        return await answer

    def _expire(self) -> None:
        """Look at the deadline. One timer serves many requests, of which few wait for so long."""
        self._timer = None
        left_s = self._deadline_s - self._loop.time()
        if self._answer is None:
            return  # the next request sets the timer
        if left_s > 0:
            self._arm(left_s)
        else:
            self._fail(TimeoutError("the leader did not answer in time"))

    def _arm(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._expire)

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        self._fail(
            exc if isinstance(exc, OSError) else ConnectionError("the leader closed the connection")
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for received bytes."""
        if self._answer is None:
            return memoryview(bytearray(1))  # the records of the last answer may be in use
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        if self._answer is None:
            self._fail(ConnectionError("bytes that belong to no answer"))
            return
        self._end += nbytes
        if self._end >= self._wanted and self._wanted == LENGTH_BYTES:
            self._take_length()
        if self._end >= self._wanted > LENGTH_BYTES:
            self._take_answer(self._answer)
        elif self._wakes_late and self._wanted >= WAKE_BYTES_WORTH:
            self._wake_at(min(self._wanted - self._end, WAKE_BYTES_MAX))

    # -- answers

    def _take_length(self) -> None:
        """Learn the size of the answer, and make room for it and a byte that must not come."""
        size = int.from_bytes(self._view[:LENGTH_BYTES], "big")
        try:
            self._check_size(size)
        except ConnectionError as wrong:
            self._fail(wrong)
            return
        self._wanted = LENGTH_BYTES + size
        if self._wanted >= len(self._view):
            view = memoryview(bytearray(max(self._wanted + 1, 2 * len(self._view))))
            view[: self._end] = self._view[: self._end]
            self._view = view

    def _take_answer(self, answer: "asyncio.Future[memoryview]") -> None:
        if self._end > self._wanted:
            self._fail(ConnectionError("bytes behind an answer"))
            return
        frame = self._view[LENGTH_BYTES : self._end]
        if self._wakes_late and self._wanted >= WAKE_BYTES_WORTH:
            self._wake_at(1)
        self._end, self._wanted, self._answer = 0, LENGTH_BYTES, None
        if not answer.done():  # cancelled
            answer.set_result(frame)

    def _wake_at(self, size_bytes: int) -> None:
        """Let the kernel report the socket as readable once it has this many bytes (or its end)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def _fail(self, error: OSError) -> None:
        """Close the connection, and fail the request in flight and all later ones; idempotent."""
        answer, self._answer = self._answer, None
        if self._lost is None:
            self._lost = error
            if self._transport is not None:
                self._transport.abort()
        if answer is not None and not answer.done():
            answer.set_exception(self._lost)


async def _connected(leader: Endpoint, timeout_s: float) -> socket.socket:
    """Return a socket that is connected to a leader. The addresses of its name are tried in turn,
    as by Kafka's clients, each for its share of the time: one of them may be of a family that no
    route leads to. Raises OSError, TimeoutError.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(leader.host, leader.port, type=socket.SOCK_STREAM)
    except UnicodeError:  # raised before the name is asked for
        raise ConnectionError(f"it advertises {leader.host!r}, which is no host name") from None
    failure: OSError = ConnectionError(f"{leader.host} has no address")
    for family, kind, protocol, _, address in found:
        try:
            async with asyncio.timeout(timeout_s / len(found)):
                return await _connected_at(socket.socket(family, kind, protocol), address)
        except OSError as failed:
            failure = failed
    raise failure


async def _connected_at(sock: socket.socket, address: tuple[Any, ...]) -> socket.socket:
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_with(tls: TlsSettings | None) -> Connect:
    """Return the function that connects to leaders, with the TLS of this broker where theirs has
    it. The files are read at each connection. ``tls`` None: this broker has none.
    """

    async def connect(
        leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> LeaderConnection:
        context = _context(tls) if leader.uses_tls else None
        return await LeaderStream.open(
            leader,
            context,
            client_id=client_id,
            answer_bytes_max=answer_bytes_max,
            timeout_s=timeout_s,
        )

    return connect


def _context(tls: TlsSettings | None) -> ssl.SSLContext:
    if tls is None:
        raise ConnectionError(
            "its listener INTERNAL has TLS: this broker needs ssl.certificate.location"
        )
    try:
        return client_context(tls)
    except TlsError as problem:
        raise ConnectionError(str(problem)) from None
