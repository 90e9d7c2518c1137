"""LeaderStream over real sockets: answers of every size, and leaders that answer wrongly or not."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import uvloop
from broker.shell.replication.leader_connection import FETCH_VERSION, LeaderConnection
from broker.shell.replication.leader_stream import (
    BUFFER_BYTES_FIRST,
    WAKE_BYTES_MAX,
    WAKE_BYTES_WORTH,
    LeaderStream,
    connect_with,
)
from tidemark.kafka.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    write_fetch_response,
)
from tidemark.model.metadata import PLAINTEXT, SSL, Endpoint
from tidemark.runtime.event_loop import new_event_loop
from unit.pem_files import PemFiles
from waiting import PATIENCE_S, patience, until

TOPIC_ID = bytes(range(16))
CONTENT = bytes(range(256)) * 12_000
SIZES = (0, 1, WAKE_BYTES_WORTH - 1, WAKE_BYTES_WORTH + 200, BUFFER_BYTES_FIRST, 3_000_000)
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request with a correlation id."""
ANSWER_BYTES_MAX = 4_000_000


def frame_of(correlation_id: int, size: int) -> bytes:
    result = FetchPartitionResult(0, 0, size)
    topic = FetchedTopic("", TOPIC_ID, [FetchedPartition(result, memoryview(CONTENT)[:size])])
    body = write_fetch_response(FETCH_VERSION, FetchResponse(0, 0, 0, [topic], []))
    return struct.pack(">iib", 5 + len(body), correlation_id, 0) + body


def request() -> FetchRequest:
    return FetchRequest(
        replica_id=2,
        replica_epoch=1,
        wait_ms_max=500,
        bytes_min=1,
        bytes_max=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        topics=[],
        forgotten=[],
        rack_id="",
        cluster_id=None,
    )


async def fetched(connection: LeaderConnection, timeout_s: float = PATIENCE_S) -> bytes:
    response = await connection.fetch(request(), timeout_s)
    records = response.topics[0].partitions[0].records
    return b"" if records is None else bytes(records)


