"""Traces of a service by OpenTelemetry, whose packages are an extra (``tidemark[otel]``).

Nothing is imported unless tracing is switched on. The exporter and the sampler are configured by
OpenTelemetry's own environment variables (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_TRACES_SAMPLER``).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Tracer


@dataclass(frozen=True, slots=True)
class Traces:
    """The tracers of a process. Spans are exported by a thread."""

    provider: "TracerProvider"
    out: TextIO | None

    @property
    def tracer(self) -> "Tracer":
        """Tracer of the service."""
        return self.provider.get_tracer("tidemark")

    def close(self) -> None:
        """Export what is left. Blocks."""
        self.provider.shutdown()
        if self.out is not None:
            self.out.close()


def make_traces(service: str, *, file: str = "") -> Traces:
    """Return tracers whose spans go to an OTLP collector over HTTP, or to a file as JSON lines.

    Raises ServiceError without the packages.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError as missing:
        raise ServiceError(
            f"tracing.enable needs OpenTelemetry, which is not installed ({missing.name}):"
            " pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http, or set"
            " tracing.enable to false",
            ExitCode.UNAVAILABLE,
        ) from None
    provider = TracerProvider(resource=Resource.create({"service.name": f"tidemark-{service}"}))
    if not file:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return Traces(provider, None)
    out = open(file, "a", encoding="utf-8")  # noqa: SIM115 - closed by Traces
    exporter = ConsoleSpanExporter(out=out, formatter=_line)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Traces(provider, out)


def _line(span: "ReadableSpan") -> str:
    return f"{span.to_json(indent=None)}\n"
