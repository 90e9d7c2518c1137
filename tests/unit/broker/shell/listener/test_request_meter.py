"""Time of requests that wait: that of their steps."""

import asyncio
from collections.abc import Mapping
from typing import NoReturn

import pytest
from broker.shell.listener.replies import Reply
from broker.shell.listener.request_meter import RequestMeter, TimedWork
from broker.shell.request_context import RequestContext
from broker.shell.request_times import RequestTimes
from broker.shell.throttling import Throttling
from manual_clock import ManualClock
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.model.authorization import Requester
from tidemark.model.quotas import DEFAULT, REQUEST_PERCENTAGE, QuotaEntity

ALICE = RequestContext(Requester("User:alice", ""), "app", 1, 0, "CLIENT", "peer", "request-1")


class Muted:
    """Connection of a reply, as far as these use it."""

    def __init__(self, times: RequestTimes) -> None:
        self.peer = self.listener_name = ""
        self.began_s, self.frame_bytes, self.times = 0.0, 0, times
        self.unhandled: Reply | None = None
        self.muted_ms = 0

    def mute(self, throttle_ms: int) -> None:
        self.muted_ms += throttle_ms

    def replied(self, reply: Reply) -> None: ...

    def close(self, reason: str) -> None: ...


def ask(clock: ManualClock, api_key: ApiKey, *, fails: bool = False) -> tuple[object, int]:
    """Let a handler work for 105 ms and wait for 400. Return the throttle time of its answer, and
    the time for which the connection is muted.
    """
    quotas = Throttling(clock)
    quotas.configure({QuotaEntity(DEFAULT): {REQUEST_PERCENTAGE: 1.0}})
    connection = Muted(RequestTimes(clock))
    reply = Reply(connection, RequestHeader(int(api_key), 0, 1, None, 0))

    async def work() -> Mapping[str, object]:
        clock.advance(100)
        asyncio.get_running_loop().call_soon(clock.advance, 400)
        await asyncio.sleep(0)
        clock.advance(5)
        if fails:
            raise LookupError
        return {"throttle_time": 20}

    answered = RequestMeter(quotas, clock.precise_s).answer(work(), int(api_key), ALICE, reply)
    try:
        return asyncio.run(_whole(answered)).get("throttle_time"), connection.muted_ms
    except LookupError:
        return None, connection.muted_ms


async def _whole(work: object) -> Mapping[str, object]:
    return await work  # type: ignore[misc, no-any-return]


def test_waits_are_not_counted() -> None:
    assert ask(ManualClock(), ApiKey.DESCRIBE_CLUSTER) == (500, 500)


def test_a_failure_is_counted_too() -> None:
    assert ask(ManualClock(), ApiKey.DESCRIBE_CLUSTER, fails=True) == (None, 500)


def test_logins_are_exempt() -> None:
    assert ask(ManualClock(), ApiKey.SASL_AUTHENTICATE) == (20, 0)


def test_cancellation_reaches_the_work() -> None:
    seen: list[str] = []

    async def work() -> NoReturn:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        raise AssertionError

    async def scenario() -> None:
        async with asyncio.timeout(0):
            await TimedWork(work(), ManualClock().precise_s)

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    assert seen == ["cancelled"]