def run(
    answer: Answer,
    scenario: Callable[[LeaderConnection], Awaitable[None]],
    files: PemFiles | None = None,
) -> None:
    """Connect to a leader that answers each request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                await answer(struct.unpack_from(">i", frame, 4)[0], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        context = None
        if files is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.certificate, files.key)
        async with patience():
            server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            where = Endpoint("INTERNAL", "127.0.0.1", port, SSL if files else PLAINTEXT)
            connection = await connect_with(files.identity if files else None)(
                where, client_id="test", answer_bytes_max=ANSWER_BYTES_MAX, timeout_s=PATIENCE_S
            )
            try:
                await scenario(connection)
            finally:
                connection.close()
                connection.close()
                server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("has_tls", [False, True])
def test_answers_of_every_size_come_whole(
    has_tls: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sizes = iter(SIZES * 2)

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(frame_of(correlation_id, next(sizes)))

    async def scenario(connection: LeaderConnection) -> None:
        for size in SIZES * 2:
            assert await fetched(connection) == CONTENT[:size]

    run(answer, scenario, PemFiles(tmp_path_factory.mktemp("tls")) if has_tls else None)


@pytest.mark.parametrize(
    ("size", "last"),
    [(100, 1), (WAKE_BYTES_MAX + WAKE_BYTES_WORTH, 1), (2 * WAKE_BYTES_MAX, 3_000)],
)
def test_an_answer_in_pieces_comes_whole(size: int, last: int) -> None:
    """Also where the rest is less than the kernel was to wait for."""

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        frame = frame_of(correlation_id, size)
        for start, end in ((0, 3), (3, 4), (4, 9), (9, -last), (-last, None)):
            writer.write(frame[start:end])
            await writer.drain()
            await asyncio.sleep(0)

    async def scenario(connection: LeaderConnection) -> None:
        for _ in range(3):
            assert await fetched(connection) == CONTENT[:size]

    run(answer, scenario)


@pytest.mark.parametrize("sent", [b"", b"\x00\x00\x10\x00half"])
def test_a_leader_that_does_not_answer_is_given_up(sent: bytes) -> None:
    async def answer(_: int, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    async def scenario(connection: LeaderConnection) -> None:
        with pytest.raises(TimeoutError):
            await fetched(connection, 0.01)
        with pytest.raises(TimeoutError):
            await fetched(connection)

    run(answer, scenario)


def test_a_deadline_counts_from_its_own_request() -> None:
    """One timer serves many: it is set by an earlier request, and looks at the present one."""
    asked, may_answer, ends = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await may_answer.wait()
        if not ends.is_set():
            writer.write(frame_of(correlation_id, 1))

    async def scenario(connection: LeaderConnection) -> None:
        assert isinstance(connection, LeaderStream)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(fetched(connection))
            await asked.wait()
            connection._expire()
            may_answer.set()
        assert waiting.result() == CONTENT[:1]
        ends.set()
        with pytest.raises(TimeoutError):
            await fetched(connection, 0.01)

    run(answer, scenario)


WRONG: dict[str, Callable[[int], bytes]] = {
    "closed": lambda number: b"",
    "no size": lambda number: bytes(4),
    "too large": lambda number: struct.pack(">i", ANSWER_BYTES_MAX + 1),
    "of another request": lambda number: frame_of(number + 1, 5),
    "followed by bytes": lambda number: frame_of(number, 5) + b"\x00",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_answer_that_cannot_be_breaks_the_connection(wrong: str) -> None:
    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(WRONG[wrong](correlation_id))
        await writer.drain()
        if wrong == "closed":
            writer.close()

    async def scenario(connection: LeaderConnection) -> None:
        with pytest.raises(ConnectionError):
            await fetched(connection)

    run(answer, scenario)


def test_bytes_between_answers_leave_the_last_one_alone() -> None:
    sent = asyncio.Event()

    async def answer(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(frame_of(correlation_id, 5))
        await writer.drain()
        await sent.wait()
        writer.write(b"more")

    async def scenario(connection: LeaderConnection) -> None:
        assert isinstance(connection, LeaderStream)
        response = await connection.fetch(request(), PATIENCE_S)
        records = response.topics[0].partitions[0].records
        sent.set()
        await until(lambda: connection._lost is not None)
        assert records is not None
        assert bytes(records) == CONTENT[:5]
        with pytest.raises(ConnectionError):
            await fetched(connection)

    run(answer, scenario)


def test_whoever_waits_for_an_answer_can_be_cancelled() -> None:
    async def answer(_: int, writer: asyncio.StreamWriter) -> None:
        await writer.drain()

    async def scenario(connection: LeaderConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(fetched(connection))
            await asyncio.sleep(0)
            waiting.cancel()
        assert waiting.cancelled()

    run(answer, scenario)


@pytest.mark.parametrize("host", ["broker..local", f"{'b' * 64}.local"])
def test_a_name_that_no_host_can_have_is_an_error_of_the_connection(host: str) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionError, match="which is no host name"):
            await LeaderStream.open(
                Endpoint("INTERNAL", host, 1, PLAINTEXT),
                client_id="test",
                answer_bytes_max=ANSWER_BYTES_MAX,
                timeout_s=PATIENCE_S,
            )

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


Place = tuple[int, int, int, str, tuple[str, int]]
"""Address of a name: family, type, protocol, canonical name, host and port."""


class LoopOfPlaces(uvloop.Loop):
    """Loop for which the name "leader" has these addresses."""

    places: Sequence[Place] = ()

    async def getaddrinfo(self, host: Any, *args: Any, **options: Any) -> Any:
        if host == "leader":
            return list(self.places)
        return await super().getaddrinfo(host, *args, **options)


def at(port: int, family: int = socket.AF_INET) -> Place:
    return family, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)


async def open_at(*places: Place) -> LeaderStream:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LoopOfPlaces)
    loop.places = places
    return await LeaderStream.open(
        Endpoint("INTERNAL", "leader", 1, PLAINTEXT),
        client_id="test",
        answer_bytes_max=ANSWER_BYTES_MAX,
        timeout_s=PATIENCE_S,
    )


@pytest.mark.parametrize("family", [socket.AF_INET, 9_999], ids=["refused", "no such family"])
def test_the_next_address_of_a_name_is_tried(family: int) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as leader, socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            wrong = at(silent.getsockname()[1], family)
            async with patience():
                connection = await open_at(wrong, at(leader.getsockname()[1]))
            connection.close()

    with asyncio.Runner(loop_factory=LoopOfPlaces) as runner:
        runner.run(main())


def test_a_name_without_an_address_that_answers_is_an_error_of_the_connection() -> None:
    async def main() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            port = silent.getsockname()[1]
            for places in ((at(port), at(port)), ()):
                with pytest.raises(OSError, match=r"Connect call failed|no address"):
                    await open_at(*places)

    with asyncio.Runner(loop_factory=LoopOfPlaces) as runner:
        runner.run(main())
