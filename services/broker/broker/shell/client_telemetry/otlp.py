"""Decoder of a push: OpenTelemetry's MetricsData (protobuf), possibly compressed.

It runs in a worker process with bounded memory, since a client may send anything.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    MetricsData,
    NumberDataPoint,
)
from tidemark.codec.compression import decompress
from tidemark.model.client_metrics_configs import ALL_METRICS

from broker.core.client_metrics.series import Labels, Point
from broker.shell.client_telemetry.pushes import (
    CLIENT_LABELS,
    TEXT_CHARS_MAX,
    DecodedPush,
    MalformedPushError,
)

POINTS_MAX: Final = 1_000
"""Points of one push that are kept."""
LABELS_MAX: Final = 8
KAFKA_NAMES: Final = "org_apache_kafka_"
OTHER_NAMES: Final = "client_"
_FORBIDDEN: Final = re.compile("[^a-zA-Z0-9_]")
_RECORDED: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


def decode_push(codec: int, payload: bytes, prefixes: Sequence[str], bytes_max: int) -> DecodedPush:
    """Return the points of subscribed metrics. Raises MalformedPushError, and CompressionError or
    DecompressedTooLargeError.
    """
    try:
        data = MetricsData.FromString(decompress(codec, payload, bytes_max=bytes_max))
    except DecodeError as error:
        raise MalformedPushError(str(error)) from None
    everything = ALL_METRICS in prefixes
    points: list[Point] = []
    dropped = 0
    for metric in _metrics(data):
        if not everything and not metric.name.startswith(tuple(prefixes)):
            continue
        found, is_delta = _numbers(metric)
        dropped += 0 if metric.WhichOneof("data") in ("gauge", "sum") else 1
        for one in found:
            if len(points) >= POINTS_MAX:
                dropped += 1
            elif not one.flags & _RECORDED:
                name = exported_name(metric.name)
                points.append(Point(name, _labels(one), _value(one), is_delta))
    return DecodedPush(tuple(points), dropped)


def exported_name(name: str) -> str:
    """Return the name at /metrics. Names outside of Kafka's get a prefix, so that no client can
    write the broker's own series.
    """
    exported = _FORBIDDEN.sub("_", name[:TEXT_CHARS_MAX])
    return exported if exported.startswith(KAFKA_NAMES) else OTHER_NAMES + exported


def _metrics(data: MetricsData) -> Iterator[Metric]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _numbers(metric: Metric) -> tuple[Iterable[NumberDataPoint], bool]:
    """Return the points of a gauge or a sum, and whether they are increases."""
    if metric.WhichOneof("data") == "gauge":
        return metric.gauge.data_points, False
    temporality = metric.sum.aggregation_temporality
    is_delta = temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return metric.sum.data_points, is_delta


def _value(point: NumberDataPoint) -> float:
    if point.WhichOneof("value") == "as_int":
        return float(point.as_int)
    return point.as_double


def _labels(point: NumberDataPoint) -> Labels:
    labels: dict[str, str] = {}
    for one in point.attributes:
        name = _FORBIDDEN.sub("_", one.key[:TEXT_CHARS_MAX])
        if not name or name[0].isdigit() or name.startswith("__"):
            name = f"label_{name}"
        if name not in CLIENT_LABELS and len(labels) < LABELS_MAX:
            labels[name] = _text(one)
    return tuple(sorted(labels.items()))


def _text(attribute: KeyValue) -> str:
    kind = attribute.value.WhichOneof("value")
    if kind not in ("string_value", "bool_value", "int_value", "double_value"):
        return ""
    return str(getattr(attribute.value, kind))[:TEXT_CHARS_MAX]
