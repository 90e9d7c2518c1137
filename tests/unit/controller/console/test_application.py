"""Paths for operators: who may use them, in front of the application that answers them."""

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

import pytest
from controller.admin.errors import AdminError, try_again
from controller.console.application import Console
from controller.login.authentication import REQUESTER
from controller.shell.audit import FULL
from tidemark.model.authorization import Requester
from tidemark.runtime.ops_http import Receive, Scope, Send


def answer(path: str, refusal: AdminError | None, *, method: str = "GET") -> int:
    """Return the status that a caller gets; ``refusal`` is raised by the check of permissions."""

    def require(*_: object) -> None:
        if refusal is not None:
            raise refusal

    async def ops(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    statuses: list[int] = []
    context: Any = SimpleNamespace(require=require)
    logins: Any = SimpleNamespace()
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [],
        REQUESTER: Requester("User:amy", "10.0.0.1"),
    }
    asyncio.run(Console(lambda _: context, ops, logins)(scope, receive, send))
    return statuses[0]


@pytest.mark.parametrize("path", ["/metrics", "/stacks", "/loglevel"])
def test_a_path_for_operators_needs_a_permission(path: str) -> None:
    assert answer(path, None) == 200
    assert answer(path, AdminError(403, 40301, "may not DESCRIBE")) == 403


@pytest.mark.parametrize("path", ["/metrics", "/stacks", "/loglevel"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_what_cannot_be_audited_is_refused_there_too(path: str, method: str) -> None:
    assert answer(path, try_again(FULL), method=method) == 503


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_need_no_permission(path: str) -> None:
    assert answer(path, try_again(FULL)) == 200
