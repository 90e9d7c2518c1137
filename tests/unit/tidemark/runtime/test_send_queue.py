"""SendQueue over a real socket pair: order, slices, back-pressure, cold pages, shrinking files."""

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.os_disk import OsDisk, OsFile
from tidemark.runtime.send_queue import (
    PIECES_MAX,
    READ_BYTES_MAX,
    SLICE_READ_BYTES_MAX,
    SendQueue,
)
from tidemark.storage.disk import File
from tidemark.storage.mem_disk import MemDisk
from unit.tidemark.runtime.failing_file import FailingFile
from waiting import patience, until

CONTENT = bytes(range(256)) * 8192
"""Two MiB: more than a socket holds."""


class World:
    """A queue that sends, a socket that receives, a file on disk."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.loop = asyncio.get_running_loop()
        ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.drained = 0
        self.broken: list[str] = []
        self.unreadable: list[tuple[File, str]] = []
        self.has_broken = asyncio.Event()
        self.queue = SendQueue(
            self.loop,
            ours.fileno(),
            executor,
            on_drained=self._count,
            on_broken=self._break,
            on_unreadable=lambda file, error: self.unreadable.append((file, str(error))),
        )
        ours.close()  # the queue has a descriptor of its own
        self.disk = OsDisk(directory)
        self.file = self.disk.open("f", create=True)
        self.file.write_at(0, [CONTENT])

    def _count(self) -> None:
        self.drained += 1

    def _break(self, reason: str) -> None:
        self.broken.append(reason)
        self.has_broken.set()

    async def receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = await self.loop.sock_recv(self.theirs, min(65_536, size - len(received)))
            if not chunk:
                break
            received += chunk
        return bytes(received)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def run(
    scenario: Callable[[World], Awaitable[None]], directory: Path, executor: ThreadPoolExecutor
) -> None:
    async def main() -> None:
        world = World(directory, executor)
        try:
            async with patience():
                await scenario(world)
        finally:
            world.queue.close()
            world.theirs.close()
            world.file.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_pieces_and_slices_arrive_in_order(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        world.queue.send(b"first|")
        world.queue.send_parts([b"head|", (world.file, 5, 1_500_000), b"|between|"])
        world.queue.send_parts([(world.file, 0, 3), b"|end"])
        wanted = b"first|head|" + CONTENT[5:1_500_005] + b"|between|" + CONTENT[:3] + b"|end"
        assert await world.receive(len(wanted)) == wanted
        assert world.queue.idle
        assert world.queue.queued_bytes == 0
        assert world.drained >= 1
        assert world.queue.sent_bytes == len(wanted)

    run(scenario, tmp_path, executor)


def test_what_the_socket_does_not_take_is_counted(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        world.queue.send(CONTENT)
        world.queue.send(b"tail")
        assert 0 < world.queue.queued_bytes <= len(CONTENT) + 4
        assert await world.receive(len(CONTENT) + 4) == CONTENT + b"tail"
        await asyncio.sleep(0)
        assert world.queue.queued_bytes == 0

    run(scenario, tmp_path, executor)


def test_a_large_slice_lets_others_go_first(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        looked = asyncio.Event()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            world.loop.add_reader(ours, looked.set)
            world.queue.send_parts([b"head", (world.file, 0, len(CONTENT))])
            with pytest.raises(BlockingIOError):
                world.theirs.recv(1)
            await looked.wait()
            world.loop.remove_reader(ours)
        assert await world.receive(4) == b"head"

    run(scenario, tmp_path, executor)


def test_closing_before_a_large_slice_begins_sends_nothing(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        world.queue.send_parts([b"head", (world.file, 0, len(CONTENT))])
        world.queue.close()
        assert await world.receive(1) == b""
        assert not world.drained

    run(scenario, tmp_path, executor)


class UnreadableFile(OsFile):
    """A file whose bytes cannot come to user space."""

    def read_at(self, position: int, length: int) -> bytes:
        raise AssertionError("read, not sent by the kernel")


@pytest.mark.feature("B08")
def test_warm_slices_never_come_to_user_space(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        file = UnreadableFile(os.open(tmp_path / "f", os.O_RDONLY), "f", OsDisk(tmp_path))
        world.queue.send_parts([b"head|", (file, 7, 1_000_000)])
        assert await world.receive(1_000_005) == b"head|" + CONTENT[7:1_000_007]
        file.close()

    run(scenario, tmp_path, executor)


def test_a_file_in_memory_is_copied(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        file = MemDisk().open("m", create=True)
        file.write_at(0, [CONTENT])
        world.queue.send_parts([b"<", (file, 1, 300_000), b">"])
        assert await world.receive(300_002) == b"<" + CONTENT[1:300_001] + b">"

    run(scenario, tmp_path, executor)


class KernelSent(OsFile):
    """A file that counts the calls of sendfile."""

    __slots__ = ("calls",)

    def __init__(self, path: Path) -> None:
        super().__init__(os.open(path, os.O_RDONLY), path.name, OsDisk(path.parent))
        self.calls = 0

    def send_to(self, socket: int, position: int, length: int) -> int:
        self.calls += 1
        return super().send_to(socket, position, length)


@pytest.mark.parametrize(
    ("slices", "calls"),
    [
        ([(7, 100)], 0),
        ([(7, 100), (3, SLICE_READ_BYTES_MAX)], 0),
        ([(7, SLICE_READ_BYTES_MAX + 1)], 1),
        ([(0, SLICE_READ_BYTES_MAX)] * (READ_BYTES_MAX // SLICE_READ_BYTES_MAX), 0),
        ([(0, SLICE_READ_BYTES_MAX)] * (READ_BYTES_MAX // SLICE_READ_BYTES_MAX + 2), 2),
        ([(at, 9) for at in range(PIECES_MAX)], 0),
        ([(0, 9), (9, SLICE_READ_BYTES_MAX + 9), (1, 9)], 1),
    ],
)
def test_small_slices_are_sent_with_what_is_around_them(
    tmp_path: Path, executor: ThreadPoolExecutor, slices: list[tuple[int, int]], calls: int
) -> None:
    async def scenario(world: World) -> None:
        file = KernelSent(tmp_path / "f")
        parts: list[bytes | tuple[File, int, int]] = [b"head|"]
        wanted = b"head|"
        for position, length in slices:
            parts += [(file, position, length), b"|"]
            wanted += CONTENT[position : position + length] + b"|"
        world.queue.send_parts(parts)
        assert await world.receive(len(wanted)) == wanted
        assert (file.calls, world.queue.sent_bytes) == (calls, len(wanted))
        file.close()

    run(scenario, tmp_path, executor)


def test_small_slices_behind_what_waits_stay_on_disk(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        file = KernelSent(tmp_path / "f")
        world.queue.send(CONTENT)
        queued = world.queue.queued_bytes
        world.queue.send_parts([(file, 0, 100)])
        assert world.queue.queued_bytes == queued
        assert await world.receive(len(CONTENT) + 100) == CONTENT + CONTENT[:100]
        file.close()

    run(scenario, tmp_path, executor)


@pytest.mark.parametrize("length", [100, 1_000])
def test_a_small_slice_that_the_file_does_not_have_breaks_the_connection(
    tmp_path: Path, executor: ThreadPoolExecutor, length: int
) -> None:
    async def scenario(world: World) -> None:
        os.truncate(tmp_path / "f", length - 1)
        world.queue.send_parts([b"head", (world.file, 0, length), b"tail"])
        await world.has_broken.wait()
        assert len(world.broken) == 1

    run(scenario, tmp_path, executor)


@pytest.mark.parametrize("cut", [0, 1_000_000])
def test_a_file_shorter_than_its_slice_breaks_the_connection(
    cut: int, tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        # Behind the file's back, as another process would: only sendfile can notice.
        os.truncate(tmp_path / "f", cut)
        world.queue.send_parts([b"head", (world.file, 0, len(CONTENT))])
        received = await world.receive(cut + 4)
        assert received == (b"head" + CONTENT)[: len(received)]
        await world.has_broken.wait()
        assert len(world.broken) == 1

    run(scenario, tmp_path, executor)


def test_a_truncation_under_a_queued_slice_breaks_the_connection(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        world.queue.send_parts([(world.file, 0, len(CONTENT))])
        world.file.truncate(100)
        world.file.write_at(100, [b"\xff" * len(CONTENT)])  # other bytes where the slice reaches
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(world.receive(len(CONTENT)))
            await world.has_broken.wait()
            world.queue.close()
        assert receiving.result() == CONTENT[: len(receiving.result())]

    run(scenario, tmp_path, executor)


class ColdFile(OsFile):
    """A file whose pages are never resident, so that every byte goes through a thread."""

    __slots__ = ()

    def resident(self, position: int, length: int) -> bool:
        """Never."""
        return False


class HeldFile(ColdFile):
    """A file whose sends wait in their thread until they may go on."""

    __slots__ = ("is_sending", "may_send")

    def __init__(self, descriptor: int, path: str, disk: OsDisk) -> None:
        super().__init__(descriptor, path, disk)
        self.is_sending, self.may_send = threading.Event(), threading.Event()

    def send_to(self, socket: int, position: int, length: int) -> int:
        """Send once the test allows it."""
        self.is_sending.set()
        self.may_send.wait()
        return super().send_to(socket, position, length)


def cold(directory: Path) -> ColdFile:
    return ColdFile(os.open(directory / "f", os.O_RDONLY), "f", OsDisk(directory))


def test_cold_slices_go_through_a_thread(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        file = cold(tmp_path)
        world.queue.send_parts([b"head", (file, 0, len(CONTENT)), b"tail"])
        assert not world.queue.idle
        world.queue.send(b"!")
        wanted = b"head" + CONTENT + b"tail!"
        assert await world.receive(len(wanted)) == wanted
        file.close()

    run(scenario, tmp_path, executor)


def test_closing_while_a_thread_sends_is_safe(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        file = HeldFile(os.open(tmp_path / "f", os.O_RDONLY), "f", OsDisk(tmp_path))
        world.queue.send_parts([(file, 0, len(CONTENT))])
        await asyncio.to_thread(file.is_sending.wait)
        world.queue.close()
        world.queue.close()
        file.may_send.set()
        received = await world.receive(len(CONTENT))
        assert CONTENT[:1] == received[:1]
        assert received == CONTENT[: len(received)]
        file.close()

    run(scenario, tmp_path, executor)


def test_a_gone_peer_breaks_it_once(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        world.theirs.close()
        world.queue.send(b"x")
        world.queue.send(b"y")
        world.queue.send_parts([b"z"])
        assert (len(world.broken), world.unreadable) == (1, [])

    run(scenario, tmp_path, executor)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_peer_that_goes_within_a_slice_is_no_fault_of_the_file(
    tmp_path: Path, executor: ThreadPoolExecutor, is_cold: bool
) -> None:
    async def scenario(world: World) -> None:
        world.theirs.close()
        world.queue.send_parts([(cold(tmp_path) if is_cold else world.file, 0, len(CONTENT))])
        await world.has_broken.wait()
        assert (len(world.broken), world.unreadable) == (1, [])

    run(scenario, tmp_path, executor)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_file_that_cannot_be_read_breaks_the_connection_and_is_reported(
    tmp_path: Path, executor: ThreadPoolExecutor, is_cold: bool
) -> None:
    async def scenario(world: World) -> None:
        file = FailingFile(tmp_path / "f", is_cold=is_cold)
        world.queue.send_parts([b"head", (file, 0, len(CONTENT)), b"tail"])
        await world.has_broken.wait()
        assert world.broken == ["f: Input/output error"]
        await until(lambda: world.unreadable == [(file, "f: Input/output error")])
        assert await world.receive(4) == b"head"

    run(scenario, tmp_path, executor)


def test_a_file_that_cannot_be_read_is_reported_though_the_connection_is_gone(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    async def scenario(world: World) -> None:
        file = FailingFile(tmp_path / "f", is_cold=True)
        world.queue.send_parts([(file, 0, 1_000)])
        world.queue.close()
        await until(lambda: world.unreadable == [(file, "f: Input/output error")])
        assert world.broken == []

    run(scenario, tmp_path, executor)


def test_slices_hold_their_file_open(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    async def scenario(world: World) -> None:
        file: Any = world.disk.open("f")
        world.queue.send_parts([(file, 0, len(CONTENT))])
        del file
        world.disk.remove("f")
        assert await world.receive(len(CONTENT)) == CONTENT

    run(scenario, tmp_path, executor)
