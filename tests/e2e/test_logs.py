"""Logs of every kind of process: JSON on request, a line for each change of state, and a level that
changes while the process runs.
"""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.wire import create_topic, delete_topic
from tidemark.cli.dev.layout import HOST
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

SERVICES: Final = ("broker", "controller", "txn-coordinator", "share-coordinator")
STARTS: Final = {
    "broker-1": {"starting", "log directory open", "registered", "listening"},
    "controller-1": {"starting", "elected", "state loaded"},
    "txn-coordinator-1": {"starting", "waiting for ZooKeeper", "registered", "ready"},
    "share-coordinator-1": {"starting", "waiting for ZooKeeper", "registered", "ready"},
}
ALWAYS: Final = {"ts", "level", "service", "logger", "message"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    own = started_cluster(
        tmp_path_factory.mktemp("logs"),
        txn_coordinators=1,
        share_coordinators=1,
        overrides={service: {"log.format": "json"} for service in SERVICES},
    )
    yield own
    own.end()


def lines(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """What a process has logged."""
    return [json.loads(line) for line in cluster.log(name).splitlines()]


def level(cluster: Cluster, name: str, body: bytes | None = None) -> dict[str, Any]:
    """Levels of a process, after a change to ``body`` if there is one."""
    ports = cluster.layout.member(name).ports
    url = f"http://{HOST}:{ports.get('ops') or ports['rest']}/loglevel"
    method = "GET" if body is None else "PUT"
    request = urllib.request.Request(url, data=body, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.mark.feature("AD83")
@pytest.mark.parametrize("name", STARTS)
def test_a_start_is_logged_as_json_step_by_step(cluster: Cluster, name: str) -> None:
    found = lines(cluster, name)
    assert all(one.keys() >= ALWAYS for one in found)
    assert {one["service"] for one in found} == {name.rpartition("-")[0]}
    assert STARTS[name] <= {one["message"] for one in found}


@pytest.mark.feature("AD83")
def test_a_change_of_state_is_one_line_with_its_fields(cluster: Cluster) -> None:
    create_topic(cluster, "logged")
    wait_for(
        lambda: any(
            one["message"] == "partition role set" and one["partition"] == "logged-0"
            for one in lines(cluster, "broker-1")
        ),
        "the broker leads the partition",
    )
    delete_topic(cluster, "logged")
    wait_for(lambda: '"topics deleted"' in cluster.log("controller-1"), "it is logged")
    topics = [one for one in lines(cluster, "controller-1") if "logged" in json.dumps(one)]
    messages = [one["message"] for one in topics]
    assert any("created" in message for message in messages), messages
    assert any("deleted" in message for message in messages), messages


@pytest.mark.feature("AD84")
@pytest.mark.parametrize("name", STARTS)
def test_the_level_of_a_running_process_changes(cluster: Cluster, name: str) -> None:
    assert level(cluster, name)["level"] == "INFO"
    assert level(cluster, name, b'{"level": "DEBUG"}')["level"] == "DEBUG"
    changed = level(cluster, name, b'{"level": "ERROR", "logger": "kazoo"}')
    assert changed["loggers"]["kazoo"] == "ERROR"
    assert level(cluster, name, b"INFO")["level"] == "INFO"
