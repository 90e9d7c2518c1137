"""Spans of producers and consumers by OpenTelemetry, whose packages are an extra
(``tidemark[otel]``).

Nothing of it is imported unless ``tracing_enable`` is set. Spans go to the tracer provider that the
program has set, with the attributes of messaging systems; records carry their context in the header
``traceparent`` (W3C Trace Context).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.client.errors import ClientConfigError
from tidemark.model.errors import ErrorCode

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

Header = tuple[str, bytes | None]
TRACEPARENT: Final = "traceparent"
LINKS_MAX: Final = 128
"""Traces to which the span of one poll is linked; spans have a bounded number of links."""
_NS_PER_MS: Final = 1_000_000


class Began(NamedTuple):
    """Span of a record that is being sent, and the record's headers with its context."""

    span: "Span"
    headers: Sequence[Header]


class ClientSpans:
    """Spans of one client."""

    def __init__(self, client_id: str, group_id: str | None = None) -> None:
        """Raise ClientConfigError if OpenTelemetry is not installed."""
        try:
            from opentelemetry import trace
        except ImportError as missing:
            raise ClientConfigError(
                ErrorCode.INVALID_CONFIG,
                f"tracing_enable needs OpenTelemetry, which is not installed ({missing.name})",
                hint="pip install opentelemetry-sdk",
            ) from None
        self._tracer = trace.get_tracer("tidemark.client")
        self._attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.client.id": client_id,
        }
        if group_id is not None:
            self._attributes["messaging.consumer.group.name"] = group_id

    def send(self, topic: str, headers: Sequence[Header]) -> Began:
        """Begin the span of a record. A ``traceparent`` that it has already is kept and linked."""
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes=self._named("send", [topic]),
            links=links_of([headers]),
        )
        if any(name == TRACEPARENT for name, _ in headers):
            return Began(span, headers)
        context: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(context, set_span_in_context(span))
        added = [(name, value.encode()) for name, value in context.items()]
        return Began(span, [*headers, *added])

    def polled(
        self,
        topics: Iterable[str],
        headers: Iterable[Sequence[Header]],
        *,
        began_ms: int,
        count: int,
    ) -> None:
        """Make the span of a poll that returned records, with links to their traces."""
        from opentelemetry.trace import SpanKind

        names = sorted(set(topics))
        span = self._tracer.start_span(
            f"poll {names[0]}" if len(names) == 1 else "poll",
            kind=SpanKind.CLIENT,
            attributes={
                **self._named("poll", names),
                "messaging.operation.type": "receive",
                "messaging.batch.message_count": count,
            },
            links=links_of(headers),
            start_time=began_ms * _NS_PER_MS,
        )
        span.end()

    def _named(self, operation: str, topics: Sequence[str]) -> dict[str, Any]:
        named = {
            **self._attributes,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
        if len(topics) == 1:
            named["messaging.destination.name"] = topics[0]
        return named


def ended(span: "Span", partition: int, offset: int, failure: Exception | None) -> None:
    """End the span of a record that was acknowledged at an offset (-1: not known), or failed."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("messaging.destination.partition.id", str(partition))
    if failure is not None:
        span.record_exception(failure)
        span.set_status(StatusCode.ERROR, type(failure).__name__)
    elif offset >= 0:
        span.set_attribute("messaging.kafka.offset", offset)
    span.end()


def links_of(headers: Iterable[Sequence[Header]]) -> "list[Link]":
    """Return links to the traces that records name, each once, at most LINKS_MAX."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found: dict[bytes, Link] = {}
    for each in headers:
        for name, value in each:
            if name != TRACEPARENT or value is None or value in found or len(found) >= LINKS_MAX:
                continue
            text = value.decode("ascii", "replace")
            context = TraceContextTextMapPropagator().extract({TRACEPARENT: text})
            named = get_current_span(context).get_span_context()
            if named.is_valid:
                found[value] = Link(named)
    return list(found.values())
