"""The console as an ASGI application: routes, static files, headers, and pages for errors."""

import logging
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from tidemark.model.authorization import Operation, Requester
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
from controller.login.authentication import OPEN_PATHS, requester_of
from controller.login.logins import RestLogins

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
    """All pages. ``admin`` returns the context of a requester; ``ops`` answers OPS_PATHS."""

    def __init__(
        self, admin: Callable[[Requester], AdminContext], ops: Application, logins: RestLogins
    ) -> None:
        self._admin = admin
        self._ops = ops
        self._logins = logins
        self._static = StaticFiles()
        self._environment = make_environment(self._static)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        if scope["path"] in OPS_PATHS:
            refusal = self._ops_refusal(request)
            if refusal is None:
                await self._ops(scope, receive, send)
            else:
                await refusal(scope, receive, send)
            return
        response = await self._answer(request)
        for name, value in _SECURITY.items():
            response.headers[name] = value
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    def _ops_refusal(self, request: Request) -> Response | None:
        """Return the answer to a caller that may not use a path for operators."""
        if request.scope["path"] in OPEN_PATHS:
            return None
        wanted = Operation.ALTER_CONFIGS if request.method == "PUT" else Operation.DESCRIBE
        try:
            self._admin(requester_of(request.scope)).require(wanted)
        except AdminError as problem:
            return PlainTextResponse(f"{problem.message}\n", problem.status)
        return None

    async def _answer(self, request: Request) -> Response:
        path = raw_path(request.scope)
        parts = path.split("/")
        if len(parts) == 4 and parts[1] == "static":
            answer = self._static.answer(request, parts[2], parts[3])
            if answer is not None:
                return answer
        requester = requester_of(request.scope)
        visit = Visit(request, lambda: self._admin(requester), self._environment, self._logins)
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
            form = await read_form(visit.request)
            visit.check_form(form)
            return await route.change(visit, form, *names)
        words = f"{method} is not possible here."
        return self._error(visit, 405, "Not possible", words)

    def _error(self, visit: Visit, status: int, title: str, words: str) -> Response:
        """Return a page about an error. Parts of a page get a short text instead."""
        template = "error_part.html" if visit.is_part else "error.html"
        return visit.page(template, status=status, title=title, words=words)
