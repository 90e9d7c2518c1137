"""Kafka's own KafkaShareConsumer and the tools on it, unmodified, against a cluster. Run by ``make
conformance``.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from conformance.java_programs import JavaPrograms, RunningProgram, build, started
from conformance.share_story import (
    create_topic,
    put,
    read_from_the_beginning,
    share_cluster,
    survive_kills,
)
from e2e.clusters import Cluster
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

VALUES: Final = 300
PERFORMANCE_VALUES: Final = 50_000


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with share_cluster(tmp_path_factory.mktemp("java-share")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics and groups of one test."""
    return f"j-{uuid.uuid4().hex[:8]}"


@pytest.mark.feature("S03", "S04", "T02", "T03", "T04", "T08", "T09", "T10", "T12", "Y01")
def test_a_share_consumer_acknowledges_in_every_way(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    assert programs.facts("ShareGroups", cluster.bootstrap, name) == {
        "implicit": "200",
        "implicit records": "200",
        "acknowledged twice": "IllegalStateException",
        "explicit": "30",
        "released": "10 [2x1]",
        "renewed": "[1 renewed, 1 accepted]",
        "shared": "true",
        "shared values": "200",
    }


@pytest.mark.feature("S19", "S30", "S31", "Y01")
def test_a_share_consumer_survives_killed_leaders_and_coordinators(
    programs: JavaPrograms, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    argv = programs.argv("ShareReader", cluster.bootstrap, name, name)
    survive_kills(cluster, name, argv, tmp_path / "reader.log")


def verifiable(programs: JavaPrograms, cluster: Cluster, name: str, mode: str) -> list[str]:
    """A VerifiableShareConsumer that reads from the beginning."""
    return programs.tool(
        "VerifiableShareConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", name, "--group-id", name),
        *("--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"),
    )


def events(tools: list[RunningProgram]) -> list[dict[str, Any]]:
    """What the tools have reported so far, a JSON object on each line."""
    lines = [line for one in tools for line in one.story(None).splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def offsets(found: list[dict[str, Any]], event: str) -> Counter[tuple[int, int]]:
    """Partitions and offsets in events of a name."""
    return Counter(
        (part["partition"], offset)
        for one in found
        if one["name"] == event
        for part in one["partitions"]
        for offset in part["offsets"]
    )


@pytest.mark.feature("S01", "T02", "Y01")
@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_two_verifiable_share_consumers_acknowledge_each_record_once(
    programs: JavaPrograms, cluster: Cluster, name: str, tmp_path: Path, mode: str
) -> None:
    create_topic(cluster, name)
    argv = verifiable(programs, cluster, name, mode)
    with started(argv, tmp_path / "1.log") as one, started(argv, tmp_path / "2.log") as other:
        tools = [one, other]
        put(cluster, name, 0, VALUES)

        def are_acknowledged() -> bool:
            return len(offsets(events(tools), "offsets_acknowledged")) >= VALUES

        wait_for(are_acknowledged, lambda: one.story() + other.story())
        one.stop()
        other.stop()
        found = events(tools)
    failed = [one for one in found if not one.get("success", True) or "error" in one]
    assert failed == []
    assert set(offsets(found, "offsets_acknowledged").values()) == {1}
    assert offsets(found, "records_consumed") == offsets(found, "offsets_acknowledged")
    assert sum(one["name"] == "shutdown_complete" for one in found) == 2


@pytest.mark.feature("S02", "Y01")
def test_the_share_consumer_performance_tool_reads_all_with_four_members(
    programs: JavaPrograms, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    create_topic(cluster, name)
    read_from_the_beginning(cluster, name)
    put(cluster, name, 0, PERFORMANCE_VALUES)
    argv = programs.tool(
        "ShareConsumerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", name, "--group", name),
        *("--num-records", str(PERFORMANCE_VALUES), "--threads", "4", "--timeout", "60000"),
    )
    with started(argv, tmp_path / "performance.log") as tool:
        tool.wait()
        lines = [one for one in tool.story().splitlines() if one.count(",") > 4]
    header, figures = ([field.strip() for field in one.split(",")] for one in lines)
    found = dict(zip(header, figures, strict=True))
    assert int(found["data.consumed.in.nMsg"]) == PERFORMANCE_VALUES, found
