"""SpannedTimes: a server span for each request, with links to the traces of the records in it.

Built only where ``tracing.enable`` is set; otherwise RequestTimes itself is used. A span is made
when its request is answered, with the times of the request.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidemark.kafka.headers import RequestHeader
from tidemark.runtime.clock import Clock

from broker.shell.request_times import Origin, RequestTimes, Source, Stages, api_name

LINKED_REQUESTS_MAX: Final = 10_000
"""Requests under way whose links are kept; those beyond have spans without links."""
_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000


class Traced:
    """Topics and traces of one Produce request."""

    __slots__ = ("topics", "traceparents")

    def __init__(self, topics: Sequence[str], traceparents: Sequence[str]) -> None:
        self.topics = topics
        self.traceparents = traceparents


_NOTHING: Final = Traced((), ())


class SpannedTimes(RequestTimes):
    """Times of requests that become spans too."""

    def __init__(self, clock: Clock, tracer: Any, *, slow_ms: int, kept_max: int) -> None:
        """``tracer``: OpenTelemetry's, whose types are not imported while tracing is off."""
        super().__init__(clock, slow_ms=slow_ms, kept_max=kept_max)
        self._tracer = tracer
        self._traced: dict[tuple[str, int], Traced] = {}

    def expect(self, peer: str, correlation_id: int, traced: Traced) -> None:
        """Keep the traces of a request until it is answered."""
        if len(self._traced) < LINKED_REQUESTS_MAX:
            self._traced[peer, correlation_id] = traced

    def answered(self, header: RequestHeader, began_s: float, source: Source) -> float:
        """Note a request that was answered at once, and make its span."""
        slow_s = super().answered(header, began_s, source)
        self._span(header, source.peer, source.listener_name, self.now_s() - began_s, 0.0)
        return slow_s

    def answered_later(self, header: RequestHeader, origin: Origin, stages: Stages) -> None:
        """Note a request whose answer is sent now, and make its span."""
        super().answered_later(header, origin, stages)
        waited_s = max(0.0, stages.ready_s - stages.handled_s)
        took_s = self.now_s() - stages.began_s
        self._span(header, origin.peer, origin.listener, took_s, waited_s)

    def _span(
        self, header: RequestHeader, peer: str, listener: str, took_s: float, waited_s: float
    ) -> None:
        from opentelemetry.trace import SpanKind

        traced = self._traced.pop((peer, header.correlation_id), _NOTHING)
        end_ns = self._clock.wall_ms() * _NS_PER_MS
        name = api_name(header.api_key)
        address, _, port = peer.rpartition(":")
        attributes: dict[str, str | int | float] = {
            "messaging.system": "kafka",
            "messaging.operation.name": name,
            "messaging.client.id": header.client_id or "",
            "network.peer.address": address,
            "network.peer.port": int(port) if port.isdecimal() else 0,
            "tidemark.listener": listener,
            "tidemark.waiting_seconds": waited_s,
        }
        if len(traced.topics) == 1:
            attributes["messaging.destination.name"] = traced.topics[0]
        span = self._tracer.start_span(
            f"{name} {traced.topics[0]}" if len(traced.topics) == 1 else name,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[link for one in traced.traceparents if (link := _link(one)) is not None],
            start_time=end_ns - int(took_s * _NS_PER_S),
        )
        span.end(end_ns)


def _link(traceparent: str) -> Any:
    """Return the link that a traceparent header (W3C Trace Context) names; None if malformed."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    named = get_current_span(context).get_span_context()
    return Link(named) if named.is_valid else None
