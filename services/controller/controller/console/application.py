"""The console as an ASGI application: routes, static files, headers, and pages for errors."""

import logging
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from tidemark.runtime.ops_http import Application, Receive, Scope, Send
from tidemark.runtime.telemetry import fields

from controller.admin.context import AdminContext
from controller.admin.errors import AdminError
from controller.console.forms import BadFormError, check_origin, read_form
from controller.console.render import make_environment
from controller.console.routes import ROUTES
from controller.console.routing import Found, find, raw_path
from controller.console.static_files import StaticFiles
from controller.console.visit import NotFoundError, Visit

log = logging.getLogger(__name__)

OPS_PATHS: Final = frozenset(("/metrics", "/livez", "/readyz", "/loglevel", "/stacks"))
"""Paths for programs, which the console passes on."""
_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_READING: Final = ("GET", "HEAD")
_TITLES: Final = {404: "Not found", 403: "Not allowed", 503: "Not available now"}


class Console:
    """All pages. ``admin`` returns the context of one request; ``ops`` answers OPS_PATHS."""

    def __init__(self, admin: Callable[[], AdminContext], ops: Application) -> None:
        self._admin = admin
        self._ops = ops
        self._static = StaticFiles()
        self._environment = make_environment(self._static)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] in OPS_PATHS:
            await self._ops(scope, receive, send)
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        for name, value in _SECURITY.items():
            response.headers[name] = value
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = raw_path(request.scope)
        parts = path.split("/")
        if len(parts) == 4 and parts[1] == "static":
            answer = self._static.answer(request, parts[2], parts[3])
            if answer is not None:
                return answer
        visit = Visit(request, self._admin, self._environment)
        found = find(ROUTES, path)
        if found is None:
            return self._error(
                visit, 404, "There is no such page", f"{path} is not a page of the console."
            )
        try:
            return await self._run(visit, found)
        except NotFoundError as missing:
            return self._error(visit, 404, "Not found", str(missing))
        except AdminError as problem:
            title = _TITLES.get(problem.status, "The request was refused")
            return self._error(visit, problem.status, title, problem.message)
        except BadFormError as bad:
            return self._error(visit, bad.status, "The form was refused", str(bad))
        except Exception as bug:
            log.exception("page failed", extra=fields(path=path))
            words = f"{type(bug).__name__}: {bug}"
            return self._error(visit, 500, "This page failed", words)

    async def _run(self, visit: Visit, found: Found) -> Response:
        method, (route, names) = visit.request.method, found
        if method in _READING and route.show is not None:
            return await route.show(visit, *names)
        if method == "POST" and route.change is not None:
            check_origin(visit.request)
            return await route.change(visit, await read_form(visit.request), *names)
        words = f"{method} is not possible here."
        return self._error(visit, 405, "Not possible", words)

    def _error(self, visit: Visit, status: int, title: str, words: str) -> Response:
        """Return a page about an error. Parts of a page get a short text instead."""
        template = "error_part.html" if visit.is_part else "error.html"
        return visit.page(template, status=status, title=title, words=words)
