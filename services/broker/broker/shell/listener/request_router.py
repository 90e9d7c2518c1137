"""RequestRouter: calls the handler of each API: hot ones inline, the long tail as tasks over
decoded requests.

The router reads the header and refuses versions that are not served; it does not look at records. A
request that cannot be read closes the connection, as in Kafka. A handler that fails unexpectedly
answers UNKNOWN_SERVER_ERROR and is logged.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from tidemark.kafka.apis import APIS, INTERNAL_APIS, ApiKey
from tidemark.kafka.error_responses import error_response
from tidemark.kafka.headers import MalformedRequestError, RequestHeader
from tidemark.kafka.long_tail import Struct, read_request, write_response
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.telemetry import fields, new_request_id, request_scope

from broker.shell.counters import BrokerCounters
from broker.shell.listener import old_produce
from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Reply
from broker.shell.listener.request_meter import RequestMeter
from broker.shell.request_context import RequestContext
from broker.shell.request_times import Origin
from broker.shell.throttling import Throttling

log = logging.getLogger(__name__)

Handler = Callable[[Struct, RequestContext], Awaitable[Mapping[str, object]]]
"""Handler of the long tail: from a decoded request to the fields of its response."""

HotHandler = Callable[[Connection, RequestHeader, memoryview], None]
"""Handler of a hot API: answers through the connection, now or later. The body is valid only until
it returns.
"""

_VERSIONS: Final = {int(key): (one.served_min, one.max) for key, one in APIS.items()}
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_OLD_PRODUCE_MAX: Final = APIS[ApiKey.PRODUCE].served_min - 1


def context_of(connection: Connection, header: RequestHeader) -> RequestContext:
    """Return the context of one request."""
    return RequestContext(
        connection.requester,
        header.client_id,
        header.correlation_id,
        header.api_version,
        connection.listener.name,
        connection.peer,
        new_request_id(),
        connection.software,
    )


def names_error(answer: Mapping[str, object]) -> bool:
    """True if an answer of the long tail has an error, of the whole request or of a part of it."""
    if answer.get("error_code"):
        return True
    for value in answer.values():
        parts = value if isinstance(value, list) else (value,)
        if any(isinstance(part, dict) and names_error(part) for part in parts):
            return True
    return False


class _Asked(NamedTuple):
    """Request of the long tail under way; its body is kept for a typed error answer."""

    header: RequestHeader
    body: bytes
    reply: Reply
    context: RequestContext


class RequestRouter:
    """Table from API to handler, for all listeners of a broker."""

    def __init__(
        self,
        counters: BrokerCounters,
        hot: Mapping[ApiKey, HotHandler],
        long_tail: Mapping[ApiKey, Handler],
        quotas: Throttling,
    ) -> None:
        self._counters = counters
        self._hot: dict[int, HotHandler] = {int(key): handler for key, handler in hot.items()}
        self._long_tail: dict[int, Handler] = {int(key): one for key, one in long_tail.items()}
        self._requests = counters.requests
        self._times = counters.times
        self._quotas = quotas
        self._meter = RequestMeter(quotas, counters.times.now_s)
        both = self._hot.keys() & self._long_tail.keys()
        assert not both, f"two handlers for one API: {both}"

    def served(self) -> list[ApiKey]:
        """Return the APIs that have a handler and are for clients, in order: those that ApiVersions
        may name.
        """
        keys = self._hot.keys() | self._long_tail.keys()
        return [key for key in ApiKey if int(key) in keys and key not in INTERNAL_APIS]

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Pass one frame to its handler. Never raises for a client's mistake."""
        try:
            header = connection.headers.read(frame)
            api_key, version = header.api_key, header.api_version
            served = _VERSIONS.get(api_key)
            if served is None or not served[0] <= version <= served[1]:
                self._refuse_version(connection, header, frame)
                return
            self._requests[api_key] += 1
            times = self._times
            began_s = connection.began_s = times.now_s()
            connection.frame_bytes = len(frame)
            hot = self._hot.get(api_key)
            if hot is not None:
                if self._quotas.limits_requests:
                    hot = partial(self._meter.handle, hot)
                hot(connection, header, frame[header.body_position :])
                waits = connection.unhandled
                if waits is not None:
                    waits.handled_s = times.now_s()
                    connection.unhandled = None
                elif connection.began_s == began_s:  # it was not put back
                    slow_s = times.answered(header, began_s, connection)
                    if slow_s:
                        origin = Origin(connection.peer, connection.listener_name, len(frame))
                        times.keep(header, origin, slow_s)
                return
            handler = self._long_tail.get(api_key)
            if handler is None:
                self._refuse_version(connection, header, frame)
                return
            body = bytes(frame[header.body_position :])
            request = read_request(api_key, version, memoryview(body))
        except MalformedRequestError as problem:
            self._counters.malformed_requests += 1
            connection.close(str(problem))
            return
        reply = connection.later(header)
        reply.handled_s = times.now_s()
        connection.unhandled = None
        context = context_of(connection, header)
        connection.start(self._run(handler, request, _Asked(header, body, reply, context)))

    async def _run(
        self,
        handler: Handler,
        request: Struct,
        asked: "_Asked",
    ) -> None:
        """Run one request of the long tail, from values to answer. Its failure does not affect
        other requests.
        """
        header, _, reply, context = asked
        with request_scope(context.request_id):
            try:
                body = await self._answer(handler, request, asked)
            except TidemarkError as failure:
                self._fail(asked, failure.code)
                return
            except Exception:
                log.exception(
                    "handler failed: internal error",
                    extra=fields(api=ApiKey(header.api_key).name, version=header.api_version),
                )
                self._fail(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
                return
        reply.send([body])

    async def _answer(self, handler: Handler, request: Struct, asked: "_Asked") -> bytes:
        """Return the answer of a handler. Raises TidemarkError."""
        header, _, reply, context = asked
        work = handler(request, context)
        if self._quotas.limits_requests:
            work = self._meter.answer(work, header.api_key, context, reply)
        answer = await work
        self._counters.request_errors[header.api_key] += names_error(answer)
        reply.mute(answer)
        return write_response(header.api_key, header.api_version, answer)

    def _fail(self, asked: "_Asked", code: ErrorCode) -> None:
        header, request_body, reply, _ = asked
        self._counters.request_errors[header.api_key] += 1
        body = error_response(
            header.api_key, header.api_version, memoryview(request_body), int(code)
        )
        if body is None:
            reply.close()
        else:
            reply.send([body])

    def _refuse_version(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> None:
        """Answer UNSUPPORTED_VERSION if the API's answer has a place for it, otherwise close the
        connection.
        """
        if header.api_key == _API_VERSIONS and _API_VERSIONS in self._hot:
            self._hot[_API_VERSIONS](connection, header, frame[:0])
            return
        body = None
        if header.api_key == _PRODUCE and 0 <= header.api_version <= _OLD_PRODUCE_MAX:
            body = old_produce.refuse(frame[header.body_position :], header.api_version)
        else:
            body = error_response(
                header.api_key,
                header.api_version,
                frame[header.body_position :],
                int(ErrorCode.UNSUPPORTED_VERSION),
            )
        if body is None:
            connection.close("unsupported API or version")
        else:
            connection.answer(header, body)
