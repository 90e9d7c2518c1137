"""Health of the processes of an embedded cluster, checked over their own ports."""

import http.client
import socket
import struct
from collections.abc import Set
from pathlib import Path
from typing import Final

from tidemark.cli.dev.layout import HOST, PROMETHEUS, Member
from tidemark.cli.dev.prometheus import prometheus_problem
from tidemark.cli.dev.secure import SecureFiles
from tidemark.cli.dev.zookeeper import over, zookeeper_problem
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.kafka.metadata import (
    MetadataRequest,
    read_metadata_response,
    write_metadata_request,
)
from tidemark.kafka.primitives import MalformedRequestError
from tidemark.runtime.tls import TlsError, TlsSettings, client_context

_TIMEOUT_SECONDS: Final = 2.0
_METADATA_VERSION: Final = 9
_LENGTH: Final = struct.Struct(">i")
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


def member_problem(member: Member, files: SecureFiles | None = None) -> str | None:
    """Return why a process is not ready; None if it is. ``files``: those of a secure cluster."""
    if member.kind == "zookeeper":
        tls = None if files is None else files.process_tls()
        return zookeeper_problem(member.ports["client"], tls=tls)
    if member.kind == PROMETHEUS:
        return prometheus_problem(member)
    # A controller serves /readyz on its REST port, other processes on a port for operators.
    if member.kind == "controller":
        return readiness_problem(member.ports["rest"], None if files is None else files.ca)
    return readiness_problem(member.ports["ops"])


def readiness_problem(port: int, ca: Path | None = None) -> str | None:
    """Return the problem that ``GET /readyz`` reports, over TLS with ``ca``; None if there is
    none.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)
    try:
        if ca is not None:
            connection = http.client.HTTPSConnection(
                HOST, port, timeout=_TIMEOUT_SECONDS, context=client_context(TlsSettings(ca=ca))
            )
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(1_024).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException, TlsError) as error:
        return f"/readyz on port {port}: {error}"
    finally:
        connection.close()
    return None if answer.status == http.client.OK else text or f"status {answer.status}"


def metadata_problem(port: int, broker_ids: Set[int], tls: TlsSettings | None = None) -> str | None:
    """Return which of these brokers the metadata of a Kafka listener lacks, over TLS with ``tls``;
    None if it has all.
    """
    try:
        known = _brokers_known(port, tls)
    except (OSError, MalformedRequestError, TlsError) as error:
        return f"metadata on port {port}: {error}"
    missing = sorted(broker_ids - known)
    if missing:
        return f"metadata on port {port} lacks broker {', '.join(map(str, missing))}"
    return None


def _brokers_known(port: int, tls: TlsSettings | None) -> set[int]:
    """Return the brokers in the metadata. Raises OSError, MalformedRequestError, TlsError."""
    key, version = ApiKey.METADATA, _METADATA_VERSION
    body = write_metadata_request(version, MetadataRequest(topics=[]))
    frame = request_header(key, version, 1, "tidemark-dev") + body
    address = (HOST, port)
    with socket.create_connection(address, _TIMEOUT_SECONDS) as sock, over(sock, tls) as own:
        own.sendall(_LENGTH.pack(len(frame)) + frame)
        (length,) = _LENGTH.unpack(_receive(own, _LENGTH.size))
        if not 0 < length <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {length} bytes: is it a Kafka listener?")
        answer = memoryview(_receive(own, length))
    _, position = read_response_header(answer, key, version)
    response = read_metadata_response(answer[position:], version)
    return {broker.node_id for broker in response.brokers}


def _receive(sock: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = sock.recv(length - len(received))
        if not part:
            raise ConnectionError("connection closed before the answer was whole")
        received += part
    return bytes(received)
