"""Connections of a listener with SASL and TLS, up to the end of their login, over real sockets."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from broker.core.login import Exchange, LoginRules
from broker.listener_address import SASL_SSL, Listener
from broker.shell.listener.sasl_router import LoginLimits, SaslRouter
from tidemark.protocol.audit import no_note
from tidemark.runtime.event_loop import new_event_loop
from tidemark.runtime.tls import ServerTls, client_context
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener
from unit.pem_files import PemFiles
from waiting import PATIENCE_S, patience

STRANGERS = 5


def no_exchange(mechanism: str) -> Exchange:
    raise AssertionError(f"nobody begins {mechanism}")


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)


@pytest.mark.feature("SE31")
def test_connections_that_end_before_their_login_are_forgotten(tmp_path: Path) -> None:
    """Those whose handshake breaks, and those that are closed after it."""
    files = PemFiles(tmp_path)

    async def scenario() -> None:
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
                for context in (None, client_context(files.identity)) * STRANGERS:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", listener.port, ssl=context
                    )
                    await until(lambda: bool(listener._logging_in))
                    if context is None:
                        writer.write(b"GET / HTTP/1.1\r\n\r\n")
                        with contextlib.suppress(ConnectionError):
                            await reader.read()
                    writer.close()
                    await until(lambda: not listener._logging_in)
                stop.set()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(scenario())
