"""Client's socket over a simulated connection."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sim.cluster.network import RESEND_MS, Host, Network, Wire


class Accepts(Protocol):
    """Listener on a host: takes a new connection, and returns the function that takes its bytes."""

    def accept(self, wire: Wire, to_client: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Return the function that takes the client's bytes, in order; ``to_client`` takes the
        responses.
        """


class SimSocket:
    """Connected socket. Raises ConnectionResetError once it is broken."""

    def __init__(self, wire: Wire, client: Host) -> None:
        self._wire = wire
        self._client = client
        self._received = bytearray()
        self._news: asyncio.Future[None] | None = None
        self.take: Callable[[bytes], None] = lambda _: None
        """Function that takes bytes at the other end."""
        wire.on_broken[client] = self._wake

    async def send_all(self, data: bytes) -> None:
        """Send to the other end."""
        if self._wire.is_broken(self._client):
            raise ConnectionResetError("connection reset by peer")
        content = bytes(data)
        self._wire.send(self._client, lambda: self.take(content))

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte; 0 once the other end has closed."""
        while not self._received:
            if self._wire.is_broken(self._client):
                return 0
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        size = min(len(buffer), len(self._received))
        buffer[:size] = self._received[:size]
        del self._received[:size]
        return size

    def arrived(self, data: bytes) -> None:
        """Take bytes that have arrived."""
        self._received += data
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def close(self) -> None:
        """Close this end."""
        self._wire.break_off(self._client)


async def connect(
    network: Network, client: Host, server: Host, listener: Callable[[], Accepts | None]
) -> SimSocket:
    """Connect, with three messages. Raises ConnectionRefusedError without a listener; waits for
    ever where the way is cut.
    """
    made: asyncio.Future[SimSocket] = asyncio.get_running_loop().create_future()
    life = client.life

    def answer(action: Callable[[], None]) -> None:
        network.post(server, client, action, life=life)

    def knock() -> None:
        accepting = listener() if server.is_up else None
        if client.life != life:
            return
        if accepting is None:
            answer(lambda: _fail(made))
            return
        wire = network.open_wire(client, server)
        sock = SimSocket(wire, client)
        sock.take = accepting.accept(wire, sock.arrived)
        answer(lambda: None if made.done() else made.set_result(sock))

    def call() -> None:
        """Send the first message, repeatedly, as a kernel does."""
        if made.done():
            return
        if not server.is_up and network.travel_ms(client.name, server.name) is not None:
            _fail(made)
        elif not server.is_up or not network.post(client, server, knock):
            network.schedule.after(RESEND_MS, lambda: client.run(life, call))

    client.after(0, call)
    return await made


def _fail(made: "asyncio.Future[SimSocket]") -> None:
    if not made.done():
        made.set_exception(ConnectionRefusedError("connection refused"))
