"""Token buckets of clients, and the middleware that bounds requests."""

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

import pytest
from controller.config import ControllerConfig
from controller.rest.limits import Limits
from starlette.exceptions import HTTPException
from tidemark.runtime.access.buckets import Buckets
from tidemark.runtime.clock import Clock
from tidemark.runtime.ops_http import Receive, Scope, Send

Message = MutableMapping[str, Any]


def test_a_client_has_its_rate_and_no_more() -> None:
    buckets = Buckets(10)
    assert [buckets.take("a", 0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [buckets.take("a", 250) for _ in range(3)] == [True, True, False]


def test_one_client_does_not_use_up_the_rate_of_another() -> None:
    buckets = Buckets(1)
    assert [buckets.take(client, 0) for client in "aab"] == [True, False, True]


def test_the_client_that_was_idle_the_longest_is_forgotten_first() -> None:
    buckets = Buckets(1, clients_max=2)
    for client in "abab":
        buckets.take(client, 0)
    buckets.take("c", 0)
    assert [buckets.take(client, 0) for client in "bc"] == [False, False]
    assert buckets.take("a", 0)


# -- the middleware


class Served:
    """Application that reads a body, or stands for an event stream."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.release = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        if scope["path"].endswith("/events"):
            await self.release.wait()
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def limits_of(served: Served, **settings: int) -> Limits:
    named: dict[str, Any] = {f"rest_{name}": value for name, value in settings.items()}
    return Limits(served, ControllerConfig(controller_id=1, **named), Clock())


async def ask(limits: Limits, raw_path: str, *, parts: int = 1, method: str = "GET") -> int:
    """Return the status of a request with a body of 1,000 bytes a part."""
    statuses: list[int] = []
    left = parts

    async def receive() -> Message:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": b"x" * 1_000, "more_body": left > 0}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "headers": [],
        "client": ("10.0.0.1", 1),
    }
    try:
        await limits(scope, receive, send)
    except HTTPException as refused:
        return refused.status_code
    return statuses[0]


@pytest.mark.parametrize("prefix", ["/v3", "/%763", "/%76%33"])
def test_every_spelling_of_a_path_has_the_bounds(prefix: str) -> None:
    async def scenario() -> None:
        limits = limits_of(Served(), body_bytes_max=4_096, rate_per_second=2)
        assert await ask(limits, f"{prefix}/clusters", parts=50) == 413
        assert await ask(limits, f"{prefix}/clusters") == 200
        assert await ask(limits, f"{prefix}/clusters") == 429

    asyncio.run(scenario())


def test_a_name_in_a_path_stays_encoded_and_its_slash_is_no_separator() -> None:
    served = Served()
    asyncio.run(ask(limits_of(served), "/v3/clusters/c/topics/a%2Fb"))
    assert served.paths == ["/v3/clusters/c/topics/a%2Fb"]


def test_event_streams_leave_room_for_requests() -> None:
    async def scenario() -> None:
        served = Served()
        limits = limits_of(served, requests_max=2)
        path = "/v3/clusters/c/events"
        async with asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(ask(limits, path)) for _ in range(3)]
            await asyncio.sleep(0)
            assert await ask(limits, "/v3/clusters/c/topics") == 200
            served.release.set()
        assert [one.result() for one in streams] == [200] * 3

    asyncio.run(scenario())


def test_a_topic_named_events_is_no_event_stream() -> None:
    async def scenario() -> None:
        served = Served()
        limits = limits_of(served, requests_max=1)
        path = "/v3/clusters/c/topics/events"
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(ask(limits, path))
            await asyncio.sleep(0)
            assert await ask(limits, path) == 429
            served.release.set()
        assert first.result() == 200

    asyncio.run(scenario())
