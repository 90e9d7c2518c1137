"""RequestMeter: counts the time that clients' requests take on the event loop (KIP-124).

The router passes requests here while somebody has such a quota, and not otherwise. The time of a
request that waits is that of its steps; what others do meanwhile is not counted.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import cache
from typing import Any, Final, Generic, TypeVar

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.long_tail import response_fields

from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Reply
from broker.shell.request_context import RequestContext
from broker.shell.throttling import Throttling

THROTTLE_TIME: Final = "throttle_time"
EXEMPT: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Requests without a throttle time: as in Kafka they are not counted."""

T = TypeVar("T")


class TimedWork(Generic[T]):
    """Awaitable that measures the steps of another one; ``used_s`` is their sum."""

    def __init__(self, work: Awaitable[T], now_s: Callable[[], float]) -> None:
        self._work = work
        self._now_s = now_s
        self.used_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass on what the work waits for, and what it gets."""
        steps: Generator[Any, Any, T] = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            began_s = self._now_s()
            try:
                awaited = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.used_s += self._now_s() - began_s
            thrown = None
            try:
                yield awaited
            except BaseException as failure:  # noqa: BLE001 - it is the work's, cancellation too
                thrown = failure


class RequestMeter:
    """Meter of all connections of a broker."""

    def __init__(self, quotas: Throttling, now_s: Callable[[], float]) -> None:
        self._quotas = quotas
        self._now_s = now_s

    def handle(
        self,
        hot: Callable[[Connection, RequestHeader, memoryview], None],
        connection: Connection,
        header: RequestHeader,
        body: memoryview,
    ) -> None:
        """Have a hot handler work. Its answer, if it gives one now, has the throttle time."""
        quotas = self._quotas
        quotas.handling_since_s = began_s = connection.began_s
        try:
            hot(connection, header, body)
        finally:
            quotas.handling_since_s = 0.0
            principal, took_s = connection.requester.principal, self._now_s() - began_s
            connection.mute(quotas.requested(principal, header.client_id, took_s))

    async def answer(
        self,
        work: Awaitable[Mapping[str, object]],
        api_key: int,
        context: RequestContext,
        at: Reply,
    ) -> Mapping[str, object]:
        """Return the answer of a handler of the long tail, with the throttle time."""
        timed = TimedWork(work, self._now_s)
        throttle_ms = 0
        try:
            answer = await timed
        finally:
            if api_key not in EXEMPT:
                throttle_ms = self._charge(context, at.handling_s + timed.used_s)
                at.mute_for(throttle_ms)  # a failure has no throttle time, but is muted too
        if throttle_ms and _tells(api_key):
            already = answer.get(THROTTLE_TIME, 0)
            assert isinstance(already, int)
            return {**answer, THROTTLE_TIME: max(throttle_ms, already)}
        return answer

    def _charge(self, context: RequestContext, seconds: float) -> int:
        return self._quotas.requested(context.requester.principal, context.client_id, seconds)


@cache
def _tells(api_key: int) -> bool:
    """True if the answers of an API have a throttle time."""
    return THROTTLE_TIME in response_fields(api_key)
