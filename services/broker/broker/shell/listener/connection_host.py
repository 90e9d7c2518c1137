"""ConnectionHost: a listener as its connections use it.

A protocol, so that a connection does not import the listener that makes it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Requester
from tidemark.runtime.send_queue import SendQueue
from tidemark.runtime.transport_queue import TransportQueue

from broker.core.parked import Parked
from broker.shell.counters import BrokerCounters
from broker.shell.listener.limits import ConnectionLimits

ConnectionT = TypeVar("ConnectionT", contravariant=True)


class HandlesFrames(Protocol[ConnectionT]):
    """The router of requests."""

    def handle(self, connection: ConnectionT, frame: memoryview) -> None:
        """Handle one frame. Never raises for a client's mistake."""

    def served(self) -> list[ApiKey]:
        """Return the APIs that have a handler and are for clients."""


class ConnectionHost(Protocol[ConnectionT]):
    """Attributes and calls of a listener that a connection uses."""

    name: str
    loop: asyncio.AbstractEventLoop
    limits: ConnectionLimits
    counters: BrokerCounters
    stranger: Requester
    """Client that has not authenticated."""
    frame_bytes_max: int
    queued_bytes_max: int
    requests_in_flight_max: int

    @property
    def router(self) -> HandlesFrames[ConnectionT]:
        """Router of every frame."""

    @property
    def parked(self) -> Parked:
        """Parked requests of all connections."""

    def identify(self, transport: asyncio.Transport, peer: str) -> str | None:
        """Return the principal of a new connection; None if it is refused."""

    def admit(self, connection: ConnectionT) -> bool:
        """Count a new connection, unless a limit is reached."""

    def login_ended(self, connection: ConnectionT, *, failed: bool) -> None:
        """Note the outcome of a connection's first login."""

    def make_queue(
        self,
        transport: asyncio.Transport,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> SendQueue | TransportQueue:
        """Make the queue of a connection's answers. Raises OSError without a descriptor."""

    def drained(self, connection: ConnectionT) -> None:
        """Note that a connection has sent all its answers."""

    def gone(self, connection: ConnectionT) -> None:
        """Note that a connection is closed."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a slow handler to its end, or to that of the drain."""
