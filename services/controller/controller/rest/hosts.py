"""Names under which a controller answers HTTP: the Host header of a request has to be one of them.

A page of another site can make its own name resolve to this controller's address (DNS rebinding),
and its scripts then count as those of the console. The browser still sends the site's name as Host.
An IP address cannot be rebound, so any is allowed.
"""

import ipaddress
import json
import re
from collections.abc import Iterable
from typing import Final

from tidemark.runtime.ops_http import Application, Receive, Scope, Send
from tidemark.runtime.service_config import HostPort

from controller.config import ControllerConfig

ANY: Final = "*"
_LOCAL: Final = "localhost"
_HEADER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s\[\]:/@,]{1,253})(?::\d{0,5})?")
_SHOWN_CHARS: Final = 80
MALFORMED: Final = 40001
MISDIRECTED: Final = 42101


class HostError(Exception):
    """Answer to a request whose Host is not allowed."""

    def __init__(self, status: int, error_code: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.remedy = remedy


class AllowedHosts:
    """Names of this controller, without port and case. A name that begins with a dot stands for all
    names that end with it; ``*`` for any. Pure.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(_plain(name) for name in names)

    def check(self, header: str | None) -> None:
        """Raise HostError unless the name of a Host header is allowed."""
        match = _HEADER.fullmatch(header or "")
        if match is None:
            raise HostError(
                400,
                MALFORMED,
                f"Host: {(header or '')[:_SHOWN_CHARS]!r} is not host or host:port",
                "send the Host header that the URL has",
            )
        name = _plain(match[1])
        if ANY in self._names or name in self._names or _is_own(name):
            return
        if any(one.startswith(".") and name.endswith(one) for one in self._names):
            return
        raise HostError(
            421,
            MISDIRECTED,
            f"this controller is not known as {name[:_SHOWN_CHARS]!r}",
            "use its IP address or localhost, or add the name to rest.allowed.hosts",
        )


def allowed_hosts(config: ControllerConfig) -> AllowedHosts:
    """Return the names that the options give: rest.allowed.hosts, and those of the addresses."""
    addresses = [text for text in (config.rest_listen, config.grpc_advertised) if text]
    own = [HostPort.parse(text).host for text in addresses]
    return AllowedHosts([*config.rest_allowed_hosts, *own])


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")


def _is_own(name: str) -> bool:
    """True for localhost, which no DNS server resolves for a browser, and for IP addresses."""
    if name == _LOCAL or name.endswith("." + _LOCAL):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """ASGI application that answers requests with an allowed Host, and refuses others. Paths for
    programs (``open_paths``), as probes use them, are answered under any name.
    """

    def __init__(
        self, application: Application, hosts: AllowedHosts, open_paths: frozenset[str]
    ) -> None:
        self._application = application
        self._hosts = hosts
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            found = [value for name, value in scope["headers"] if name == b"host"]
            try:
                self._hosts.check(found[0].decode("latin-1") if len(found) == 1 else None)
            except HostError as refusal:
                await _answer(send, refusal, is_rest=scope["path"].startswith("/v3"))
                return
        await self._application(scope, receive, send)


async def _answer(send: Send, refusal: HostError, *, is_rest: bool) -> None:
    if is_rest:
        content = {
            "error_code": refusal.error_code,
            "message": refusal.message,
            "field": "Host",
            "remedy": refusal.remedy,
        }
        kind, body = b"application/json", json.dumps(content).encode()
    else:
        kind = b"text/plain; charset=utf-8"
        body = f"{refusal.message}\n{refusal.remedy}\n".encode()
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
