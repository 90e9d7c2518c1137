"""The floor of replication: bare Python loops that do only what cannot be left out.

The leader: receive a frame, a CRC-32C for each batch in it, one pwrite, one sendfile for each
follower, an answer once both have said that they have it. A follower: receive, the CRCs, one
pwrite, eight bytes back. One log for all, no parsing, no checks, no state.

``python -m bench.replication_floor leader PORT FOLLOWERS_PORT DIRECTORY BATCH_BYTES`` and
``... follower PORT DIRECTORY BATCH_BYTES``.
"""

import os
import select
import socket
import struct
import sys
from collections import deque
from pathlib import Path
from typing import Final

from bench.frames import PRODUCE_VERSION
from crc32c import crc32c
from tidemark.kafka.produce import write_produce_response

FOLLOWERS: Final = 2
NO_RESULTS: Final = b"\x00" + write_produce_response(PRODUCE_VERSION, [], 0)
"""An answer behind its correlation id: no tagged fields, no topics."""
PIECE_BYTES: Final = 256 * 1024
BUFFER_BYTES: Final = 4 * 1024 * 1024
_LENGTH: Final = struct.Struct(">i")
_END: Final = struct.Struct(">q")


class Log:
    """One file, appended to."""

    def __init__(self, path: Path, batch_bytes: int) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        self.end = 0
        self._batch_bytes = batch_bytes

    def append(self, frame: memoryview) -> None:
        """A CRC for each batch, one write."""
        for position in range(0, len(frame), self._batch_bytes):
            crc32c(frame[position : position + self._batch_bytes])
        self.end += os.pwrite(self.file, frame, self.end)


class Producer:
    """The load's connection, and the answers that wait for followers."""

    def __init__(self, connection: socket.socket, log: Log) -> None:
        self.socket = connection
        self.waiting: deque[tuple[int, bytes]] = deque()
        self._log = log
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def on_readable(self) -> bool:
        """Append every whole frame; False when the peer is gone."""
        received = self.socket.recv_into(self._view[self._filled :])
        if received == 0:
            return False
        self._filled += received
        position = 0
        while self._filled - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, position)
            frame = self._view[position + 4 : position + 4 + length]
            if self._filled - position - 4 < length:
                break
            self._log.append(frame)
            self.waiting.append((self._log.end, bytes(frame[4:8])))
            position += 4 + length
        if position:
            self._buffer[: self._filled - position] = self._buffer[position : self._filled]
            self._filled -= position
        return True

    def committed(self, end: int) -> None:
        """Answer what both followers have."""
        while self.waiting and self.waiting[0][0] <= end:
            _, correlation_id = self.waiting.popleft()
            self.socket.send(_LENGTH.pack(4 + len(NO_RESULTS)) + correlation_id + NO_RESULTS)


class FollowerLink:
    """A follower's connection: what it has, and what it is being sent."""

    def __init__(self, connection: socket.socket, log: Log) -> None:
        self.socket = connection
        self.end = 0
        self._asked = False
        self._log = log

    def on_readable(self) -> bool:
        """It says how much it has, and asks for more."""
        told = self.socket.recv(4096)
        if not told:
            return False
        (self.end,) = _END.unpack(told[-_END.size :])
        self._asked = True
        self.send()
        return True

    def send(self) -> None:
        """All that it lacks, if it has asked for it."""
        size = self._log.end - self.end
        if not self._asked or size == 0:
            return
        self._asked = False
        self.socket.send(_LENGTH.pack(size), socket.MSG_MORE)
        position, left = self.end, size
        while left:
            sent = os.sendfile(self.socket.fileno(), self._log.file, position, left)
            position += sent
            left -= sent


def lead(port: int, followers_port: int, directory: Path, batch_bytes: int) -> None:
    """Serve the followers and one load until killed. Says when it listens."""
    log = Log(directory / "floor-leader.log", batch_bytes)
    with (
        socket.create_server(("127.0.0.1", followers_port)) as for_followers,
        socket.create_server(("127.0.0.1", port)) as for_load,
    ):
        print("listening", flush=True)
        followers = [FollowerLink(_accept(for_followers), log) for _ in range(FOLLOWERS)]
        producer = Producer(_accept(for_load), log)
    poller = select.epoll()
    links = {link.socket.fileno(): link for link in followers}
    for descriptor in (*links, producer.socket.fileno()):
        poller.register(descriptor, select.EPOLLIN)
    while True:
        for descriptor, _ in poller.poll():
            link = links.get(descriptor)
            if link is None:
                if not producer.on_readable():
                    poller.unregister(descriptor)  # its CPU seconds are still to be read
                for one in followers:
                    one.send()
            elif not link.on_readable():
                return
            producer.committed(min(one.end for one in followers))


def follow(port: int, path: Path, batch_bytes: int) -> None:
    """Follow until the leader is gone."""
    log = Log(path, batch_bytes)
    view = memoryview(bytearray(8 * BUFFER_BYTES))
    with socket.create_connection(("127.0.0.1", port)) as leader:
        leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            leader.sendall(_END.pack(log.end))
            head = leader.recv(_LENGTH.size, socket.MSG_WAITALL)
            if len(head) < _LENGTH.size:
                return
            (size,) = _LENGTH.unpack(head)
            position = 0
            while position < size:
                left = min(PIECE_BYTES, size - position)
                received = leader.recv_into(view[:left], left, socket.MSG_WAITALL)
                if received < left:
                    return
                log.append(view[:left])
                position += left


def _accept(listener: socket.socket) -> socket.socket:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


if __name__ == "__main__":
    if sys.argv[1] == "leader":
        lead(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
    else:
        follow(int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
