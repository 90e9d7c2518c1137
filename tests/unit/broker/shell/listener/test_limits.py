"""Bounds that all connections share."""

import asyncio
import struct
from typing import Any, cast

import pytest
from broker.config import BrokerConfig
from broker.core.live_settings import settings_in_force
from broker.listener_address import Listener
from broker.shell.listener.connection import Connection
from broker.shell.listener.limits import MEMBERS_SPARE, BufferRoom, ConnectionLimits
from tidemark.model.ids import BrokerId
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener
from unit.broker.shell.listener.test_connection import Client, Frames


class Disconnected(Client):
    """A client that may be refused."""

    def abort(self) -> None:
        self.reading = False


def limits(**changes: int) -> ConnectionLimits:
    return ConnectionLimits(
        **{"connections_max": 3, "connections_per_ip_max": 2, "buffers_max_bytes": 100} | changes
    )


def test_connections_are_bounded_in_all_and_from_one_address() -> None:
    bound = limits()
    assert bound.admit("a")
    assert bound.admit("a")
    assert not bound.admit("a")
    assert bound.admit("b")
    assert not bound.admit("c")
    bound.leave("a")
    assert bound.admit("c")
    assert bound.connections == 3


def test_clients_that_fill_a_broker_do_not_keep_its_followers_out() -> None:
    bound = limits(connections_max=1, connections_per_ip_max=1_000)
    assert bound.admit("a")
    assert not bound.admit("b")
    assert all(bound.admit("c", of_member=True) for _ in range(MEMBERS_SPARE))
    assert not bound.admit("c", of_member=True)
    bound.leave("a")
    assert not bound.admit("b")
    assert bound.admit("c", of_member=True)


@pytest.mark.parametrize(("name", "is_taken"), [("CLIENT", False), ("INTERNAL", True)])
def test_followers_connect_to_a_full_broker_where_they_connect(name: str, is_taken: bool) -> None:
    async def main() -> list[bool]:
        parts = World(max_connections=1).parts
        router = parts.router()
        names = ("CLIENT", name)
        listeners = [make_listener(parts, router, Listener(n, "127.0.0.1", 0)) for n in names]
        clients = [Disconnected(b"") for _ in names]
        connections = [Connection(listener) for listener in listeners]
        for client, connection in zip(clients, connections, strict=True):
            connection.connection_made(client)
        closed = [connection.closed for connection in connections]
        for client, connection in zip(clients, connections, strict=True):
            connection.connection_lost(None)
            client.close()
        return closed

    assert asyncio.run(main()) == [False, not is_taken]


@pytest.mark.parametrize(("name", "is_taken"), [("CLIENT", False), ("INTERNAL", True)])
def test_clients_that_fill_the_buffers_do_not_hold_up_a_follower(name: str, is_taken: bool) -> None:
    half = struct.pack(">i", 3 << 20) + bytes((3 << 20) - 1)
    whole = struct.pack(">i", 300_000) + bytes(300_000)
    frames = Frames()

    async def main() -> None:
        parts = World(buffers_max_bytes=1 << 20).parts
        used = []
        for listener, unread in (("CLIENT", half), ("CLIENT", half), (name, whole)):
            at = make_listener(parts, cast("Any", frames), Listener(listener, "127.0.0.1", 0))
            client, connection = Client(unread), Connection(at)
            connection.connection_made(client)
            while client.unread and client.reading:
                client.readable(connection)
                await asyncio.sleep(0)
            used.append((client, connection))
        for client, connection in used:
            connection.connection_lost(None)
            client.close()
        assert parts.limits.buffered_bytes == 0

    asyncio.run(main())
    assert frames.sizes == ([300_000] if is_taken else [])


def test_one_owner_may_exceed_the_buffers_others_wait_their_turn() -> None:
    bound, resumed = BufferRoom(100), list[str]()
    assert bound.reserve("a", 80, lambda: None)
    assert bound.reserve("b", 80, lambda: None)
    assert not bound.reserve("c", 80, lambda: resumed.append("c"))
    assert bound.contended
    assert bound.buffered_bytes == 160
    bound.release("b", 80)
    assert resumed == ["c"]
    assert bound.reserve("c", 20, lambda: None)


def test_who_is_gone_waits_no_more() -> None:
    bound, resumed = BufferRoom(100), list[str]()
    bound.reserve("a", 200, lambda: None)
    assert not bound.reserve("b", 10, lambda: resumed.append("b"))
    bound.release("b", 0, gone=True)
    bound.release("a", 200, gone=True)
    assert resumed == []
    assert bound.buffered_bytes == 0


def test_bounds_of_connections_change_and_those_that_are_open_stay() -> None:
    bound = limits()
    assert bound.admit("a")
    assert bound.admit("b")
    config = BrokerConfig(
        broker_id=1,
        max_connections=9,
        max_connections_per_ip=0,
        max_connections_per_ip_overrides="b:2",
    )
    bound.configure(5, settings_in_force(config, {}, BrokerId(1)))
    assert (bound.connections, bound.connections_max) == (2, 5)
    assert not bound.admit("a")
    assert bound.admit("b")
    assert not bound.admit("b")
