"""GatedServer: the sockets of a listener whose clients log in. A connection whose address has
failed too often waits before its TLS handshake, as a socket that nobody reads from.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tidemark.runtime.telemetry import fields

from broker.shell.counters import LoginCounters
from broker.shell.listener.connection import Connection
from broker.shell.listener.login_turns import LoginTurn, LoginTurns, NoTurnError

log = logging.getLogger(__name__)

ACCEPT_AGAIN_S: Final = 1.0
"""Time after which a socket is accepted again that could not be, for want of descriptors."""

Serve = Callable[[socket.socket, LoginTurn], Coroutine[Any, Any, None]]


class GatedServer:
    """Stands in for asyncio.Server, which begins the handshake of every connection at once."""

    def __init__(
        self,
        turns: LoginTurns,
        serve: Serve,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        *,
        wait_max_ms: int,
        counts: LoginCounters,
    ) -> None:
        """``serve`` makes the connection of an accepted socket; ``start`` runs tasks."""
        self._turns = turns
        self._serve = serve
        self._start = start
        self._wait_max_ms = wait_max_ms
        self._counts = counts
        self.sockets: list[socket.socket] = []
        self._is_serving = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int, backlog: int) -> None:
        """Bind every address of ``host``. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                one = socket.create_server(address, family=family, backlog=backlog)
                one.settimeout(0)
                self.sockets.append(one)
        except OSError:
            self.close()
            raise

    async def start_serving(self) -> None:
        """Accept connections."""
        self._is_serving = True
        for one in self.sockets:
            self._run(self._accept_all(one))

    def close(self) -> None:
        """Stop accepting connections, and close those that wait."""
        if not self._is_serving:
            for one in self.sockets:
                one.close()
        for task in tuple(self._tasks):
            task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._start(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        # Closed here, not by ``close``: the loop watches it until this task has ended.
        with listening:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except ConnectionError:  # the client has given up
                    continue
                except OSError as error:
                    log.error("accept failed", extra=fields(reason=error.strerror or str(error)))
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                self._run(self._admit(accepted, str(peer[0])))

    async def _admit(self, accepted: socket.socket, address: str) -> None:
        """Serve a connection when it is its turn."""
        try:
            turn = await self._turns.take(address, self._wait_max_ms, self._counts)
        except NoTurnError:
            accepted.close()
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        await self._serve(accepted, turn)


async def connect(accepted: socket.socket, connection: Connection, tls: dict[str, Any]) -> bool:
    """Make an accepted socket the transport of ``connection``, after the TLS handshake. Return
    False if that fails.
    """
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: connection, accepted, **tls)
    except OSError:
        accepted.close()
        return False
    except asyncio.CancelledError:
        accepted.close()
        raise
    return True
