"""Lost nodes under load, watched by the active controller: refused, and replaced."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL, Measure, timed
from k8s.load import Load
from k8s.release import Release, is_ready, run, write_values
from k8s.runbook import Runbook
from k8s.test_nodes import (
    broker,
    lab,
    load,
    lose,
    nodes,
    number_of,
    start_all,
    wait_node,
)
from lab.settings import node_name

__all__ = ["load", "nodes"]

WATCH = {"enabled": True, "afterSeconds": 5}


@pytest.fixture
def watched(release: Release, tmp_path: Path) -> Iterator[Release]:
    """The release with the watch switched on; switched off again in the end."""
    before = release.revision()
    release.install(write_values(tmp_path / "v.yaml", external=EXTERNAL, replaceLostNodes=WATCH))
    release.wait_updated()
    release.kubectl("delete", "events", "--all")  # those of an earlier run
    yield release
    start_all()
    release.rollback(before)
    release.wait_updated()


def events(release: Release, reason: str) -> list[str]:
    """Messages of the Events with a reason."""
    found = release.objects("events", "--field-selector", f"reason={reason}")
    return [str(event["message"]) for event in found]


def counted(release: Release, metric: str, label: str) -> float:
    """Sum of a counter of the controllers that are ready."""
    program = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9392/metrics').read().decode())"
    total = 0.0
    for pod in filter(is_ready, release.pods("controller")):
        argv = ("exec", pod["metadata"]["name"], "--", "python3", "-c", program)
        for found in re.findall(
            rf'^{metric}_total{{\w+="{label}"}} (\S+)$', release.kubectl(*argv), re.M
        ):
            total += float(found)
    return total


def two_brokers(release: Release) -> tuple[int, int]:
    """Ordinals of two brokers without whose nodes ZooKeeper has a majority and a controller is
    left: none would be active otherwise.
    """
    servers = {number_of(pod) for pod in release.pods("zookeeper")}
    controllers = {number_of(pod) for pod in release.pods("controller")}
    for one, other in combinations(range(3), 2):
        nodes_of = {number_of(broker(release, ordinal)) for ordinal in (one, other)}
        if len(servers & nodes_of) < 2 and controllers - nodes_of:
            return one, other
    pytest.skip("the nodes of any two brokers have two ZooKeeper servers, or every controller")


@pytest.mark.feature("KU29", "KU31", "KU32", "X03", "Y09", "Y15")
@pytest.mark.usefixtures("nodes")
def test_the_watch_refuses_two_lost_nodes_and_replaces_one(
    watched: Release, load: Load, tmp_path: Path, measured: Measure
) -> None:
    lost, other = two_brokers(watched)
    first, second = number_of(broker(watched, lost)), number_of(broker(watched, other))
    with load:
        lab("kill", first)
        lose(load, second)
        wait_node(first, "Unknown")
        wait_for(
            lambda: bool(events(watched, "SeveralNodes")), lambda: watched.kubectl("get", "events")
        )
        message = events(watched, "SeveralNodes")[-1]
        assert {node_name(first), node_name(second)} <= set(re.split(r"[ ,:]+", message))
        assert counted(watched, "tidemark_controller_node_replacement_refusals", "SeveralNodes") > 0
        lab("start", second)
        wait_node(second, "True")
        # Not ready is not enough.
        wait_for(
            lambda: bool(events(watched, "NodeNotConfirmed")),
            lambda: watched.kubectl("get", "events"),
        )
        assert number_of(broker(watched, lost)) == first
        run("kubectl", "delete", "node", node_name(first))
        with timed(measured, "replacement of a lost node by the watch, s"):
            wait_for(
                lambda: bool(events(watched, "NodeReplaced")),
                lambda: watched.kubectl("get", "events"),
            )
    measured("longest gap of a partition with two nodes lost, s", load.longest_gap_s())
    watched.wait_ready()
    assert number_of(broker(watched, lost)) != first
    assert events(watched, "ClaimDeleted")
    assert counted(watched, "tidemark_controller_node_replacement_steps", "ClaimDeleted") > 0
    load.check()
    commands = Runbook("Replacement without an operator", tmp_path)
    assert "NodeReplaced" in commands.next("kubectl -n demo get events")
    commands.next("kubectl -n demo annotate")
    assert paused(watched) == {"demo-broker", "demo-zookeeper"}
    commands.next("kubectl -n demo annotate")
    assert paused(watched) == set()


def paused(release: Release) -> set[str]:
    """Sets in which nothing is replaced."""
    key = "tidemark/replacement-paused"
    return {
        it["metadata"]["name"]
        for it in release.objects("statefulsets")
        if it["metadata"].get("annotations", {}).get(key) == "true"
    }
