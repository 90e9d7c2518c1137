"""ASGI middleware of REST: undecoded paths, and the bounds of body, rate and concurrency."""

import json
import re
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.exceptions import HTTPException
from tidemark.runtime.access.buckets import Buckets
from tidemark.runtime.clock import Clock
from tidemark.runtime.ops_http import Application, Receive, Scope, Send

from controller.admin.errors import TOO_MANY
from controller.config import ControllerConfig

Message = MutableMapping[str, Any]

_EVENTS: Final = re.compile("/v3/clusters/[^/]+/events")
"""Path of event streams, which have a bound of their own (rest.streams.max)."""


class Limits:
    """Middleware. Paths are matched undecoded, so that a name may contain a slash."""

    def __init__(self, application: Application, config: ControllerConfig, clock: Clock) -> None:
        self._application = application
        self._body_bytes_max = config.rest_body_bytes_max
        self._requests_max = config.rest_requests_max
        self._buckets = Buckets(config.rest_rate_per_second)
        self._clock = clock
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        # By the decoded path, as requests come here: it may be sent as /%763.
        if scope["type"] != "http" or not scope["path"].startswith("/v3"):
            await self._application(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = scope["path"] = raw.partition(b"?")[0].decode("latin-1")
        client = (scope.get("client") or ("unknown", 0))[0]
        if not self._buckets.take(client, self._clock.now_ms()):
            await _refuse(send, 429, TOO_MANY, f"{client} sends more requests than allowed")
            return
        if scope["method"] == "GET" and _EVENTS.fullmatch(path):
            await self._application(scope, self._bounded(scope, receive), send)
            return
        if self._running >= self._requests_max:
            await _refuse(send, 429, TOO_MANY, f"{self._running} requests are under way")
            return
        self._running += 1
        try:
            await self._application(scope, self._bounded(scope, receive), send)
        finally:
            self._running -= 1

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return ``receive`` with a bound: by the declared length before anything is read."""
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        size = int(declared) if declared.isdigit() else 0

        async def bounded() -> Message:
            nonlocal size
            if size > self._body_bytes_max:
                raise self._too_large()
            message = await receive()
            if not declared.isdigit() or declared == b"0":
                size += len(message.get("body", b""))
            if size > self._body_bytes_max:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> HTTPException:
        """Return the error that FastAPI lets through while it reads a body."""
        return HTTPException(413, f"a body may have at most {self._body_bytes_max} bytes")


async def _refuse(send: Send, status: int, error_code: int, message: str) -> None:
    content = {"error_code": error_code, "message": message, "remedy": "send less at a time"}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
