"""A host's listening sockets, and the server's end of their connections: what the loop's
``create_server`` gives a broker's Kafka listener.

Connections are taken for those of TLS, whose bytes go through the transport: without descriptors
there is nothing that ``sendfile`` could work on.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from sim.cluster.network import Host, Wire

_READ_BYTES: Final = -1
"""asyncio's "as much as there is room for"."""


class SimServer:
    """As ``asyncio.Server``: bound, and refusing connections until it serves."""

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
        """Take a new connection; answers what takes the client's bytes."""
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
        """The connection is made."""
        self._protocol = protocol
        protocol.connection_made(self)

    # -- what comes

    def arrived(self, data: bytes) -> None:
        """Bytes have come."""
        self._unread += data
        self._feed()

    def _feed(self) -> None:
        protocol = self._protocol
        if protocol is None:
            return  # lost between the call to go on and its turn
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
        """Go on."""
        self._is_reading = True
        self._loop.call_soon(self._feed)

    # -- what goes

    def write(self, data: Any) -> None:
        """Bytes for the client, which travel by themselves or with the others of this turn."""
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
        """Nothing is held here: the network takes all."""

    def get_write_buffer_size(self) -> int:
        """Nothing is held."""
        return 0

    # -- the end

    def is_closing(self) -> bool:
        """Whether either end has closed it."""
        return self._is_closing

    def close(self) -> None:
        """Close it behind what was written."""
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
