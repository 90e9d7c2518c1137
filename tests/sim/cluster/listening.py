"""Listening sockets of a host, and the server's end of their connections: results of the loop's
``create_server`` for a broker's Kafka listener.

Connections count as those of TLS, whose bytes go through the transport: without descriptors there
is no ``sendfile``.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from sim.cluster.network import Host, Wire

_READ_BYTES: Final = -1
"""asyncio's value for "as much as there is room for"."""


class SimServer:
    """The used part of ``asyncio.Server``: bound, and refusing connections until it serves."""

    def __init__(
        self,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        make_protocol: Callable[[], asyncio.BufferedProtocol],
        port: int,
    ) -> None:
        self._host = host
        self._loop = loop
        self._make_protocol = make_protocol
        self._port = port
        self.is_serving = False

    @property
    def sockets(self) -> tuple["SimServer"]:
        """The listening socket."""
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._host.name, self._port

    async def start_serving(self) -> None:
        """Accept from now on."""
        self.is_serving = True

    def close(self) -> None:
        """Accept no further connection; those that are open stay."""
        self.is_serving = False

    def accept(self, wire: Wire, to_client: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Take a new connection; return the function that takes the client's bytes."""
        transport = SimTransport(wire, self._host, self._loop, to_client)
        transport.begin(self._make_protocol())
        return transport.arrived


class SimTransport(asyncio.Transport):
    """One connection, as its ``BufferedProtocol`` sees it."""

    def __init__(
        self,
        wire: Wire,
        host: Host,
        loop: asyncio.AbstractEventLoop,
        to_client: Callable[[bytes], None],
    ) -> None:
        super().__init__(
            {"peername": (wire.client.name, 0), "ssl_object": "simulated", "socket": None}
        )
        self._wire = wire
        self._host = host
        self._loop = loop
        self._to_client = to_client
        self._protocol: asyncio.BufferedProtocol | None = None
        self._unread = bytearray()
        self._is_reading = True
        self._is_closing = False
        self._unsent = bytearray()
        wire.on_broken[host] = self._broken

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        """Report to the protocol that the connection is made."""
        self._protocol = protocol
        protocol.connection_made(self)

    # -- reading

    def arrived(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        self._unread += data
        self._feed()

    def _feed(self) -> None:
        protocol = self._protocol
        if protocol is None:
            return  # lost between the call to resume and its turn
        while self._unread and self._is_reading and not self._is_closing:
            buffer = memoryview(protocol.get_buffer(_READ_BYTES))
            count = min(len(buffer), len(self._unread))
            buffer[:count] = self._unread[:count]
            del self._unread[:count]
            protocol.buffer_updated(count)

    def pause_reading(self) -> None:
        """Leave further bytes where they are."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Resume."""
        self._is_reading = True
        self._loop.call_soon(self._feed)

    # -- writing

    def write(self, data: Any) -> None:
        """Send bytes to the client, alone or together with others of this turn."""
        if self._is_closing:
            return
        if not self._wire.joins_writes:
            content = bytes(data)
            self._wire.send(self._host, lambda: self._to_client(content))
            return
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += data

    def _send(self) -> None:
        content, self._unsent = bytes(self._unsent), bytearray()
        if content:
            self._wire.send(self._host, lambda: self._to_client(content))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the network buffers all."""

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is buffered here."""
        return 0

    # -- the end

    def is_closing(self) -> bool:
        """Return True if either end has closed it."""
        return self._is_closing

    def close(self) -> None:
        """Close it after all that was written."""
        if not self._is_closing:
            self._send()
            self._is_closing = True
            self._wire.finish(self._host)

    def abort(self) -> None:
        """Close it at once."""
        self._is_closing = True
        self._unsent.clear()
        self._wire.break_off(self._host)

    def _broken(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self._lost)

    def _lost(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(None)
