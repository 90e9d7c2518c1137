"""Traces of a broker: server spans with links to the traces of produced records."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.clusters import Cluster, StartCluster
from tidemark.client import Admin, NewTopic, Producer
from waiting import wait_for

pytestmark = pytest.mark.e2e

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"


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


@pytest.mark.feature("AD82")
def test_a_produce_request_is_a_span_linked_to_its_records(
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
