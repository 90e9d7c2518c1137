"""HTTP server for operators, in the service's own event loop: /metrics /livez /readyz /loglevel
/stacks.

``HttpServer`` runs any ASGI application in that way. It installs no signal handlers, writes no log
of its own, and reports a port in use with the key to change.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import uvicorn
from prometheus_client.registry import CollectorRegistry
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.exposition import content_type, slices
from tidemark.runtime.service_config import HostPort
from tidemark.runtime.stacks import stacks
from tidemark.runtime.telemetry import levels, set_level
from tidemark.runtime.tls import ServerTls

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Health = Callable[[], str | None]
"""Returns None if all is well, otherwise the reason for an operator."""
Refresh = Callable[[], Awaitable[None]]
"""Called before metrics are read: brings up to date what a scrape alone needs."""

SSL_OBJECT: Final = "tidemark.ssl_object"
"""Key of a scope: the TLS connection of the request, for its certificate; None without TLS."""
_BODY_BYTES_MAX: Final = 1_024
_BACKLOG: Final = 128
_CONNECTIONS_MAX: Final = 256
_HEAD_S = 10.0
"""Time for the head of a request, from its first byte or from the begin of the connection."""
_BODY_S = 30.0
"""Time for the body of a request, from its head."""
_KEEP_ALIVE_S = 30
"""Time from an answer until the next request has arrived."""
_PLAIN: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


class AddressTakenError(Exception):
    """The address of a listener is not available. The message names the key to change."""

    exit_code = ExitCode.UNAVAILABLE


def bind_listener(address: HostPort, key: str) -> socket.socket:
    """Return a bound, non-blocking TCP socket; port 0 means any free port.

    Raises AddressTakenError, which names ``key``, the setting to change.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio disables Nagle's delay (40 ms per response) only for sockets that name a protocol.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.settimeout(0)
    except OSError as error:
        sock.close()
        raise _taken(address, key, error) from None
    return sock


def _taken(address: HostPort, key: str, error: OSError) -> AddressTakenError:
    return AddressTakenError(
        f"cannot listen at {address}: {error.strerror}; stop what listens there, or change {key}"
    )


class _QuietServer(uvicorn.Server):
    """uvicorn without signal handlers and without its tick ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()
        self.stopping = asyncio.Event()
        self.failure: OSError | None = None
        """Reason why it does not listen."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to ``run_service``."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and set ``serving``: requests are answered from then on, without a ``failure``."""
        try:
            await super().startup(sockets)
        except OSError as error:
            self.failure = error
            self.should_exit = True
        self.serving.set()

    async def main_loop(self) -> None:
        """Wait for ``stopping``."""
        await self.stopping.wait()


class _Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Connection that is closed if a request does not arrive in time, first its head, then its
    body: connections are bounded, and slow ones would keep others out without a login.
    """

    _late: asyncio.TimerHandle | None = None
    _is_in_body = False
    """True if ``_late`` is about a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait(_HEAD_S, in_body=False)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, perhaps a part of a head or of a body."""
        if self._is_between_requests() and self._late is None:
            self._wait(_HEAD_S, in_body=False)
        super().data_received(data)
        if self._is_between_requests():
            return
        if not self.cycle.more_body:
            self._stop_waiting()
        elif not self._is_in_body:
            self._wait(_BODY_S, in_body=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self, seconds: float, *, in_body: bool) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(seconds, self.transport.abort)
        self._is_in_body = in_body

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late, self._is_in_body = None, False


class _TlsProtocol(_Protocol):
    """Connection with TLS: applications find it in the scope of each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to serve a connection, whose handshake is over."""
        super().connection_made(transport)
        application: Application = self.app  # type: ignore[has-type]
        connection = transport.get_extra_info("ssl_object")

        async def with_connection(scope: Scope, receive: Receive, send: Send) -> None:
            scope[SSL_OBJECT] = connection
            await application(scope, receive, send)

        self.app = with_connection


class HttpServer:
    """An ASGI application on one listener. An async context manager: exit stops the server."""

    def __init__(
        self,
        application: Application,
        listen: str,
        *,
        key: str,
        drain_seconds: int = 2,
        tls: ServerTls | None = None,
    ) -> None:
        """``tls``: serve https; its files are read again when they have changed."""
        self._application = application
        self._listen = HostPort.parse(listen)
        self._key = key
        self._drain_seconds = drain_seconds
        self._tls = tls
        self._tasks = asyncio.TaskGroup()
        self._server: _QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address = self._listen

    @property
    def address(self) -> HostPort:
        """Address of the listener. A port given as 0 is known once the server has started."""
        return self._address

    async def __aenter__(self) -> "HttpServer":
        """Start; return once requests are answered. Raises AddressTakenError."""
        self._server = _QuietServer(self._config())
        with ExitStack() as unless_started:
            sock = unless_started.enter_context(bind_listener(self._listen, self._key))
            host, port = sock.getsockname()[:2]
            self._address = HostPort(host, port)
            await self._tasks.__aenter__()
            serving = self._server.serve(sockets=[sock])
            self._serving = self._tasks.create_task(serving, name=f"http-{self._key}")
            try:
                await self._server.serving.wait()
                if self._server.failure is not None:
                    # Another process has bound the address at the same time, and listened first.
                    raise _taken(self._address, self._key, self._server.failure)
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
            unless_started.pop_all()
        return self

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._application,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            backlog=_BACKLOG,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=self._drain_seconds,
            **self._with_tls(),
        )

    def _with_tls(self) -> dict[str, Any]:
        if self._tls is None:
            return {"http": _Protocol}
        context: ssl.SSLContext = self._tls.context
        return {"ssl_context_factory": lambda *_: context, "http": _TlsProtocol}

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None, "stopped before it was started"
        assert self._serving is not None, "started in one step with the server"
        self._server.should_exit = True
        self._server.stopping.set()
        # An exception of the body is not the server's: stop in order, and let the exception pass.
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            await asyncio.wait([self._serving])
        finally:
            await self._tasks.__aexit__(*((kind, error, traceback) if cancelled else (None,) * 3))


