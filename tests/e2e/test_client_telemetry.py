"""Metrics that clients push (KIP-714): librdkafka's own, at the broker's /metrics."""

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from e2e.clusters import Cluster, started_cluster
from e2e.command_line import Cli
from e2e.wire import ask, connect, create_topic
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tidemark.cli.dev.layout import HOST
from tidemark.codec.compression import NONE, ZSTD, compress
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

CLIENT_ID = "billing-7"
MATCH = "match=client_id=billing-.*"
CONNECTIONS = "org_apache_kafka_producer_connection_creation_total"
NAMED = ("--client-metrics", "producers")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    overrides = {"broker": {"telemetry.max.bytes": 100_000}}
    own = started_cluster(tmp_path_factory.mktemp("telemetry"), overrides=overrides)
    create_topic(own, "orders")
    yield own
    own.end()


def samples(cluster: Cluster, name: str) -> list[Sample]:
    """Samples of a metric at /metrics."""
    port = cluster.layout.member("broker-1").ports["ops"]
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = str(answer.read(), "utf-8")
    families = text_string_to_metric_families(text)
    return [one for family in families for one in family.samples if one.name == name]


@pytest.fixture(scope="module")
def subscribed(cluster: Cluster) -> Cli:
    """The command line, after a subscription to the metrics of some producers."""
    cli = Cli(cluster)
    settings = ("metrics=org.apache.kafka.producer.", "interval.ms=200", MATCH)
    cli.json("config", "set", *settings, *NAMED, *cli.kafka)

    def is_known() -> bool:
        shown = cli.json("config", "list", *NAMED, *cli.kafka)
        return [row["name"] for row in shown] == ["interval.ms", "match", "metrics"]

    wait_for(is_known, "the broker has the subscription")
    return cli


@pytest.mark.feature("AD90", "AD91")
def test_librdkafka_pushes_what_is_subscribed(cluster: Cluster, subscribed: Cli) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap}
    chosen = Producer({**servers, "client.id": CLIENT_ID})
    other = Producer({**servers, "client.id": "another"})
    for producer in (chosen, other):
        producer.produce("orders", b"v")
        assert producer.flush(PATIENCE_S) == 0
    found = wait_for(lambda: samples(cluster, CONNECTIONS), "metrics arrive")
    assert {one.labels["client_id"] for one in found} == {CLIENT_ID}
    assert {one.labels["client_software_name"] for one in found} == {"confluent-kafka-python"}
    assert sum(one.value for one in found) >= 1
    (series,) = samples(cluster, "tidemark_client_metrics_series")
    assert series.value > 1


@pytest.fixture
def told(cluster: Cluster, subscribed: Cli) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A connection of a client that matches, and the fields of its push."""
    del subscribed
    with connect(cluster.kafka()) as wire:
        yield wire, push_fields(wire)


def push_fields(wire: Any) -> dict[str, Any]:
    answer = ask(wire, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": bytes(16)})
    assert answer.error_code == ErrorCode.NONE
    return {
        "client_instance_id": answer.client_instance_id,
        "subscription_id": answer.subscription_id,
        "terminating": False,
    }


@pytest.mark.parametrize(
    ("codec", "metrics", "error"),
    [
        (ZSTD, compress(ZSTD, bytes(10_000_000)), ErrorCode.TELEMETRY_TOO_LARGE),
        (NONE, bytes(100_001), ErrorCode.TELEMETRY_TOO_LARGE),
        (NONE, b"\xff" * 9, ErrorCode.INVALID_RECORD),
        (ZSTD, b"\xff" * 9, ErrorCode.INVALID_RECORD),
        (9, b"", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (NONE, b"", ErrorCode.NONE),
    ],
)
@pytest.mark.feature("AD91")
def test_a_push_that_cannot_be_taken_is_refused(
    told: tuple[Any, dict[str, Any]], codec: int, metrics: bytes, error: ErrorCode
) -> None:
    wire, fields = told
    push = {**fields, "compression_type": codec, "metrics": metrics}
    assert ask(wire, ApiKey.PUSH_TELEMETRY, 0, push).error_code == error


@pytest.mark.feature("AD90")
def test_the_command_line_removes_a_subscription(subscribed: Cli) -> None:
    cli = subscribed
    cli.json("config", "set", "metrics=*", "--client-metrics", "doomed", *cli.kafka)
    (row,) = cli.json("config", "get", "metrics", "--client-metrics", "doomed", *cli.kafka)
    assert (row["value"], row["source"]) == ("*", "subscription")
    cli.json("config", "unset", "metrics", "--client-metrics", "doomed", *cli.kafka)
    assert cli.json("config", "list", "--client-metrics", "doomed", *cli.kafka) == []
