"""A proxy that understands Kafka's frames: it can hold a request back, break its connection, and
let the request go on when the client has long given it up.

For a cluster of one broker whose advertised address is the proxy's.
"""

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from waiting import PATIENCE_S

HOST = "127.0.0.1"
Rule = Callable[[int, bytes], bool]
"""Whether to hold this request back: API key and frame, without its length."""


def never(_api_key: int, _frame: bytes) -> bool:
    """Hold nothing."""
    return False


class WireProxy:
    """Listens at ``port``; every connection gets one of its own to the broker. Threads end with
    their sockets.
    """

    def __init__(self) -> None:
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self.broker_port = 0
        self.holds: Rule = never
        self._held: list[tuple[socket.socket, bytes]] = []
        self._late: queue.Queue[bytes] = queue.Queue()
        self.caught = threading.Event()
        """Set when something was held back."""
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> "WireProxy":
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _close(self._server)
        self._threads[0].join(PATIENCE_S)  # it accepts no more
        for one in self._sockets:
            _close(one)
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def hold_next(self, api_key: int) -> None:
        """Hold the next request of this API, and no other."""
        self.caught.clear()

        def is_next(key: int, _frame: bytes) -> bool:
            return key == api_key and not self.caught.is_set()

        self.holds = is_next

    def release(self) -> bytes:
        """Let what was held first go on; the broker's answer to it, behind its length."""
        upstream, frame = self._held.pop(0)
        upstream.sendall(frame)
        return self._late.get(timeout=PATIENCE_S)[4:]

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection((HOST, self.broker_port))
            except OSError:
                _close(client)
                continue
            self._sockets += [client, upstream]
            self._start(self._requests, client, upstream)
            self._start(self._answers, client, upstream)

    def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        while (frame := _read_frame(client)) is not None:
            (api_key,) = struct.unpack_from(">h", frame, 4)
            if self.holds(api_key, frame[4:]):
                # The client sees its connection break, and does not know what became of it.
                self._held.append((upstream, frame))
                self.caught.set()
                _close(client)
                return
            try:
                upstream.sendall(frame)
            except OSError:
                break
        _close(client)
        _close(upstream)

    def _answers(self, client: socket.socket, upstream: socket.socket) -> None:
        while (frame := _read_frame(upstream)) is not None:
            try:
                client.sendall(frame)
            except OSError:
                self._late.put(frame)
        _close(client)


def _read_frame(from_socket: socket.socket) -> bytes | None:
    """With its length; None at the end."""
    head = _read(from_socket, 4)
    if head is None:
        return None
    (size,) = struct.unpack(">i", head)
    body = _read(from_socket, size)
    return None if body is None else head + body


def _read(from_socket: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        try:
            chunk = from_socket.recv(size - len(found))
        except OSError:
            return None
        if not chunk:
            return None
        found += chunk
    return bytes(found)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
