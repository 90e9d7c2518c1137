"""KafkaListener: one named listening address, its connections, and the tasks of their slow
handlers.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from tidemark.model.authorization import ANONYMOUS, MEMBER, PROCESS, Requester
from tidemark.model.metadata import INTERNAL_LISTENER, SSL
from tidemark.protocol.audit import Login, NoteLogin, no_note
from tidemark.protocol.principal_mapping import NoPrincipalError, PrincipalMapper
from tidemark.runtime.access.certificates import principal_of
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.send_queue import SendQueue
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.tls import ServerTls
from tidemark.runtime.transport_queue import TransportQueue
from tidemark.storage.disk import DiskError, File

from broker.config import BrokerConfig
from broker.core.parked import Parked
from broker.listener_address import Listener
from broker.shell.counters import BrokerCounters
from broker.shell.listener.connection import Connection
from broker.shell.listener.connection_host import HandlesFrames
from broker.shell.listener.gated_server import GatedServer, connect
from broker.shell.listener.late_frames import is_late
from broker.shell.listener.limits import ConnectionLimits
from broker.shell.listener.login_turns import LoginTurn, LoginTurns
from broker.shell.listener.sasl_router import SaslRouter
from broker.shell.throttling import Throttling

log = logging.getLogger(__name__)

SWEEP_MS = 5_000
BACKLOG = 1_024
TLS_HANDSHAKE_S = 10
TLS_SHUTDOWN_S = 5
"""Time that a client may take for the handshake and for the close of TLS; then it is
disconnected.
"""


class KafkaListener:
    """One named listener. ``run`` holds it open; ``stop`` drains it."""

    def __init__(
        self,
        listener: Listener,
        router: HandlesFrames[Connection],
        cold_readers: Executor,
        *,
        config: BrokerConfig,
        limits: ConnectionLimits,
        counters: BrokerCounters,
        parked: Parked,
        on_unreadable: Callable[[File, DiskError], None],
        on_gone: Callable[[Connection], None],
        quotas: Throttling,
        turns: LoginTurns,
        note_login: NoteLogin = no_note,
        tls: ServerTls | None = None,
    ) -> None:
        """``on_unreadable`` is called for a file that could not be read while it was being sent,
        ``on_gone`` for a connection that was lost.
        ``tls`` where the listener's security protocol has TLS. A ``router`` that is a SaslRouter
        authenticates clients, who take their ``turns``.
        """
        self.router = router
        self.limits = limits
        self.counters = counters
        self.parked = parked
        self._on_gone = on_gone
        self._quotas = quotas
        self._note_login = note_login
        self._turns = turns
        self._logging_in: dict[Connection, LoginTurn] = {}
        self.name = listener.name
        is_internal = listener.name == INTERNAL_LISTENER
        self.stranger = MEMBER if is_internal else Requester(ANONYMOUS, "")
        self.cold_readers = cold_readers
        self.frame_bytes_max = config.socket_request_max_bytes
        self.queued_bytes_max = config.connection_queued_max_bytes
        self.requests_in_flight_max = config.requests_in_flight_max
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._listener = listener
        self._config = config
        self._on_unreadable = on_unreadable
        self._tls = tls
        self._mapper: PrincipalMapper | None = None
        self._processes = config.process_principals
        if listener.security_protocol == SSL:
            rules = config.security_of(listener.name).ssl_principal_mapping_rules
            self._mapper = PrincipalMapper(rules)
        self._sasl = router if isinstance(router, SaslRouter) else None
        self._server: asyncio.Server | GatedServer | None = None
        self._connections: dict[Connection, int] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._quiet: asyncio.Event = asyncio.Event()
        self.serving = asyncio.Event()
        """Set once connections are accepted."""

    @property
    def port(self) -> int:
        """Bound port: with port 0 available once the listener is open."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def open(self) -> None:
        """Bind; connections wait in the backlog until ``accept``. Raises ServiceError if the
        address is taken.
        """
        try:
            self._server = await self._bound()
        except OSError as error:
            raise ServiceError(
                f"listener {self.name} cannot listen at {self._listener.host}:"
                f"{self._listener.port}:"
                f" {error.strerror or error}; stop what listens there, or change listeners",
                ExitCode.UNAVAILABLE,
            ) from None

    async def _bound(self) -> asyncio.Server | GatedServer:
        host, port = self._listener.host, self._listener.port
        is_gated = self.name != INTERNAL_LISTENER and self._listener.speaks_tls
        if not is_gated and self._sasl is None:
            return await self.loop.create_server(
                lambda: Connection(self),
                host,
                port,
                backlog=BACKLOG,
                reuse_address=True,
                start_serving=False,
                **self._tls_options(),
            )
        server = GatedServer(
            self._turns,
            self._log_in,
            self._begin,
            wait_max_ms=self._config.sasl_login_deadline_ms,
            counts=self.counters.logins_of(self.name),
        )
        await server.open(host, port, BACKLOG)
        return server

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None
        return self._tasks.create_task(work)

    async def _log_in(self, accepted: socket.socket, turn: LoginTurn) -> None:
        """Make a connection, whose turn ends with its login; a broken handshake is a failed one."""
        throttle_ms = self._over_rate(turn.address)
        if throttle_ms:
            await _close_later(accepted, turn, throttle_ms)
            return
        connection = Connection(self)
        self._logging_in[connection] = turn
        try:
            is_made = await connect(accepted, connection, self._tls_options())
        except asyncio.CancelledError:
            self.login_ended(connection, failed=False)
            raise
        if not is_made or connection.closed:
            self.login_ended(connection, failed=True)
        elif self._sasl is None:
            self.login_ended(connection, failed=False)

    def login_ended(self, connection: Connection, *, failed: bool) -> None:
        """Note the outcome of a connection's first login."""
        turn = self._logging_in.pop(connection, None)
        if turn is not None:
            turn.end(failed=failed)

    def _tls_options(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls.context,
            "ssl_handshake_timeout": TLS_HANDSHAKE_S,
            "ssl_shutdown_timeout": TLS_SHUTDOWN_S,
        }

    async def run(self, accepting: asyncio.Event, stop: asyncio.Event, *, drain_s: float) -> None:
        """Serve from ``accepting`` until ``stop``, then drain for at most ``drain_s``."""
        assert self._server is not None
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            sweeper = tasks.create_task(self._sweep(), name=f"sweep-{self.name}")
            try:
                await accepting.wait()
                await self._server.start_serving()
                self.serving.set()
                log.info("listening", extra=fields(listener=self.name, port=self.port))
                await stop.wait()
                await self._drain(drain_s)
            finally:
                # A frame that still arrived would find no task group for its handler.
                self._stopping = True
                self._close_all()
                self._cancel_work()
            sweeper.cancel()

    async def _drain(self, drain_s: float) -> None:
        self._stopping = True
        assert self._server is not None
        self._server.close()
        for connection in tuple(self._connections):
            connection.stop_reading()
        self._close_idle()
        try:
            async with asyncio.timeout(drain_s):
                await self._wait_quiet()
        except TimeoutError:
            log.warning(
                "connections closed: drain deadline passed",
                extra=fields(
                    listener=self.name, count=len(self._connections), requests=len(self._work)
                ),
            )

    async def _wait_quiet(self) -> None:
        """Wait until all connections are closed and no slow handler runs."""
        self._quiet.clear()
        if self._connections:
            await self._quiet.wait()
        if self._work:  # requests without an answer: acks=0
            await asyncio.wait(self._work)

    def _cancel_work(self) -> None:
        """Cancel slow handlers whose connections are closed. They may wait for a coordinator whose
        log this broker leads.
        """
        for task in self._work:
            task.cancel()

    def _close_all(self) -> None:
        for connection in tuple(self._connections):
            connection.close("stopping")

    def _close_idle(self) -> None:
        for connection in tuple(self._connections):
            if connection.idle:
                connection.close("stopping")

    # -- connections

    def identify(self, transport: asyncio.Transport, peer: str) -> str | None:
        """Return the principal of a new connection, from its certificate with mutual TLS; None if
        it is refused.
        """
        if self._mapper is None:
            return self.stranger.principal
        host = peer.rpartition(":")[0]
        try:
            principal = principal_of(transport.get_extra_info("ssl_object"), self._mapper)
        except NoPrincipalError as problem:
            self.counters.logins_of(self.name).failed += 1
            self._note_login(Login("", host, self.name, SSL, succeeded=False, reason=str(problem)))
            log.warning(
                "login failed", extra=fields(listener=self.name, peer=peer, reason=str(problem))
            )
            return None
        if self.name == INTERNAL_LISTENER and principal in self._processes:
            return PROCESS  # never refused: the topic of the audit log needs its followers
        login = Login(principal.removeprefix("User:"), host, self.name, SSL, succeeded=True)
        if principal != ANONYMOUS and not self._note_login(login):
            return None
        return principal

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, unless a limit is reached."""
        is_internal = self.name == INTERNAL_LISTENER
        if self._stopping or not self.limits.admit(connection.address, of_member=is_internal):
            self.counters.connections_refused += 1
            return False
        self.counters.connections_total += 1
        self._connections[connection] = 0
        if not isinstance(self._server, GatedServer):  # it was counted before its handshake
            self._limit_rate(connection)
        if self._sasl is not None:
            self._sasl.admit(connection)
        return True

    def _limit_rate(self, connection: Connection) -> None:
        """Serve nothing to a connection that exceeds the rate of its address, and close it later
        (KIP-612): a client that connects again at once would only connect more often.
        """
        throttle_ms = self._over_rate(connection.address)
        if throttle_ms:
            connection.mute(2 * throttle_ms)
            self.loop.call_later(throttle_ms / 1_000, connection.close, "too many connections")

    def _over_rate(self, address: str) -> int:
        """Count a new connection. Return the time in ms after which it is to be closed, because its
        address has too many; 0: it may stay.
        """
        throttle_ms = 0 if self.name == INTERNAL_LISTENER else self._quotas.connected(address)
        if throttle_ms:
            self.counters.connections_refused += 1
        return throttle_ms

    def make_queue(
        self,
        transport: asyncio.Transport,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> SendQueue | TransportQueue:
        """Make the queue of a connection's answers. With TLS bytes go through the transport,
        otherwise past it, by sendfile. Raises OSError without a descriptor.
        """
        loop, threads = self.loop, self.cold_readers
        if transport.get_extra_info("ssl_object") is not None:
            return TransportQueue(
                loop,
                transport,
                threads,
                on_drained=on_drained,
                on_broken=on_broken,
                on_unreadable=self._unreadable,
            )
        descriptor = transport.get_extra_info("socket").fileno()
        return SendQueue(
            loop,
            descriptor,
            threads,
            on_drained=on_drained,
            on_broken=on_broken,
            on_unreadable=self._unreadable,
        )

    def _unreadable(self, file: File, failure: DiskError) -> None:
        """Report a file later, not from within the sending: the report may answer a request that is
        being woken.
        """
        self.loop.call_soon(self._on_unreadable, file, failure)

    def gone(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        del self._connections[connection]
        self.login_ended(connection, failed=True)
        self._on_gone(connection)
        self.limits.leave(connection.address)
        if not self._connections:
            self._quiet.set()

    def drained(self, connection: Connection) -> None:
        """Note that a connection has sent all its answers."""
        if self._stopping and connection.idle:
            connection.close("stopping")

    async def _sweep(self) -> None:
        """Close connections that are silent (or do not read) for too long, that have left a long
        poll behind or do not complete a frame, and take back large buffers of silent ones.
        """
        config = self._config
        sweep_ms = min(SWEEP_MS, config.connections_max_idle_ms, config.frame_deadline_ms)
        if self._sasl is not None:
            sweep_ms = min(sweep_ms, config.sasl_login_deadline_ms)
        idle_sweeps_max = max(1, config.connections_max_idle_ms // sweep_ms)
        while True:
            await asyncio.sleep(sweep_ms / 1_000)
            for connection, silent in tuple(self._connections.items()):
                if self._sasl is not None and self._sasl.is_overdue(connection):
                    self._sasl.counts.late += 1
                    connection.close("the login took too long")
                    continue
                if is_late(connection, sweep_ms, config):
                    self._close_late(connection)
                    continue
                touched = connection.touched
                if not connection.sweep():
                    self._connections[connection] = 0
                    if connection.ending and connection.is_parked and not touched:
                        connection.close("the client has ended")
                    continue
                connection.relax()
                self._connections[connection] = silent + 1
                if silent + 1 >= idle_sweeps_max:
                    self.counters.closed_idle += 1
                    connection.close("idle")

    def _close_late(self, connection: Connection) -> None:
        self.counters.closed_late_frame += 1
        log.warning(
            "connection closed: incomplete frame",
            extra=fields(listener=self.name, peer=connection.peer),
        )
        connection.close("a frame was not completed in time")

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a slow handler to its end, or to that of the drain."""
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def _close_later(accepted: socket.socket, turn: LoginTurn, throttle_ms: int) -> None:
    """Close a connection that exceeds the rate of its address. It costs no handshake, and is no
    failed login: the rate is the limit of those that may log in.
    """
    try:
        await asyncio.sleep(throttle_ms / 1_000)
    finally:
        accepted.close()
        turn.end(failed=False)
