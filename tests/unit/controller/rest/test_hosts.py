"""Host headers: the names of a controller, against DNS rebinding."""

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from controller.config import ControllerConfig
from controller.rest.hosts import AllowedHosts, HostCheck, HostError, allowed_hosts

NAMED = AllowedHosts(["Admin.example.org", ".svc.cluster.local", "::1"])


@pytest.mark.feature("AD42")
@pytest.mark.parametrize(
    "header",
    [
        "localhost", "LOCALHOST:8080", "tidemark.localhost:8080", "127.0.0.1:8080", "10.1.2.3",
        "[::1]:8080", "[fe80::1]", "admin.example.org:8080", "ADMIN.example.org.",
        "rest.log.svc.cluster.local", "localhost:",
    ],
)  # fmt: skip
def test_addresses_localhost_and_named_hosts_are_allowed(header: str) -> None:
    NAMED.check(header)


@pytest.mark.feature("AD42")
@pytest.mark.parametrize(
    "header",
    [
        "evil.example", "evil.example:8080", "example.org", "xadmin.example.org",
        "127.0.0.1.nip.io", "localhost.evil.example",
        "notlocalhost", "0x7f.1", "2130706433", "svc.cluster.local",
    ],
)  # fmt: skip
def test_another_name_is_misdirected(header: str) -> None:
    with pytest.raises(HostError, match="is not known as") as refusal:
        NAMED.check(header)
    assert (refusal.value.status, refusal.value.error_code) == (421, 42101)
    assert "rest.allowed.hosts" in refusal.value.remedy


@pytest.mark.parametrize(
    "header",
    [None, "", " ", "a b", "localhost/", "evil@localhost", "localhost:80:80", "localhost:x",
     "[::1", "localhost,evil.example"],
)  # fmt: skip
def test_a_header_that_is_no_host_is_refused(header: str | None) -> None:
    with pytest.raises(HostError) as refusal:
        NAMED.check(header)
    assert refusal.value.status == 400


def test_a_star_allows_any_name() -> None:
    AllowedHosts(["*"]).check("evil.example")


def test_the_names_of_its_addresses_are_allowed() -> None:
    config = ControllerConfig.model_construct(
        rest_listen="front.example:8080",
        grpc_advertised="controller-1.example:9093",
        rest_allowed_hosts=("proxy.example",),
    )
    for header in ("front.example", "controller-1.example:8080", "proxy.example"):
        allowed_hosts(config).check(header)


def answer(path: str, *hosts: bytes) -> tuple[int, bytes]:
    """Answer of an application that is behind the check, and answers 200."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the body is not read")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})

    scope = {"type": "http", "path": path, "headers": [(b"host", host) for host in hosts]}
    asyncio.run(HostCheck(inner, NAMED, frozenset({"/livez"}))(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize("path", ["/", "/v3/clusters", "/openapi.json"])
def test_nothing_is_answered_under_another_name(path: str) -> None:
    assert answer(path, b"localhost") == (200, b"inside")
    status, body = answer(path, b"evil.example")
    assert status == 421
    assert b"inside" not in body
    assert answer(path)[0] == answer(path, b"localhost", b"evil.example")[0] == 400


def test_a_refusal_of_rest_has_its_shape() -> None:
    found = json.loads(answer("/v3/clusters", b"evil.example")[1])
    assert (found["error_code"], found["field"]) == (42101, "Host")


def test_probes_are_answered_under_any_name() -> None:
    assert answer("/livez", b"evil.example") == (200, b"inside")
