"""Connections to brokers, one for each broker and lane, opened on first use and then kept."""

import asyncio
from enum import Enum, auto

from tidemark.client.config import Address, ClientConfig
from tidemark.client.wire.connection import BrokerConnection


class Lane(Enum):
    """Separate connections of one broker: a long poll delays all responses behind it."""

    CONTROL = auto()
    PRODUCE = auto()
    FETCH = auto()
    FETCH_COMMITTED = auto()
    GROUP = auto()
    SHARE = auto()


class ConnectionPool:
    """All connections of one client."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._connections: dict[tuple[Address, Lane], BrokerConnection] = {}
        self._opening: dict[tuple[Address, Lane], asyncio.Lock] = {}
        self._closed = False

    async def connection(self, address: Address, lane: Lane) -> BrokerConnection:
        """Return a live connection.

        Raises ConnectionLostError, RequestTimedOutError, UnsupportedVersionError.
        """
        key = (address, lane)
        connection = self._connections.get(key)
        if connection is not None and not connection.is_lost:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.is_lost:
                assert not self._closed, "the pool is closed"
                connection = await BrokerConnection.open(address, self._config)
                self._connections[key] = connection
        return connection

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
