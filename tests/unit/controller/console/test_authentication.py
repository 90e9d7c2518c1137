"""What a caller without a session gets: the login for a reader, 401 for a program."""

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from controller.login.authentication import Authentication
from tidemark.runtime.ops_http import Receive, Scope, Send

HOST = "console.example:8443"
BROWSER = {"host": HOST, "accept": "text/html,application/xhtml+xml"}
PAGE = "/create-topic?like=a%2Fb"


def answer(method: str, path: str, headers: dict[str, str]) -> tuple[int, str | None]:
    """Return the status, and the page to which the login leads back."""
    messages: list[MutableMapping[str, Any]] = []

    async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("who has no session reaches nothing")

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    logins: Any = SimpleNamespace(
        required=True,
        challenges=["Basic"],
        cookie_name="tidemark",
        of_cookie=lambda _: None,
        of_certificate=lambda *_: None,
    )
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    place = urlsplit(path)
    scope = {
        "type": "http",
        "method": method,
        "path": place.path,
        "raw_path": place.path.encode(),
        "query_string": place.query.encode(),
        "headers": [*pairs, (b"cookie", b"tidemark=over")],
    }
    asyncio.run(Authentication(nobody, logins)(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    login = urlsplit(found.get("location", ""))
    assert login.path in ("", "/login")
    return messages[0]["status"], parse_qs(login.query).get("back", [None])[0]


@pytest.mark.feature("SE12")
def test_a_page_leads_to_the_login_and_back() -> None:
    assert answer("GET", PAGE, BROWSER) == (303, PAGE)
    assert answer("GET", "/parts/lag", {**BROWSER, "x-part": "1"}) == (401, None)


@pytest.mark.feature("SE12")
@pytest.mark.parametrize(
    ("referer", "back"),
    [
        (f"https://{HOST}{PAGE}", PAGE),
        (f"https://{HOST}", "/"),
        ("https://evil.example/create-topic", "/"),
        (f"https://{HOST}.evil.example/x", "/"),
        ("https://[", "/"),
        ("", "/"),
    ],
)
def test_a_form_that_is_sent_too_late_leads_to_the_login_and_back(referer: str, back: str) -> None:
    assert answer("POST", "/create-topic", {**BROWSER, "referer": referer}) == (303, back)


@pytest.mark.feature("SE12")
def test_a_program_gets_401_whatever_it_sends() -> None:
    program = {"host": HOST, "accept": "*/*"}
    assert answer("POST", "/create-topic", program) == (401, None)
    for method in ("GET", "POST"):
        assert answer(method, "/v3/clusters", BROWSER) == (401, None)
