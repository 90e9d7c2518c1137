"""Options of a broker for metrics, traces and its memory of slow requests."""

from pydantic import Field
from tidemark.runtime.service_config import ServiceConfig


class MetricsConfig(ServiceConfig):
    """Options that bound what a scrape costs and what is kept of slow requests."""

    metrics_partition_series_enable: bool = Field(
        default=True,
        description="serve the metrics that have a series for each partition; switch them off where"
        " a broker has so many partitions that Prometheus cannot keep the series",
    )
    metrics_group_lag_enable: bool = Field(
        default=True,
        description="serve members, offsets and lag of the groups that this broker coordinates",
    )
    metrics_group_lag_cache_ms: int = Field(
        10_000,
        ge=0,
        le=600_000,
        description="age below which computed lag is served again; a scrape after that computes it"
        " again, and asks other brokers for the ends of partitions that have no in-sync replica"
        " here",
    )
    metrics_group_positions_max: int = Field(
        20_000,
        ge=0,
        description="maximum number of committed offsets (of one group in one partition) with"
        " series of their own, groups with members first; the others are counted in"
        " tidemark_group_positions_cut",
    )
    telemetry_enable: bool = Field(
        default=True,
        description="offer clients to push metrics (KIP-714), which /metrics then shows; they push"
        " nothing until there is a subscription (tidemark config set --client-metrics)",
    )
    telemetry_max_bytes: int = Field(
        1024 * 1024,
        ge=1,
        le=16 * 1024 * 1024,
        description="maximum size of a client's push, compressed and decompressed",
    )
    telemetry_series_max: int = Field(
        20_000,
        ge=0,
        le=1_000_000,
        description="maximum number of series of clients' metrics at /metrics; what is beyond is"
        " counted in tidemark_client_metrics_dropped_total",
    )
    slow_request_ms: int = Field(
        500,
        ge=0,
        le=600_000,
        description="time from which a request is kept as slow, with its stages; of long polls the"
        " time on the event loop alone counts; 0 keeps none",
    )
    tracing_enable: bool = Field(
        default=False,
        description="make a span of each request, with links to the traceparent headers of produced"
        " records (batches up to 64 KiB are looked into, on the event loop); needs the packages of"
        " OpenTelemetry; OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_SAMPLER set where spans go,"
        " and how many",
    )
    tracing_file: str = Field(
        "", description="file for spans as JSON lines, instead of an OTLP collector"
    )
    slow_requests_max: int = Field(
        256, ge=1, le=10_000, description="maximum number of slow requests that are kept"
    )
