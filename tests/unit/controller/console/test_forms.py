"""Forms come from pages of the console only, and their bodies are bounded."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from controller.console.forms import BODY_BYTES_MAX, BadFormError, Form, check_origin, read_form
from starlette.requests import Request


def request(headers: dict[str, str], body: bytes = b"") -> Request:
    raw = [(key.encode(), value.encode()) for key, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": raw}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "origin": "http://here:80", "host": "here:80"},
        {"sec-fetch-site": "same-site", "host": "here:80"},
        {"sec-fetch-site": "none", "host": "here:80"},
        {"origin": "http://there", "host": "here:80"},
        {"origin": "null", "host": "here:80"},
        {"host": "here:80"},
    ],
)
def test_a_form_of_another_site_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadFormError, match="not sent by a page"):
        check_origin(request(headers))


@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-site": "same-origin"}, {"origin": "http://here:80", "host": "here:80"}],
)
def test_a_form_of_this_console_is_taken(headers: dict[str, str]) -> None:
    check_origin(request(headers))


def test_a_form_is_read_and_bounded() -> None:
    form = asyncio.run(read_form(request({}, b"a=1&a=2&b=gr%C3%BC%C3%9F")))
    assert (form.values("a"), form.text("b"), form.integer("a")) == (["1", "2"], "grüß", 2)
    with pytest.raises(BadFormError, match="at most"):
        asyncio.run(read_form(request({}, b"x" * (BODY_BYTES_MAX + 1))))
    with pytest.raises(BadFormError, match="cannot be read"):
        asyncio.run(read_form(request({}, b"a=%ff")))


@pytest.mark.parametrize(
    ("text", "bits"), [("9" * 19, 64), (str(-(2**63) - 1), 64), ("2147483648", 32)]
)
def test_a_number_that_no_field_can_hold_is_refused(text: str, bits: int) -> None:
    with pytest.raises(BadFormError, match="is out of bounds"):
        Form([("offset", text)]).integer("offset", bits=bits)
    assert Form([("offset", str(2**63 - 1))]).integer("offset") == 2**63 - 1
