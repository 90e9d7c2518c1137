"""TransportQueue before a transport that holds so much and no more: order, slices, back-pressure,
cold pages, shrinking files.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tidemark.runtime.os_disk import OsDisk, OsFile
from tidemark.runtime.transport_queue import TransportQueue
from tidemark.storage.disk import File
from tidemark.storage.mem_disk import MemDisk
from unit.tidemark.runtime.failing_file import FailingFile
from waiting import patience, until

CONTENT = bytes(range(256)) * 4096
"""One MiB: more than the transport holds."""


class Holding(asyncio.Transport):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.held = bytearray()
        self.high = 0
        self.queue: TransportQueue | None = None
        self.is_full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self.held)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.held += data
        if len(self.held) > self.high and not self.is_full:
            self.is_full = True
            assert self.queue is not None
            self.queue.pause_writing()

    def take(self) -> bytes:
        """What the peer reads."""
        taken, self.held = bytes(self.held), bytearray()
        if self.is_full:
            self.is_full = False
            assert self.queue is not None
            self.queue.resume_writing()
        return taken


class World:
    """A queue, its transport and a file on disk."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.transport = Holding()
        self.drained = 0
        self.broken: list[str] = []
        self.unreadable: list[tuple[File, str]] = []
        self.queue = self.transport.queue = TransportQueue(
            asyncio.get_running_loop(),
            self.transport,
            executor,
            on_drained=self._count,
            on_broken=self.broken.append,
            on_unreadable=lambda file, error: self.unreadable.append((file, str(error))),
        )
        self.disk = OsDisk(directory)
        self.file = self.disk.open("f", create=True)
        self.file.write_at(0, [CONTENT])

    def _count(self) -> None:
        self.drained += 1

    async def receive(self, size: int) -> bytes:
        received = self.transport.take()
        while len(received) < size and not self.broken:
            await asyncio.sleep(0.001)
            received += self.transport.take()
        return received


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


Scenario = Callable[[World], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(tmp_path: Path, executor: ThreadPoolExecutor) -> Run:
    async def main(scenario: Scenario) -> None:
        world = World(tmp_path, executor)
        async with patience():
            await scenario(world)
        world.queue.close()
        world.file.close()

    return lambda scenario: asyncio.run(main(scenario))


def test_pieces_and_slices_arrive_in_order(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.queue.send(b"<")
        world.queue.send_parts([b"head|", (world.file, 7, 600_000), b"|", (world.file, 0, 0)])
        world.queue.send(b">")
        wanted = b"<head|" + CONTENT[7:600_007] + b"|>"
        assert await world.receive(len(wanted)) == wanted
        assert world.queue.sent_bytes == len(wanted)

    run(scenario)


def test_no_more_is_read_than_the_transport_wants_to_hold(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.queue.send_parts([(world.file, 0, len(CONTENT))] * 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(world.transport.held) < 2 * world.transport.high
        assert world.queue.queued_bytes == len(world.transport.held)
        assert (world.queue.idle, world.drained) == (False, 0)
        assert await world.receive(3 * len(CONTENT)) == 3 * CONTENT
        assert (world.queue.idle, world.drained) == (True, 1)

    run(scenario)


def test_bytes_wait_and_are_counted_while_the_transport_is_full(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.queue.send(CONTENT)
        world.queue.send(b"tail")
        assert len(world.queue) == 1
        assert world.queue.queued_bytes == len(CONTENT) + 4
        assert await world.receive(len(CONTENT) + 4) == CONTENT + b"tail"
        assert world.queue.queued_bytes == 0

    run(scenario)


def test_a_large_answer_lets_others_go_in_between(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.transport.high = len(CONTENT)
        world.queue.send_parts([(world.file, 0, len(CONTENT))])
        assert len(world.transport.held) < len(CONTENT) / 2
        assert await world.receive(len(CONTENT)) == CONTENT

    run(scenario)


class ColdFile(OsFile):
    """A file whose pages are never resident, so that every byte is read by a thread."""

    __slots__ = ()

    def resident(self, position: int, length: int) -> bool:
        """Never."""
        return False


def cold(directory: Path) -> ColdFile:
    return ColdFile(os.open(directory / "f", os.O_RDONLY), "f", OsDisk(directory))


def test_cold_slices_are_read_by_a_thread(run: Run, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        file = cold(tmp_path)
        world.queue.send_parts([b"head", (file, 0, len(CONTENT)), b"tail"])
        assert world.transport.held == b"head"
        assert not world.queue.idle
        world.queue.send(b"!")
        wanted = b"head" + CONTENT + b"tail!"
        assert await world.receive(len(wanted)) == wanted
        file.close()

    run(scenario)


def test_closing_while_a_thread_reads_sends_nothing_more(run: Run, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        file = cold(tmp_path)
        world.queue.send_parts([(file, 0, len(CONTENT))])
        world.queue.close()
        world.queue.send(b"x")
        world.queue.send_parts([b"y"])
        await asyncio.sleep(0.02)
        assert world.transport.held == b""
        file.close()

    run(scenario)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_file_that_cannot_be_read_breaks_the_connection_and_is_reported(
    run: Run, tmp_path: Path, is_cold: bool
) -> None:
    async def scenario(world: World) -> None:
        file = FailingFile(tmp_path / "f", is_cold=is_cold)
        world.queue.send_parts([b"head", (file, 0, len(CONTENT)), b"tail"])
        await until(lambda: world.unreadable == [(file, "f: Input/output error")])
        assert world.broken == ["f: Input/output error"]
        assert bytes(world.transport.held) == b"head"

    run(scenario)


def test_a_file_that_cannot_be_read_is_reported_though_the_connection_is_gone(
    run: Run, tmp_path: Path
) -> None:
    async def scenario(world: World) -> None:
        file = FailingFile(tmp_path / "f", is_cold=True)
        world.queue.send_parts([(file, 0, len(CONTENT))])
        world.queue.close()
        await until(lambda: world.unreadable == [(file, "f: Input/output error")])
        assert world.broken == []

    run(scenario)


def test_a_file_in_memory_is_read_alike(run: Run) -> None:
    async def scenario(world: World) -> None:
        file = MemDisk().open("m", create=True)
        file.write_at(0, [CONTENT])
        world.queue.send_parts([b"<", (file, 1, 300_000), b">"])
        assert await world.receive(300_002) == b"<" + CONTENT[1:300_001] + b">"

    run(scenario)


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_file_shorter_than_its_slice_breaks_the_connection(
    run: Run, tmp_path: Path, *, is_cold: bool
) -> None:
    async def scenario(world: World) -> None:
        os.truncate(tmp_path / "f", 300_000)  # behind the file's back
        file = cold(tmp_path) if is_cold else world.file
        world.queue.send_parts([b"head", (file, 0, len(CONTENT)), b"tail"])
        received = await world.receive(len(CONTENT) + 8)
        assert received == (b"head" + CONTENT)[: len(received)]
        assert world.broken == [f"{file.path}: shorter than the slice that was being sent"]
        file.close()

    run(scenario)


def test_a_truncation_under_a_queued_slice_breaks_the_connection(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.queue.send_parts([(world.file, 0, len(CONTENT))])
        world.file.truncate(100)
        world.file.write_at(100, [b"\xff" * len(CONTENT)])  # other bytes where the slice reaches
        received = await world.receive(len(CONTENT))
        assert received == CONTENT[: len(received)]
        assert world.broken == [f"{world.file.path}: truncated while it was being sent"]

    run(scenario)
