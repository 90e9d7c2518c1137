"""Authentication: the ASGI application that answers callers who have proved who they are.

The requester is put into the scope of a request. Without ``rest.authentication.mechanisms``
everybody is User:ANONYMOUS.
"""

import asyncio
import json
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from tidemark.model.authorization import ANONYMOUS, Requester
from tidemark.runtime.access.header_logins import RefusedLoginError, TooManyLoginsError
from tidemark.runtime.ops_http import SSL_OBJECT, Application, Receive, Scope, Send

from controller.admin.errors import FORBIDDEN, TOO_MANY
from controller.login.logins import RestLogins

REQUESTER: Final = "tidemark.requester"
"""Key of a scope: the Requester."""
SESSION: Final = "tidemark.session"
"""Key of a scope: what the tokens of the caller's forms are made of; '' if nobody has to log in."""
UNAUTHENTICATED: Final = 40101
OPEN_PATHS: Final = frozenset(("/livez", "/readyz", "/login"))
"""Paths that are served to everybody: probes have no password."""
_OPEN_PREFIX: Final = "/static/"
_FOR_PROGRAMS: Final = frozenset(("/openapi.json", "/v3", "/metrics", "/stacks", "/loglevel"))
_REST_PREFIX: Final = "/v3/"
_OTHER_SITE: Final = "a page of another site may not change anything here"
_REMEDY: Final = "send the header Authorization, or a certificate"


def requester_of(scope: Scope) -> Requester:
    """Return the requester of a request."""
    found = scope.get(REQUESTER)
    assert isinstance(found, Requester), "Authentication is in front"
    return found


class Authentication:
    """In front of REST and the console."""

    def __init__(self, application: Application, logins: RestLogins) -> None:
        self._application = application
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        host = str((scope.get("client") or ("unknown", 0))[0])
        path, logins = scope["path"], self._logins
        scope[REQUESTER], scope[SESSION] = Requester(ANONYMOUS, host), ""
        if _is_for_programs(scope) and _is_of_another_site(scope):
            await _answer(send, 403, FORBIDDEN, _OTHER_SITE, "use a program, or the console", {})
            return
        if logins.required and path not in OPEN_PATHS and not path.startswith(_OPEN_PREFIX):
            try:
                principal = await self._principal(scope, host)
            except RefusedLoginError as refusal:
                logins.count_failure(refusal, host)
                await asyncio.sleep(logins.delay_s)
                await self._refuse(scope, send, "the credentials do not fit")
                return
            except TooManyLoginsError as flood:
                await _answer(send, 429, TOO_MANY, str(flood), "wait a second", {})
                return
            if principal is None:
                await self._refuse(scope, send, "who you are has to be proved")
                return
            scope[REQUESTER] = Requester(principal, host)
        await self._application(scope, receive, send)

    async def _principal(self, scope: Scope, host: str) -> str | None:
        """Return the caller's principal; None if it shows nothing. Raises RefusedLoginError,
        TooManyLoginsError.
        """
        headers = _headers(scope)
        logins = self._logins
        if "authorization" in headers:
            principal = await logins.of_header(headers["authorization"], host)
            scope[SESSION] = principal
            return principal
        if not _is_for_programs(scope):
            cookie = _cookie(headers.get("cookie", ""), logins.cookie_name)
            if cookie and (user := logins.of_cookie(cookie)) is not None:
                scope[SESSION] = cookie
                return user
        principal_or_none = logins.of_certificate(scope.get(SSL_OBJECT), host)
        scope[SESSION] = principal_or_none or ""
        return principal_or_none

    async def _refuse(self, scope: Scope, send: Send, words: str) -> None:
        """Lead a reader of the console to the login, and answer programs with 401."""
        back = None if _is_for_programs(scope) else _page_of(scope, _headers(scope))
        if back is not None:
            place = f"/login?{urlencode({'back': back})}"
            headers = [(b"location", place.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 303, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        # A browser asks for a password if a page has a challenge.
        challenges = self._logins.challenges if _is_for_programs(scope) else []
        await _answer(send, 401, UNAUTHENTICATED, words, _REMEDY, {"www-authenticate": challenges})


def _is_for_programs(scope: Scope) -> bool:
    """True for the paths that take no session: no page of another site can use one there."""
    path: str = scope["path"]
    return path in _FOR_PROGRAMS or path.startswith(_REST_PREFIX)


def _page_of(scope: Scope, headers: Mapping[str, str]) -> str | None:
    """Return the page to which a login leads a reader back: the one that was asked for, or that
    whose form was sent; None if no browser shows the answer.
    """
    if "x-part" in headers:
        return None
    if scope["method"] in ("GET", "HEAD"):
        query = scope.get("query_string", b"").decode("latin-1")
        raw: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        return raw.partition("?")[0] + (f"?{query}" if query else "")
    if "text/html" not in headers.get("accept", ""):
        return None
    site, _, page = headers.get("referer", "").partition("://")[2].partition("/")
    return f"/{page}" if site == headers.get("host") else "/"


def _is_of_another_site(scope: Scope) -> bool:
    """True for a change that a page of another site makes: its browser adds the certificate, and
    the password that it remembers. Programs send none of these headers.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False  # the page cannot read the answer
    headers = _headers(scope)
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


async def _answer(
    send: Send,
    status: int,
    error_code: int,
    message: str,
    remedy: str,
    more: Mapping[str, list[str]],
) -> None:
    content: dict[str, Any] = {"error_code": error_code, "message": message, "remedy": remedy}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *((name.encode(), one.encode()) for name, values in more.items() for one in values),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
