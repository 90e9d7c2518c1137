"""Connections to brokers, one for each broker and lane, opened on first use and then kept."""

import asyncio
from collections.abc import Iterable
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
        self._silent: set[Address] = set()
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
                connection = await self._open(address)
                self._connections[key] = connection
        return connection

    async def _open(self, address: Address) -> BrokerConnection:
        self._silent.add(address)
        connection = await BrokerConnection.open(address, self._config, on_late=self._silent.add)
        self._silent.discard(address)
        return connection

    def answering_first(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses in their order, but last those of brokers that left a request or a
        connection unanswered and have accepted no connection since.
        """
        return sorted(addresses, key=self._silent.__contains__)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()
