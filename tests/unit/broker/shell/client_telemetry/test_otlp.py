"""The decoder of pushes: names, labels, values and bounds."""

import pytest
from broker.core.client_metrics.series import Point
from broker.shell.client_telemetry.otlp import (
    POINTS_MAX,
    decode_push,
    exported_name,
)
from broker.shell.client_telemetry.pushes import DecodedPush, MalformedPushError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from tidemark.codec.compression import (
    CODEC_NAMES,
    NONE,
    ZSTD,
    DecompressedTooLargeError,
    compress,
)

NAME = "org.apache.kafka.consumer.fetch.manager.bytes.consumed.rate"
SHOWN = "org_apache_kafka_consumer_fetch_manager_bytes_consumed_rate"
DELTA, CUMULATIVE = 1, 2


def text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def gauge(name: str, *points: NumberDataPoint) -> Metric:
    return Metric(name=name, gauge=Gauge(data_points=points))


def payload(*metrics: Metric) -> bytes:
    scope = ScopeMetrics(metrics=metrics)
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[scope])])
    return data.SerializeToString()


def decoded(*metrics: Metric, prefixes: tuple[str, ...] = ("*",), codec: int = NONE) -> DecodedPush:
    return decode_push(codec, compress(codec, payload(*metrics)), prefixes, 1_000_000)


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.feature("AD91")
def test_a_gauge_with_its_labels(codec: int) -> None:
    one = NumberDataPoint(as_double=2.5, attributes=[text("topic", "t"), text("client.rack", "r")])
    labels = (("client_rack", "r"), ("topic", "t"))
    assert decoded(gauge(NAME, one), codec=codec).points == (Point(SHOWN, labels, 2.5, False),)


@pytest.mark.parametrize(("temporality", "is_delta"), [(DELTA, True), (CUMULATIVE, False)])
def test_a_sum(temporality: int, is_delta: bool) -> None:
    of_sum = Sum(data_points=[NumberDataPoint(as_int=7)], aggregation_temporality=temporality)  # type: ignore[arg-type]
    found = decoded(Metric(name=NAME, sum=of_sum))
    assert found.points == (Point(SHOWN, (), 7.0, is_delta),)


def test_only_subscribed_metrics_are_kept() -> None:
    one = NumberDataPoint(as_int=1)
    metrics = gauge("org.apache.kafka.producer.x", one), gauge("org.apache.kafka.consumer.y", one)
    kept = decoded(*metrics, prefixes=("org.apache.kafka.producer.", "z")).points
    assert [point.name for point in kept] == ["org_apache_kafka_producer_x"]
    assert decoded(*metrics, prefixes=()).points == ()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (NAME, SHOWN),
        (
            "kafka_server_replicamanager_leadercount",
            "client_kafka_server_replicamanager_leadercount",
        ),
        ('x"}\n1', "client_x___1"),
    ],
)
def test_no_client_writes_the_brokers_own_series(name: str, shown: str) -> None:
    assert exported_name(name) == shown


def test_a_clients_labels_cannot_stand_for_those_of_the_broker() -> None:
    attributes = [text("client_id", "another"), text("__name__", "n"), text("9", "digit")]
    (point,) = decoded(gauge(NAME, NumberDataPoint(attributes=attributes))).points
    assert point.labels == (("label_9", "digit"), ("label___name__", "n"))


def test_histograms_and_points_beyond_the_bound_are_counted() -> None:
    many = [NumberDataPoint(attributes=[text("n", str(one))]) for one in range(POINTS_MAX + 5)]
    found = decoded(Metric(name=NAME, histogram=Histogram()), gauge(NAME, *many))
    assert (len(found.points), found.dropped) == (POINTS_MAX, 6)


@pytest.mark.feature("AD91")
def test_a_bomb_is_refused() -> None:
    with pytest.raises(DecompressedTooLargeError):
        decode_push(ZSTD, compress(ZSTD, bytes(10_000_000)), ("*",), 1_000_000)


def test_what_is_no_metrics_data_is_refused() -> None:
    with pytest.raises(MalformedPushError):
        decode_push(NONE, b"\xff" * 9, ("*",), 1_000_000)
