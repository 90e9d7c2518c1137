"""A connection's share of the loop, against a transport that reads as libuv does: again and again
while each read fills the buffer.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from broker.shell.listener.connection import BUFFER_BYTES_USUAL, Connection
from broker.shell.listener.request_router import RequestRouter
from broker.shell.listener.turn import TURN_BYTES_MAX, TURN_FRAMES_MAX, TURN_S_MAX
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener

READS_MAX = 32


class Frames:
    """What was taken, by size, each frame within ``frame_s``; nothing is answered."""

    def __init__(self, frame_s: float = 0.0) -> None:
        self.sizes: list[int] = []
        self._frame_s, self._now_s = frame_s, 1.0

    def handle(self, connection: Connection, frame: memoryview) -> None:
        connection.began_s = self._now_s
        self._now_s += self._frame_s
        self.sizes.append(len(frame))


class Client(asyncio.Transport):
    """A transport whose socket holds ``unread``."""

    def __init__(self, unread: bytes) -> None:
        super().__init__()
        self.ours, self._theirs = socket.socketpair()
        self.unread = memoryview(unread)
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.1", 4711), "socket": self.ours}.get(name, default)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.ours.close()
        self._theirs.close()

    def readable(self, connection: Connection) -> int:
        """One turn of the loop: the bytes read in it."""
        before = len(self.unread)
        for _ in range(READS_MAX):
            room = connection.get_buffer(-1)
            part, self.unread = self.unread[: len(room)], self.unread[len(room) :]
            room[: len(part)] = part
            connection.buffer_updated(len(part))
            if not self.reading or len(part) < len(room) or not self.unread:
                break
        return before - len(self.unread)


def turns(frame_bytes: int, count: int, *, look: Callable[[Client], None]) -> list[int]:
    """The bytes read in each turn until all frames are taken."""
    stream = (struct.pack(">i", frame_bytes) + bytes(frame_bytes)) * count
    frames = Frames()

    async def main() -> list[int]:
        listener = make_listener(World().parts, cast("RequestRouter", frames))
        client, connection = Client(stream), Connection(listener)
        connection.connection_made(client)
        read = []
        while client.unread:
            read.append(client.readable(connection))
            look(client)
            await asyncio.sleep(0)
            assert client.reading
        connection.connection_lost(None)
        client.close()
        return read

    read = asyncio.run(main())
    assert frames.sizes == [frame_bytes] * count
    return read


def frames_per_turn(count: int, *, frame_s: float) -> list[int]:
    """The small frames taken in each turn, after one read has brought them all."""
    stream = (struct.pack(">i", 20) + bytes(20)) * count
    frames = Frames(frame_s)

    async def main() -> list[int]:
        listener = make_listener(World().parts, cast("RequestRouter", frames))
        client, connection = Client(stream), Connection(listener)
        connection.connection_made(client)
        assert client.readable(connection) == len(stream)
        taken = [len(frames.sizes)]
        while taken[-1] < count:
            assert not client.reading
            await asyncio.sleep(0)
            taken.append(len(frames.sizes))
        await asyncio.sleep(0)
        assert client.reading
        connection.connection_lost(None)
        client.close()
        return [now - before for before, now in pairwise([0, *taken])]

    return asyncio.run(main())


def test_a_turn_ends_once_its_frames_took_their_time() -> None:
    assert frames_per_turn(100, frame_s=TURN_S_MAX / 9.5) == [11] * 9 + [1]


def test_no_turn_takes_a_third_request_after_one_that_took_long() -> None:
    assert frames_per_turn(6, frame_s=1.0) == [2, 2, 2]


def test_a_turn_takes_a_bounded_number_of_frames() -> None:
    count = 2 * TURN_FRAMES_MAX + 7
    assert frames_per_turn(count, frame_s=0.0) == [TURN_FRAMES_MAX, TURN_FRAMES_MAX, 7]


@pytest.mark.parametrize("frame_bytes", [1_000, 64 << 10, 300 << 10, 1 << 20, 3 << 20])
def test_a_turn_takes_one_buffer_more_than_its_bytes_at_most(frame_bytes: int) -> None:
    largest = max(BUFFER_BYTES_USUAL, frame_bytes + 4)
    count = (8 << 20) // frame_bytes
    read = turns(frame_bytes, count, look=lambda _: None)
    assert max(read) < TURN_BYTES_MAX + largest


def test_between_two_turns_it_reads_nothing() -> None:
    reading: list[bool] = []
    turns(64 << 10, 64, look=lambda client: reading.append(client.reading))
    assert len(reading) > 4
    assert not any(reading[:-1])


def test_a_socket_that_was_emptied_is_not_paused() -> None:
    reading: list[bool] = []
    turns(1_000, 50, look=lambda client: reading.append(client.reading))
    assert reading == [True]
