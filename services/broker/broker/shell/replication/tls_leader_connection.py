"""Connections to leaders whose listener INTERNAL has TLS."""

import asyncio
import ssl
from typing import Final

from tidemark.model.metadata import Endpoint
from tidemark.runtime.tls import TlsError, TlsSettings, client_context

from broker.shell.replication.leader_connection import (
    BUFFER_BYTES_FIRST,
    Connect,
    LeaderConnection,
)

READ_AHEAD_BYTES: Final = 1024 * 1024
"""Decrypted bytes that may wait until they are read."""


class TlsLeaderConnection(LeaderConnection):
    """One connection with TLS. Answers are copied once more than without."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        client_id: str,
        answer_bytes_max: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._answer_bytes_max = answer_bytes_max
        self._correlation_id = 0
        self._buffer = memoryview(bytearray(BUFFER_BYTES_FIRST))

    @classmethod
    async def open_tls(
        cls,
        leader: Endpoint,
        context: ssl.SSLContext,
        *,
        client_id: str,
        answer_bytes_max: int,
        timeout_s: float,
    ) -> "TlsLeaderConnection":
        """Connect. Raises OSError, TimeoutError."""
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                leader.host,
                leader.port,
                ssl=context,
                server_hostname=leader.host,
                limit=READ_AHEAD_BYTES,
            )
        return cls(reader, writer, client_id=client_id, answer_bytes_max=answer_bytes_max)

    def close(self) -> None:
        """Close the socket."""
        self._writer.transport.abort()

    async def _send_all(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _read_exactly(self, size: int) -> None:
        position = 0
        while position < size:
            data = await self._reader.read(min(size - position, READ_AHEAD_BYTES))
            if not data:
                raise ConnectionError("the leader closed the connection")
            self._buffer[position : position + len(data)] = data
            position += len(data)


def connect_with(tls: TlsSettings | None) -> Connect:
    """Return the function that connects to leaders, with the TLS of this broker where theirs has
    it. The files are read at each connection. ``tls`` None: this broker has none.
    """

    async def connect(
        leader: Endpoint, *, client_id: str, answer_bytes_max: int, timeout_s: float
    ) -> LeaderConnection:
        if not leader.uses_tls:
            return await LeaderConnection.open(
                leader,
                client_id=client_id,
                answer_bytes_max=answer_bytes_max,
                timeout_s=timeout_s,
            )
        if tls is None:
            raise ConnectionError(
                "its listener INTERNAL has TLS: this broker needs ssl.certificate.location"
            )
        try:
            context = client_context(tls)
        except TlsError as problem:
            raise ConnectionError(str(problem)) from None
        return await TlsLeaderConnection.open_tls(
            leader,
            context,
            client_id=client_id,
            answer_bytes_max=answer_bytes_max,
            timeout_s=timeout_s,
        )

    return connect
