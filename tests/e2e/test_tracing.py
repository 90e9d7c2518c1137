"""Traces of a broker: server spans with links to the traces of produced records."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.clusters import Cluster, StartCluster
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tidemark.client import Admin, Consumer, NewTopic, Producer
from waiting import wait_for

pytestmark = pytest.mark.e2e

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
OWN: Final = f"00-{TRACE}-{SPAN}-01".encode()


def spans_of_clients() -> InMemorySpanExporter:
    """Spans of the clients of this process."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    return kept


async def produce_and_read(cluster: Cluster) -> None:
    """Send two records within a span of the program, and read them."""
    async with (
        Producer(cluster.kafka(), client_id="shop", tracing_enable=True) as producer,
        Consumer(cluster.kafka(), group_id="till", tracing_enable=True) as consumer,
    ):
        with trace.get_tracer("shop").start_as_current_span("order"):
            await producer.send("traced", b"paid", headers=[("currency", b"EUR")], partition=0)
        await producer.send("traced", b"own", headers=[("traceparent", OWN)], partition=0)
        consumer.assign([("traced", 0)])
        consumer.seek(("traced", 0), 2)
        read = 0
        while read < 2:
            read += len(await consumer.poll())


async def produce(cluster: Cluster, traceparent: str) -> None:
    async with Admin(cluster.kafka()) as admin:
        await admin.create_topics([NewTopic("traced", 1, 1)])
    async with Producer(cluster.kafka(), client_id="shop") as producer:
        await producer.send("traced", b"paid", headers=[("traceparent", traceparent.encode())])
        await producer.send("traced", b"odd", headers=[("traceparent", b"no trace")])


def spans(path: Path, name: str) -> list[dict[str, Any]]:
    """Exported spans with this name."""
    text = path.read_text() if path.exists() else ""
    found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [one for one in found if one["name"] == name]


@pytest.mark.feature("AD82", "AD89")
def test_requests_sends_and_polls_are_spans_linked_to_their_records(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    path = tmp_path / "spans.jsonl"
    traced = {"tracing.enable": True, "tracing.file": str(path)}
    cluster = start_cluster(overrides={"broker": traced})
    asyncio.run(produce(cluster, f"00-{TRACE}-{SPAN}-01"))
    wait_for(lambda: len(spans(path, "Produce traced")) == 2, "spans are exported")
    first, second = spans(path, "Produce traced")
    assert [link["context"]["trace_id"] for link in first["links"]] == [f"0x{TRACE}"]
    assert second["links"] == [], "a header that names no trace is left out"
    assert first["kind"] == "SpanKind.SERVER"
    shown = first["attributes"]
    assert shown["messaging.system"] == "kafka"
    assert shown["messaging.destination.name"] == "traced"
    assert shown["messaging.client.id"] == "shop"
    assert shown["network.peer.address"] == "127.0.0.1"
    assert first["resource"]["attributes"]["service.name"] == "tidemark-broker"
    wait_for(lambda: spans(path, "CreateTopics"), "requests of the long tail are spans too")
    kept = spans_of_clients()
    asyncio.run(produce_and_read(cluster))
    (order,) = named(kept, "order")
    paid, own = named(kept, "send traced")
    assert (paid.parent, paid.kind) == (order.context, trace.SpanKind.PRODUCER)
    assert paid.attributes is not None
    assert paid.attributes["messaging.destination.partition.id"] == "0"
    assert paid.attributes["messaging.kafka.offset"] == 2
    assert [link.context.span_id for link in own.links] == [int(SPAN, 16)], "its own header is kept"
    polls = named(kept, "poll traced")
    linked = {link.context.span_id for one in polls for link in one.links}
    assert linked == {paid.context.span_id, int(SPAN, 16)}
    wait_for(lambda: len(spans(path, "Produce traced")) == 4, "the broker links them too")
    third = spans(path, "Produce traced")[2]
    assert third["links"][0]["context"]["span_id"] == f"0x{paid.context.span_id:016x}"


def named(kept: InMemorySpanExporter, name: str) -> list[Any]:
    """Finished spans of this name, in the order of their beginning."""
    found = [one for one in kept.get_finished_spans() if one.name == name]
    return sorted(found, key=lambda one: one.start_time)


def test_clients_import_nothing_of_opentelemetry_unless_tracing_is_on() -> None:
    code = (
        "import sys; from tidemark.client import Consumer, Producer;"
        " Producer('h:1'); Consumer('h:1'); print([m for m in sys.modules if 'opentel' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
