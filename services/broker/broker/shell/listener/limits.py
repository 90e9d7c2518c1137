"""Bounds that all connections share: their number, the number from one address, and the bytes of
their receive buffers.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.model.metadata import INTERNAL_LISTENER

from broker.config import BrokerConfig
from broker.core.live_settings import LiveSettings

MEMBERS_SPARE: Final = 64
"""Connections beyond max.connections that other processes of the cluster may have: clients that
fill a broker must not keep its followers out. Their descriptors are among the spare ones.
"""
MEMBERS_SHARE: Final = 8
"""The buffers of other processes of the cluster have this part of buffers.max.bytes besides."""


class BufferRoom:
    """Receive buffers of some connections, and their bound. A large frame that finds no room waits
    its turn, and its connection is not read from.

    One waiter at a time may exceed the bound: otherwise connections that each hold half a frame
    would wait for ever.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.buffered_bytes = 0
        self._overdrawn_by: object | None = None
        self._waiting: deque[tuple[object, Callable[[], None]]] = deque()

    @property
    def contended(self) -> bool:
        """True if a frame waits for room: large buffers are given back between frames."""
        return bool(self._waiting)

    def reserve(self, owner: object, size_bytes: int, resume: Callable[[], None]) -> bool:
        """Take ``size_bytes`` for a receive buffer. Returns False if there is no room: ``resume``
        is called when a retry is worthwhile.
        """
        if self.buffered_bytes + size_bytes > self.bytes_max:
            if self._overdrawn_by is not None and self._overdrawn_by is not owner:
                self._waiting.append((owner, resume))
                return False
            self._overdrawn_by = owner
        self.buffered_bytes += size_bytes
        return True

    def release(self, owner: object, size_bytes: int, *, gone: bool = False) -> None:
        """Give bytes back; ``gone``: the connection is closed and no longer waits."""
        self.buffered_bytes -= size_bytes
        assert self.buffered_bytes >= 0, "released more than reserved"
        if self._overdrawn_by is owner and (gone or size_bytes):
            self._overdrawn_by = None
        if gone:
            self._waiting = deque(one for one in self._waiting if one[0] is not owner)
        if self._waiting and self._overdrawn_by is None:
            _, resume = self._waiting.popleft()
            resume()


class ConnectionLimits:
    """Counters of connections, and their bounds, and the room for their buffers."""

    def __init__(
        self, *, connections_max: int, connections_per_ip_max: int, buffers_max_bytes: int
    ) -> None:
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.overrides: Mapping[str, int] = {}
        """connections_per_ip_max of single addresses."""
        self.connections = 0
        self._by_address: dict[str, int] = {}
        self._buffers = BufferRoom(buffers_max_bytes)
        self._members_buffers = BufferRoom(buffers_max_bytes // MEMBERS_SHARE)

    @property
    def contended(self) -> bool:
        """True if a frame waits for room."""
        return self._buffers.contended or self._members_buffers.contended

    @property
    def buffered_bytes(self) -> int:
        """Size of all receive buffers."""
        return self._buffers.buffered_bytes + self._members_buffers.buffered_bytes

    def room(self, listener: str) -> BufferRoom:
        """Return the room for the buffers of a listener's connections: clients that begin large
        frames must not hold up followers, whose first fetch names every partition.
        """
        return self._members_buffers if listener == INTERNAL_LISTENER else self._buffers

    def admit(self, address: str, *, of_member: bool = False) -> bool:
        """Count one more connection from ``address``. Returns False, and does not count it, if that
        is one too many. ``of_member``: of another process of the cluster.
        """
        from_address = self._by_address.get(address, 0)
        allowed = self.overrides.get(address, self.connections_per_ip_max)
        connections_max = self.connections_max + (MEMBERS_SPARE if of_member else 0)
        if self.connections >= connections_max or from_address >= allowed:
            return False
        self.connections += 1
        self._by_address[address] = from_address + 1
        return True

    def configure(self, connections_possible: int, settings: LiveSettings) -> None:
        """Take the bounds of connections; those that are open stay. No more connections than
        ``connections_possible`` are allowed, whatever is set.
        """
        self.connections_max = min(settings.max_connections, connections_possible)
        self.connections_per_ip_max = settings.max_connections_per_ip
        self.overrides = settings.max_connections_per_ip_overrides

    def leave(self, address: str) -> None:
        """Count an admitted connection that is closed."""
        self.connections -= 1
        left = self._by_address[address] - 1
        if left:
            self._by_address[address] = left
        else:
            del self._by_address[address]


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Return the bounds of one broker, as configured."""
    return ConnectionLimits(
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        buffers_max_bytes=config.buffers_max_bytes,
    )
