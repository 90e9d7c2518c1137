"""Connections of a listener with SASL and TLS, up to the end of their login, over real sockets."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broker.core.login import Exchange, LoginRules
from broker.listener_address import SASL_SSL, Listener
from broker.shell.listener.listener import KafkaListener
from broker.shell.listener.sasl_router import LoginLimits, SaslRouter
from tidemark.model.quotas import CONNECTION_CREATION_RATE, QuotaEntity
from tidemark.protocol.audit import no_note
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.tls import ServerTls, client_context
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import LOGINS_BURST, make_listener
from unit.pem_files import PemFiles
from waiting import PATIENCE_S, patience

STRANGERS = 5


def no_exchange(mechanism: str) -> Exchange:
    raise AssertionError(f"nobody begins {mechanism}")


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)


def run(files: PemFiles, scenario: Callable[[KafkaListener, BrokerParts], Awaitable[None]]) -> None:
    """Run a scenario against a listener with SASL and TLS, on which nobody can log in."""

    async def serve() -> None:
        parts = World().parts
        rules = LoginRules(("PLAIN",), deadline_ms=60_000, lifetime_ms=0, begin=no_exchange)
        router = SaslRouter(
            parts.router(),
            rules,
            LoginLimits.of(parts.facts.config),
            parts.facts.clock,
            parts.counters,
            listener="SAFE",
            note_login=no_note,
        )
        where = Listener("SAFE", "127.0.0.1", 0, SASL_SSL)
        tls = ServerTls(files.identity)
        with ThreadPoolExecutor(1) as threads:
            listener = make_listener(parts, router, where, threads, tls)
            await listener.open()
            stop, now = asyncio.Event(), asyncio.Event()
            now.set()
            async with patience(), asyncio.TaskGroup() as tasks:
                tasks.create_task(listener.run(now, stop, drain_s=PATIENCE_S))
                await listener.serving.wait()
                await scenario(listener, parts)
                stop.set()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


@pytest.mark.feature("SE31")
def test_connections_that_end_before_their_login_are_forgotten(tmp_path: Path) -> None:
    """Those whose handshake breaks, and those that are closed after it."""
    files = PemFiles(tmp_path)

    async def scenario(listener: KafkaListener, _: BrokerParts) -> None:
        for context in (None, client_context(files.identity)) * STRANGERS:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
            await until(lambda: bool(listener._logging_in))
            if context is None:
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()
            await until(lambda: not listener._logging_in)

    run(files, scenario)


@pytest.mark.feature("SE20")
def test_connections_beyond_the_rate_of_their_address_cost_no_handshake_and_no_login(
    tmp_path: Path,
) -> None:
    files = PemFiles(tmp_path)

    async def scenario(listener: KafkaListener, parts: BrokerParts) -> None:
        quotas = parts.facts.quotas
        quotas.configure({QuotaEntity(ip="127.0.0.1"): {CONNECTION_CREATION_RATE: 20.0}})
        while not quotas.connected("127.0.0.1"):
            pass
        counts = parts.counters
        for _ in range(LOGINS_BURST + 1):
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await asyncio.open_connection(
                    "127.0.0.1", listener.port, ssl=client_context(files.identity)
                )
        assert counts.connections_refused == LOGINS_BURST + 1
        assert counts.connections_total == counts.logins_of("SAFE").delayed == 0
        quotas.configure({})
        _, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=client_context(files.identity)
        )
        await until(lambda: counts.connections_total == 1)
        writer.close()

    run(files, scenario)
