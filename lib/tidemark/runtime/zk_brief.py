"""One ZooKeeper transaction over a session of its own, with blocking calls.

The supervisor uses it: of kazoo it loads the encoding alone, it starts no thread, and a transaction
takes milliseconds.
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as jute
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tidemark.runtime.zk_access import DIGEST_SCHEME, OPEN, ZkAccess
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
    ZkAccessError,
    ZkError,
    ZkUnavailableError,
)

SESSION_MS: Final = 4_000
"""Timeout of the session; it is closed after the transaction."""
_PORT: Final = 2_181
_AUTH_XID: Final = -4
_CONNECT_S: Final = 1.0
"""Longest wait for one server's connection, so that the next server gets its turn."""
_FRAME_BYTES_MAX: Final = 1 << 20
_NOT_THE_CAUSE: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Results of the operations before and after the one that failed."""
_ERRORS: Final[dict[type[kazoo_errors.ZookeeperError], type[ZkError]]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.NoAuthError: ZkAccessError,
}


def transact(connect: str, ops: Sequence[Op], *, timeout_s: float, access: ZkAccess = OPEN) -> None:
    """Perform all operations or none. ``connect`` is ``host:port,host:port/chroot``.

    Raises the error of the first failing operation; ZkUnavailableError if no server of the ensemble
    was reached; UnknownOutcomeError if the connection broke before the answer; ZkAccessError for
    files of ``access`` that cannot be used.
    """
    hosts, _, chroot = connect.partition("/")
    credential = access.credential()
    acl = _acl(credential) if access.sets_acls else OPEN_ACL_UNSAFE
    deadline = time.monotonic() + timeout_s
    servers = hosts.split(",")
    first = os.getpid() % len(servers)  # each process another one, without the size of random
    for server in (*servers[first:], *servers[:first]):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:
            connection = _open(server.strip(), min(left_s, _CONNECT_S), access, credential)
        except OSError:
            continue
        with connection:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            _multi(connection, ops, f"/{chroot}" if chroot else "", acl)
        return
    raise ZkUnavailableError(f"no ZooKeeper server of {connect} answered")


def _open(server: str, timeout_s: float, access: ZkAccess, credential: str) -> socket.socket:
    """Return a connection with a new session of the user. Raises OSError."""
    host, _, port = server.rpartition(":") if ":" in server else (server, "", str(_PORT))
    host = host.strip("[]")
    connection = socket.create_connection((host, int(port)), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if access.has_tls:
            connection = _with_tls(connection, host, access)
        _send(connection, jute.Connect(0, 0, SESSION_MS, 0, bytes(16), read_only=False).serialize())
        try:
            session, _ = jute.Connect.deserialize(_receive(connection), 0)
        except struct.error as problem:
            raise ConnectionError(f"{server} sent no answer to Connect: {problem}") from problem
        if session.session_id == 0:
            raise ConnectionError(f"{server} made no session")
        if credential:
            _log_in(connection, credential)
    except BaseException:
        connection.close()
        raise
    return connection


def _with_tls(connection: socket.socket, host: str, access: ZkAccess) -> socket.socket:
    """Return the connection with TLS. Raises OSError."""
    import ssl  # only where it is used: a supervisor is small

    context = ssl.create_default_context(cafile=access.ca or None)
    if access.certificate:
        context.load_cert_chain(access.certificate, access.key_file)
    return context.wrap_socket(connection, server_hostname=host)


def _acl(credential: str) -> Any:
    user, _, password = credential.partition(":")
    return [make_digest_acl(user, password, all=True)]


def _log_in(connection: socket.socket, credential: str) -> None:
    """Add the user to the session. Raises OSError; an unknown user is no error."""
    request = jute.Auth(0, DIGEST_SCHEME, credential)
    _send(connection, _header(_AUTH_XID, request.type) + request.serialize())
    _receive(connection)


def _multi(connection: socket.socket, ops: Sequence[Op], chroot: str, acl: Any) -> None:
    """Send the operations, and read their results; then close the session."""
    request = jute.Transaction([_operation(op, chroot, acl) for op in ops])
    try:
        _send(connection, _header(1, request.type) + request.serialize())
        answer = _receive(connection)
        _send(connection, _header(2, jute.Close.type))
    except OSError as problem:
        raise UnknownOutcomeError(f"multi: {problem}") from problem
    try:
        header, at = jute.ReplyHeader.deserialize(answer, 0)
        if header.err:
            raise _error(kazoo_errors.EXCEPTIONS[header.err]())
        results = jute.Transaction.deserialize(answer, at)
    except (RuntimeError, struct.error) as problem:  # a code that kazoo does not know, or no answer
        raise UnknownOutcomeError(f"multi: {problem}") from problem
    for result in results:
        if isinstance(result, kazoo_errors.ZookeeperError) and not isinstance(
            result, _NOT_THE_CAUSE
        ):
            raise _error(result)


def _operation(op: Op, chroot: str, acl: Any) -> Any:
    path = chroot + op.path
    match op:
        case Create(_, data, ephemeral):
            return jute.Create(path, data, acl, int(ephemeral))
        case Delete(_, version):
            return jute.Delete(path, version)
        case SetData(_, data, version):
            return jute.SetData(path, data, version)
        case Check(_, version):
            return jute.CheckVersion(path, version)


def _header(xid: int, request_type: int) -> bytes:
    return struct.pack(">ii", xid, request_type)


def _error(problem: kazoo_errors.ZookeeperError) -> ZkError:
    kind = _ERRORS.get(type(problem), ZkError)
    return kind(f"multi: {type(problem).__name__}")


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)


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
