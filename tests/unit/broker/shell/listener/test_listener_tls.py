"""A Kafka listener with TLS, over real sockets: requests, large answers, refusals, new files."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from broker.listener_address import Listener
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from tidemark.kafka.headers import read_response_header, request_header
from tidemark.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    read_produce_response,
    write_produce_request,
)
from tidemark.model.metadata import SSL
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.tls import ClientAuth, ServerTls, TlsSettings, client_context
from unit.broker.shell.conftest import LOGINS_BURST, LOGINS_RATE_S, MakeNode, make_listener
from unit.pem_files import PemFiles
from waiting import PATIENCE_S, patience

VALUE = bytes(range(256)) * 4_000
"""A megabyte: several pieces, and more than a transport wants to hold."""
BATCHES = 4
BATCH = build_batch([(1_700_000_000_000, None, VALUE, ())])
PRODUCE = (ApiKey.PRODUCE, 9)
FETCH = (ApiKey.FETCH, 12)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> PemFiles:
    return PemFiles(tmp_path_factory.mktemp("tls"))


class Client:
    """One connection: a request and its answer at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, api: tuple[ApiKey, int], body: bytes) -> memoryview:
        self.send(api, body)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        answer = memoryview(await self.reader.readexactly(size))
        _, position = read_response_header(answer, *api)
        return answer[position:]

    def send(self, api: tuple[ApiKey, int], body: bytes) -> None:
        frame = request_header(*api, 7, "test") + body
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def produce(self) -> int:
        partition = ProducePartition(0, memoryview(BATCH))
        request = ProduceRequest(None, 1, 1_000, [ProduceTopic("orders", bytes(16), [partition])])
        answer = await self.ask(PRODUCE, write_produce_request(PRODUCE[1], request))
        return read_produce_response(answer, PRODUCE[1]).topics[0][2][0].error_code

    async def fetch(self) -> bytes:
        answer = await self.ask(FETCH, fetch_all())
        records = read_fetch_response(answer, FETCH[1]).topics[0].partitions[0].records
        return b"" if records is None else bytes(records)


def fetch_all() -> bytes:
    bytes_max = 16 << 20
    topic = FetchTopic("orders", bytes(16), [FetchPartition(0, -1, 0, -1, -1, bytes_max)])
    return write_fetch_request(
        FETCH[1],
        FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            wait_ms_max=0,
            bytes_min=1,
            bytes_max=bytes_max,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[topic],
            forgotten=[],
            rack_id="",
            cluster_id=None,
        ),
    )


Connect = Callable[[ssl.SSLContext | None], Awaitable[Client]]
Serve = Callable[[TlsSettings, Callable[[Connect], Awaitable[None]]], None]


@pytest.fixture
def serve(make_node: MakeNode) -> Iterator[Serve]:
    """Runs a scenario against a listener with TLS that is drained at the end."""
    threads = ThreadPoolExecutor(1)

    async def run(settings: TlsSettings, scenario: Callable[[Connect], Awaitable[None]]) -> None:
        parts = make_node({})
        where = Listener("SECURE", "127.0.0.1", 0, SSL)
        listener = make_listener(parts, parts.router(), where, threads, ServerTls(settings))
        await listener.open()
        clients: list[Client] = []

        async def connect(context: ssl.SSLContext | None) -> Client:
            streams = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
            clients.append(Client(*streams))
            return clients[-1]

        stop, now = asyncio.Event(), asyncio.Event()
        now.set()
        async with patience(), asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run(now, stop, drain_s=PATIENCE_S))
            await listener.serving.wait()
            try:
                await scenario(connect)
            finally:
                stop.set()
                for client in clients:
                    client.writer.close()

    def serve(settings: TlsSettings, scenario: Callable[[Connect], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run(settings, scenario))

    yield serve
    threads.shutdown()


def test_large_requests_and_answers_come_whole(serve: Serve, files: PemFiles) -> None:
    async def scenario(connect: Connect) -> None:
        client = await connect(client_context(files.identity))
        assert [await client.produce() for _ in range(BATCHES)] == [0] * BATCHES
        stored = await client.fetch()
        assert [header.base_offset for _, header in iterate_headers(stored)] == [0, 1, 2, 3]
        assert stored.count(VALUE) == BATCHES

    serve(files.identity, scenario)


def test_a_client_that_reads_late_gets_all_of_several_answers(
    serve: Serve, files: PemFiles
) -> None:
    async def scenario(connect: Connect) -> None:
        client = await connect(client_context(files.identity))
        await client.produce()
        for _ in range(8):
            client.send(FETCH, fetch_all())
        await asyncio.sleep(0.05)
        for _ in range(8):
            (size,) = struct.unpack(">i", await client.reader.readexactly(4))
            assert VALUE in await client.reader.readexactly(size)

    serve(files.identity, scenario)


def test_plain_text_is_not_answered(serve: Serve, files: PemFiles) -> None:
    async def scenario(connect: Connect) -> None:
        client = await connect(None)
        client.send(FETCH, fetch_all())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.reader.readexactly(16)

    serve(files.identity, scenario)


@pytest.mark.feature("SE05")
def test_slow_handshake_a_client_that_does_not_begin_it_is_disconnected(
    serve: Serve, files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.shell.listener.listener.TLS_HANDSHAKE_S", 0.1)

    async def scenario(connect: Connect) -> None:
        silent = await connect(None)
        with contextlib.suppress(ConnectionError):
            assert await silent.reader.read() == b""

    serve(files.identity, scenario)


@pytest.mark.feature("SE31")
def test_an_address_with_broken_handshakes_waits_before_the_next(
    serve: Serve, files: PemFiles
) -> None:
    async def scenario(connect: Connect) -> None:
        for _ in range(LOGINS_BURST):
            stranger = await connect(None)
            stranger.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await stranger.reader.read()
        began_s = asyncio.get_running_loop().time()
        client = await connect(client_context(files.identity))
        assert await client.produce() == 0
        assert asyncio.get_running_loop().time() - began_s > 0.4 / LOGINS_RATE_S

    serve(files.identity, scenario)


def test_who_shows_no_certificate_is_refused_where_one_is_required(
    serve: Serve, files: PemFiles
) -> None:
    async def scenario(connect: Connect) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await (await connect(client_context(files.trust))).produce()
        assert await (await connect(client_context(files.identity))).produce() == 0

    serve(files.identity._replace(client_auth=ClientAuth.REQUIRED), scenario)


def test_a_frame_of_impossible_size_closes_the_connection(serve: Serve, files: PemFiles) -> None:
    async def scenario(connect: Connect) -> None:
        client = await connect(client_context(files.identity))
        client.writer.write(b"\x7f\xff\xff\xff" + bytes(1 << 20))
        assert await client.reader.read() == b""

    serve(files.identity, scenario)
