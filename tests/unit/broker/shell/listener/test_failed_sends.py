"""A log that cannot be read while it is being sent: its directory has failed as by any read."""

import asyncio
from typing import cast

import pytest
from broker.core.partition import Role
from broker.shell.listener.connection import Connection
from broker.shell.listener.request_router import RequestRouter
from tidemark.kafka.headers import RequestHeader
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.conftest import make_listener
from unit.broker.shell.listener.test_connection import Client, Frames


class Peer(Client):
    """One whose connection may be cut."""

    def abort(self) -> None:
        self.close()


@pytest.mark.feature("Y09")
def test_the_directory_is_fenced_and_what_the_other_holds_is_served() -> None:
    world = World(MemDisk(), MemDisk())
    world.show(topic(partitions=2))
    world.append()
    found = world.read().read
    failing, other = world.hosted(), world.hosted(partition=1)
    assert failing.manager is not other.manager

    async def main() -> None:
        listener = make_listener(world.parts, cast("RequestRouter", Frames()))
        client, connection = Peer(b""), Connection(listener)
        connection.connection_made(client)
        cast("MemDisk", failing.manager.disk).reads_fail = True
        connection.answer_parts(RequestHeader(1, 4, 7, None, 0), list(found.slices))
        connection._flush()
        await world.parts.partitions.disks.trouble.wait()
        assert connection.closed
        connection.connection_lost(None)

    asyncio.run(main())
    assert (failing.partition.role, other.partition.role) == (Role.FAILED, Role.LEADER)
    assert "Input/output error" in str(failing.manager.failure)
    assert other.manager.fenced is None
