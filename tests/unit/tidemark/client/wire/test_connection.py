"""The edges of framing and correlation that a real broker never shows: a peer of a few lines
does.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from tidemark.client.config import Address, ClientConfig
from tidemark.client.errors import (
    ConnectionLostError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tidemark.client.wire.connection import BrokerConnection
from tidemark.client.wire.connection_pool import ConnectionPool, Lane
from tidemark.kafka.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    write_api_versions_response,
)
from tidemark.kafka.apis import ApiKey
from unit.tidemark.client.clients import run_with_sockets as run
from waiting import PATIENCE_MS, until

Reply = Callable[[int, int, asyncio.StreamWriter], None]
VERSIONS = ApiVersionsResponse(0, [ApiVersion(3, 0, 13), ApiVersion(18, 0, 4)])


def answer(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


class Peer:
    """Answers ApiVersions as told, and each other request by ``reply(api key, correlation id,
    writer)``.
    """

    def __init__(self, reply: Reply, *, versions: ApiVersionsResponse = VERSIONS) -> None:
        self.reply = reply
        self.versions = versions
        self.connections = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                api_key, version, correlation_id = struct.unpack_from(">hhi", request)
                if api_key == ApiKey.API_VERSIONS:
                    answered = 0 if self.versions.error_code and version else version
                    versions = self.versions if version else VERSIONS
                    body = write_api_versions_response(answered, versions)
                    answer(writer, correlation_id, body)
                else:
                    self.reply(api_key, correlation_id, writer)
        except asyncio.IncompleteReadError:
            writer.close()
        finally:
            self.open -= 1


def with_peer(
    peer: Peer, work: Callable[[Address, ClientConfig], Awaitable[None]], **settings: int
) -> None:
    async def main() -> None:
        server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await work(Address("127.0.0.1", port), ClientConfig(**settings))  # type: ignore[arg-type]
        await until(lambda: not peer.open, "every connection is closed")

    run(main())


async def ask(connection: BrokerConnection, *, timeout_ms: int = PATIENCE_MS) -> bytes:
    return bytes(await connection.request(ApiKey.METADATA, 0, [b"body"], timeout_ms=timeout_ms))


def echo(api_key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
    answer(writer, correlation_id, b"%d" % correlation_id)


def test_requests_are_pipelined_and_answers_find_their_askers_in_any_order() -> None:
    waiting: list[int] = []

    def backwards(api_key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        waiting.append(correlation_id)
        if len(waiting) == 3:
            for number in reversed(waiting):
                echo(api_key, number, writer)

    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        assert await asyncio.gather(*(ask(connection) for _ in range(3))) == [b"1", b"2", b"3"]
        assert connection.pending_count == 0
        connection.close()

    with_peer(Peer(backwards), work)


def test_versions_are_agreed_even_with_a_broker_older_than_our_question() -> None:
    refusing = ApiVersionsResponse(35, [ApiVersion(18, 0, 0)])

    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        assert connection.version(ApiKey.METADATA) == 13
        assert connection.version(ApiKey.METADATA, version_max=9) == 9
        assert not connection.serves(ApiKey.FETCH)
        with pytest.raises(UnsupportedVersionError, match="FETCH: the broker serves no version"):
            connection.version(ApiKey.FETCH)
        connection.close()

    with_peer(Peer(echo, versions=refusing), work)


def test_an_unanswered_request_costs_the_connection_and_all_who_wait_hear_why() -> None:
    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        outcomes = await asyncio.gather(
            ask(connection, timeout_ms=30), ask(connection), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [
            RequestTimedOutError,
            ConnectionLostError,
        ]
        assert connection.is_lost
        with pytest.raises(ConnectionLostError):
            await ask(connection)

    with_peer(Peer(lambda *_: None), work)


@pytest.mark.parametrize("length", [0, 3, -1, 2**30])
def test_a_length_that_cannot_be_closes_the_connection(length: int) -> None:
    def hostile(api_key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(struct.pack(">i", length) + b"HTTP/1.1 400")

    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        with pytest.raises(ConnectionLostError, match="does not speak Kafka's protocol"):
            await ask(connection)

    with_peer(Peer(hostile), work, response_bytes_max=1_000)


def test_an_answer_nobody_asked_for_closes_the_connection() -> None:
    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        with pytest.raises(ConnectionLostError, match="unknown request"):
            await ask(connection)

    with_peer(Peer(lambda key, number, writer: answer(writer, number + 7, b"")), work)


@pytest.mark.feature("C09")
def test_a_closed_connection_fails_what_waits_and_the_pool_makes_another() -> None:
    peer = Peer(lambda key, number, writer: writer.close())

    async def work(address: Address, config: ClientConfig) -> None:
        pool = ConnectionPool(config)
        first = await pool.connection(address, Lane.CONTROL)
        with pytest.raises(ConnectionLostError):
            await ask(first)
        peer.reply = echo
        second = await pool.connection(address, Lane.CONTROL)
        assert await ask(second) == b"1"
        assert await pool.connection(address, Lane.CONTROL) is second
        pool.close()

    with_peer(peer, work)


def test_many_who_want_a_connection_share_one_and_lanes_do_not() -> None:
    peer = Peer(echo)

    async def work(address: Address, config: ClientConfig) -> None:
        pool = ConnectionPool(config)
        wanted = [pool.connection(address, Lane.PRODUCE) for _ in range(5)]
        assert len(set(await asyncio.gather(*wanted))) == 1
        await pool.connection(address, Lane.FETCH)
        assert peer.connections == 2
        pool.close()

    with_peer(peer, work)


def test_brokers_that_do_not_answer_are_asked_last_until_they_accept_a_connection() -> None:
    peer = Peer(lambda key, number, writer: None)
    nobody = Address("127.0.0.1", 1)

    async def work(address: Address, config: ClientConfig) -> None:
        pool, other = ConnectionPool(config), Address("127.0.0.1", 2)
        first = await pool.connection(address, Lane.PRODUCE)
        assert pool.answering_first([nobody, address, other]) == [nobody, address, other]
        with pytest.raises(RequestTimedOutError):
            await ask(first, timeout_ms=1)
        with pytest.raises(ConnectionLostError):
            await pool.connection(nobody, Lane.CONTROL)
        assert pool.answering_first([nobody, address, other]) == [other, nobody, address]
        await pool.connection(address, Lane.CONTROL)
        assert pool.answering_first([nobody, address, other]) == [address, other, nobody]
        pool.close()

    with_peer(peer, work)


def test_nobody_listening_is_told_with_the_address() -> None:
    async def work() -> None:
        with pytest.raises(ConnectionLostError, match=r"cannot connect.* at 127\.0\.0\.1:1"):
            await BrokerConnection.open(Address("127.0.0.1", 1), ClientConfig())

    run(work())


def test_requests_beyond_the_bound_wait_for_an_answer() -> None:
    held: list[Callable[[], None]] = []

    def hold(api_key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        held.append(lambda: echo(api_key, correlation_id, writer))
        if len(held) > 2:
            held[-1]()

    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        asked = asyncio.gather(*(ask(connection) for _ in range(3)))
        await until(lambda: len(held) == 2)
        assert connection.pending_count == 2
        for answer_held in held[:2]:
            answer_held()
        assert await asked == [b"1", b"2", b"3"]
        connection.close()

    with_peer(Peer(hold), work, pending_requests_max=2)


def test_a_cancelled_asker_frees_its_place_and_its_answer_is_dropped() -> None:
    late: list[Callable[[], None]] = []

    def keep_first(api_key: int, correlation_id: int, writer: asyncio.StreamWriter) -> None:
        if correlation_id == 1:
            late.append(lambda: echo(api_key, 1, writer))
        else:
            late[0]()
            echo(api_key, correlation_id, writer)

    async def work(address: Address, config: ClientConfig) -> None:
        connection = await BrokerConnection.open(address, config)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(ask(connection))
            await until(lambda: late)
            asking.cancel()
        assert await ask(connection) == b"2"
        connection.close()

    with_peer(Peer(keep_first), work, pending_requests_max=1)
