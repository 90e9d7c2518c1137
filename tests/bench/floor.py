"""The floor: a bare Python loop doing only what no broker in Python can leave out.

Produce: receive a frame, CRC-32C over the batch, one pwrite, a short answer. Fetch: read a request,
a short header, one sendfile. No parsing, no checks, no state. What a real broker needs beyond it is
its own cost, and bounded as a ratio.

Run as a process of its own: ``python -m bench.floor produce|fetch PORT DIRECTORY BYTES``.
"""

import os
import select
import socket
import struct
import sys
from pathlib import Path
from typing import Final

from crc32c import crc32c

SEGMENT_BYTES: Final = 1 << 30
ANSWER_BYTES: Final = 40
RECEIVE_BYTES: Final = 256 * 1024
_LENGTH: Final = struct.Struct(">i")


class ProduceConnection:
    """One producer's socket, its receive buffer and its file."""

    def __init__(self, connection: socket.socket, path: Path) -> None:
        self.socket = connection
        self.buffer = bytearray(max(RECEIVE_BYTES, 2 * 1024 * 1024))
        self.view = memoryview(self.buffer)
        self.filled = 0
        self.file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        self.position = 0

    def on_readable(self) -> bool:
        """Take what has come, append every whole frame; False when the peer is gone."""
        try:
            received = self.socket.recv_into(self.view[self.filled :])
        except BlockingIOError:
            return True
        if received == 0:
            return False
        self.filled += received
        position = 0
        while self.filled - position >= 4:
            (length,) = _LENGTH.unpack_from(self.buffer, position)
            if self.filled - position - 4 < length:
                break
            self.append(self.view[position + 4 : position + 4 + length])
            position += 4 + length
        if position:
            self.buffer[: self.filled - position] = self.buffer[position : self.filled]
            self.filled -= position
        return True

    def append(self, frame: memoryview) -> None:
        """CRC, pwrite, answer with the frame's correlation id."""
        crc32c(frame)
        self.position += os.pwrite(self.file, frame, self.position)
        if self.position > SEGMENT_BYTES:
            self.position = 0
        answer = _LENGTH.pack(ANSWER_BYTES - 4) + bytes(frame[4:8]) + bytes(ANSWER_BYTES - 8)
        self.socket.send(answer)


class FetchConnection:
    """One reader's socket; every request is answered with the next ``answer_bytes`` of the file."""

    def __init__(self, connection: socket.socket, path: Path, answer_bytes: int) -> None:
        self.socket = connection
        self.socket.setblocking(True)
        self.file = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.file).st_size
        self.answer_bytes = answer_bytes
        self.position = 0
        self.request = b""

    def on_readable(self) -> bool:
        """One request in, one slice out; False when the peer is gone."""
        if not self.receive():
            return False
        self.answer()
        return True

    def receive(self) -> bool:
        """One request in; False when the peer is gone."""
        self.request = self.socket.recv(4096)
        return bool(self.request)

    def answer(self) -> None:
        """One slice out."""
        if self.position + self.answer_bytes > self.size:
            self.position = 0
        header = _LENGTH.pack(ANSWER_BYTES - 4 + self.answer_bytes)
        header += self.request[8:12] + bytes(ANSWER_BYTES - 8)
        self.socket.send(header, socket.MSG_MORE)
        left = self.answer_bytes
        while left:
            sent = os.sendfile(
                self.socket.fileno(), self.file, self.position, min(left, 256 * 1024)
            )
            self.position += sent
            left -= sent


def serve(kind: str, port: int, directory: Path, answer_bytes: int) -> None:
    """Serve until killed; one epoll loop, one process."""
    listener = socket.create_server(("127.0.0.1", port))
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    connections: dict[int, ProduceConnection | FetchConnection] = {}
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if kind == "produce":
                    peer.setblocking(False)
                    made: ProduceConnection | FetchConnection = ProduceConnection(
                        peer, directory / f"floor-{peer.fileno()}.log"
                    )
                else:
                    made = FetchConnection(peer, directory / "floor.log", answer_bytes)
                connections[peer.fileno()] = made
                poller.register(peer, select.EPOLLIN)
            elif not connections[descriptor].on_readable():
                poller.unregister(descriptor)
                gone = connections.pop(descriptor)
                gone.socket.close()
                os.close(gone.file)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
