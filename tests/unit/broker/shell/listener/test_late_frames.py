"""A frame has its time, however its bytes trickle."""

import asyncio
import struct
from typing import cast

import pytest
from broker.shell.listener.connection import Connection
from broker.shell.listener.late_frames import is_late
from broker.shell.listener.request_router import RequestRouter
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener
from unit.broker.shell.listener.test_connection import Client, Frames

PAUSE = b"the broker reads no further"


def late(*steps: tuple[bytes, int]) -> list[bool]:
    """What each look says: some bytes come, so many ms pass. 30 s and a second for 256 KB."""

    async def main() -> list[bool]:
        parts = World().parts
        listener = make_listener(parts, cast("RequestRouter", Frames()))
        client, connection = Client(b""), Connection(listener)
        connection.connection_made(client)
        found = []
        for part, passed_ms in steps:
            if part is PAUSE:
                connection.stop_reading()
            else:
                client.unread = memoryview(part)
                client.readable(connection)
            found.append(is_late(connection, passed_ms, parts.facts.config))
        connection.connection_lost(None)
        client.close()
        return found

    return asyncio.run(main())


HALF = struct.pack(">i", 200) + bytes(100)


@pytest.mark.parametrize("begun", [HALF, b"\x00", HALF[:4]])
def test_a_frame_that_does_not_come_is_late_however_its_bytes_trickle(begun: bytes) -> None:
    assert late((begun, 5_000), (b"", 20_000), (b"\x00", 9_000), (b"\x00", 1_000)) == [
        False,
        False,
        False,
        True,
    ]


def test_each_frame_has_a_time_of_its_own_and_silence_none() -> None:
    rest_and_half = bytes(100) + HALF
    assert not any(late((HALF, 5_000), (b"", 29_000), (rest_and_half, 29_000), (b"", 29_000)))
    assert not any(late((HALF + bytes(100), 90_000), (b"", 90_000)))


def test_a_large_frame_may_take_longer() -> None:
    large = struct.pack(">i", 10 << 20)
    assert late((large, 5_000), (b"", 69_000), (b"", 2_000)) == [False, False, True]


def test_time_in_which_it_is_not_read_from_does_not_count() -> None:
    assert not any(late((HALF, 5_000), (PAUSE, 90_000), (b"", 90_000), (b"", 90_000)))