async def _nothing() -> None:
    """Refresh nothing."""


class _Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


class OpsApplication:
    """The ASGI application of ``OpsServer``. It is plain: a broker carries no web framework."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        ready: Health,
        live: Health,
        started: Health = lambda: None,
        refresh: Refresh = _nothing,
    ) -> None:
        self._registry = registry
        self._ready = ready
        self._live = live
        self._started = started
        self._refresh = refresh

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", f"only HTTP is served here, not {scope['type']}"
        if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
            await self._send_metrics(scope, send)
            return
        answer = await self._answer(scope, receive)
        headers = [
            (b"content-type", answer.content_type.encode()),
            (b"content-length", str(len(answer.body)).encode()),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> _Answer:
        path, method = scope["path"], scope["method"]
        if path == "/loglevel" and method == "PUT":
            return await self._put_log_level(scope, receive)
        readers: dict[str, Callable[[Scope], _Answer]] = {
            "/livez": lambda _: _health(self._live()),
            "/readyz": lambda _: _health(self._ready()),
            "/startupz": lambda _: _health(self._started()),
            "/loglevel": lambda _: _log_levels(),
            "/stacks": lambda _: _Answer(200, _PLAIN, stacks().encode()),
        }
        if path not in (*readers, "/metrics"):
            return _text(404, f"{path} does not exist; there are /metrics, {', '.join(readers)}")
        if method not in ("GET", "HEAD"):
            return _text(405, f"{method} {path} is not possible")
        return readers[path](scope)

    async def _send_metrics(self, scope: Scope, send: Send) -> None:
        """Send all metrics in slices; other work of the loop is done between them."""
        accept = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"accept"), "")
        wanted = content_type(accept)
        headers = [(b"content-type", wanted.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] != "HEAD":
            await self._refresh()
            for part in slices(self._registry, wanted):
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async def _put_log_level(self, scope: Scope, receive: Receive) -> _Answer:
        """Set a level. The body is ``DEBUG`` or ``{"level": "DEBUG", "logger": "broker.shell"}``;
        the logger may also be given as ?logger=.
        """
        body = await _read_body(receive)
        if body is None:
            return _text(413, f"a body may have at most {_BODY_BYTES_MAX} bytes")
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        logger = query.get("logger", [""])[0]
        try:
            text = body.decode().strip()
            wanted = json.loads(text) if text.startswith(("{", '"')) else text
            if isinstance(wanted, dict):
                logger, wanted = str(wanted.get("logger", logger)), wanted.get("level", "")
            set_level(str(wanted), logger)
        except ValueError as error:
            return _text(400, str(error))
        return _log_levels()


class OpsServer(HttpServer):
    """Server of /metrics /livez /readyz /startupz /loglevel /stacks for one service.

    ``ready`` returns the reason why the service cannot do its work yet, ``live`` the reason why it
    must be restarted, ``started`` what its start still does; None if there is none. ``refresh`` is
    awaited before metrics are read.
    """

    def __init__(
        self,
        listen: str,
        registry: CollectorRegistry,
        *,
        ready: Health,
        live: Health = lambda: None,
        started: Health = lambda: None,
        refresh: Refresh = _nothing,
    ) -> None:
        application = OpsApplication(
            registry, ready=ready, live=live, started=started, refresh=refresh
        )
        super().__init__(application, listen, key="ops.listen")


def _text(status: int, text: str) -> _Answer:
    return _Answer(status, _PLAIN, f"{text}\n".encode())


def _health(problem: str | None) -> _Answer:
    return _text(200, "ok") if problem is None else _text(503, problem)


def _log_levels() -> _Answer:
    found = levels()
    body = {"level": found.pop(""), "loggers": found}
    return _Answer(200, _JSON, json.dumps(body).encode() + b"\n")


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it is larger than _BODY_BYTES_MAX."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            return bytes(body)
        body += part.get("body", b"")
        if len(body) > _BODY_BYTES_MAX:
            return None
        if not part.get("more_body", False):
            return bytes(body)
