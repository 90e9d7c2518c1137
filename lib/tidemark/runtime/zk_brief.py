"""One ZooKeeper transaction over a session of its own, with blocking calls.

The supervisor uses it: it imports no client library, starts no thread, and takes milliseconds.
The encoding is that of ZooKeeper's jute records (big-endian; strings and buffers after a length).
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from tidemark.runtime.zk_calls import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    SetData,
    UnknownOutcomeError,
    ZkError,
    ZkUnavailableError,
)

SESSION_MS: Final = 4_000
"""Timeout of the session; it is closed after the transaction."""
_PORT: Final = 2_181
_CONNECT_S: Final = 1.0
"""Longest wait for one server's connection, so that the next server gets its turn."""
_FRAME_BYTES_MAX: Final = 1 << 20
_NO_SESSION: Final = 0
_CLOSE: Final = -11
_MULTI: Final = 14
_FAILED: Final = -1
_OPEN_ACL: Final = struct.pack(">ii", 1, 31) + b"\0\0\0\5world" + b"\0\0\0\6anyone"
_EPHEMERAL: Final = 1
_OTHER_FAILED: Final = -2
"""Result of the operations after the one that failed."""
_ERRORS: Final[dict[int, type[ZkError]]] = {
    -101: NoNodeError,
    -103: BadVersionError,
    -110: NodeExistsError,
}


def transact(connect: str, ops: Sequence[Op], *, timeout_s: float) -> None:
    """Perform all operations or none. ``connect`` is ``host:port,host:port/chroot``.

    Raises the error of the first failing operation; ZkUnavailableError if no server of the ensemble
    was reached; UnknownOutcomeError if the connection broke before the answer.
    """
    hosts, _, chroot = connect.partition("/")
    deadline = time.monotonic() + timeout_s
    servers = hosts.split(",")
    first = os.getpid() % len(servers)  # each process another one, without the size of random
    for server in (*servers[first:], *servers[:first]):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            connection = _open(server.strip(), min(left_s, _CONNECT_S))
        except OSError:
            continue
        with connection:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            _multi(connection, ops, f"/{chroot}" if chroot else "")
        return
    raise ZkUnavailableError(f"no ZooKeeper server of {connect} answered")


def _open(server: str, timeout_s: float) -> socket.socket:
    """Return a connection with a new session. Raises OSError."""
    host, _, port = server.rpartition(":") if ":" in server else (server, "", str(_PORT))
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Protocol version, last transaction seen, timeout, no session and no password, read-only.
        _send(connection, struct.pack(">iqiqi16s?", 0, 0, SESSION_MS, _NO_SESSION, 16, b"", False))  # noqa: FBT003 - a field's value
        _, _, session = struct.unpack_from(">iiq", _receive(connection))
        if session == _NO_SESSION:
            raise ConnectionError(f"{server} made no session")
    except BaseException:
        connection.close()
        raise
    return connection


def _multi(connection: socket.socket, ops: Sequence[Op], chroot: str) -> None:
    """Send the operations, and read their results; then close the session."""
    body = b"".join(_operation(op, chroot) for op in ops)
    end = struct.pack(">i?i", -1, True, -1)  # noqa: FBT003 - a field's value
    try:
        _send(connection, struct.pack(">ii", 1, _MULTI) + body + end)
        answer = _receive(connection)
        error = _error_of(answer)
        _send(connection, struct.pack(">ii", 2, _CLOSE))
    except OSError as problem:
        raise UnknownOutcomeError(f"multi: {problem}") from problem
    if error:
        raise _ERRORS.get(error, ZkError)(f"multi: error {error}")


def _operation(op: Op, chroot: str) -> bytes:
    """Return an operation of a multi with its header."""
    path = _buffer((chroot + op.path).encode())
    match op:
        case Create(_, data, ephemeral):
            flags = struct.pack(">i", _EPHEMERAL if ephemeral else 0)
            code, record = 1, path + _buffer(data) + _OPEN_ACL + flags
        case Delete(_, version):
            code, record = 2, path + struct.pack(">i", version)
        case SetData(_, data, version):
            code, record = 5, path + _buffer(data) + struct.pack(">i", version)
        case Check(_, version):
            code, record = 13, path + struct.pack(">i", version)
    return struct.pack(">i?i", code, False, -1) + record  # noqa: FBT003 - a field's value


def _error_of(answer: bytes) -> int:
    """Return the code of the operation that failed; 0 if all succeeded."""
    _, _, error = struct.unpack_from(">iqi", answer)
    at = struct.calcsize(">iqi")
    if error:
        return int(error)
    # If one fails, the answer holds codes only: 0 for those before it, another for those after it.
    while True:
        code, is_end, _ = struct.unpack_from(">i?i", answer, at)
        if is_end or code != _FAILED:
            return 0
        at += struct.calcsize(">i?i")
        (error,) = struct.unpack_from(">i", answer, at)
        if error not in (0, _OTHER_FAILED):
            return int(error)
        at += struct.calcsize(">i")


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(_buffer(frame))


def _receive(connection: socket.socket) -> bytes:
    """Return the next frame. Raises OSError; TimeoutError is one."""
    (length,) = struct.unpack(">i", _receive_exactly(connection, 4))
    if not 0 < length <= _FRAME_BYTES_MAX:
        raise ConnectionError(f"a frame of {length} bytes")
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        if not received:
            raise ConnectionError("the server closed the connection")
        data += received
    return data
