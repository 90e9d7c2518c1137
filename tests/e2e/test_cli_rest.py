"""Commands that ask a controller: long actions, events, figures."""

import json
import subprocess
from collections.abc import Callable

import pytest
from e2e.clusters import Cluster
from e2e.command_line import COMMAND, Cli
from tidemark.cli.dev.layout import HOST
from tidemark.client import NewTopic, TopicPartition, sync
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def cli(cluster: Cluster) -> Cli:
    return Cli(cluster)


@pytest.fixture
def rest(cluster: Cluster) -> tuple[str, str]:
    """Options that name the controller; nothing listens at the first address."""
    return "--rest", f"{HOST}:1,{cluster.layout.rest_addresses}"


@pytest.mark.feature("AD68")
def test_a_broker_is_drained_and_gets_its_leaderships_back(
    cluster: Cluster, cli: Cli, rest: tuple[str, str], topic_name: Callable[[str], str]
) -> None:
    name = topic_name("drained")
    with sync.Admin(cluster.kafka()) as admin:
        admin.create_topics([NewTopic(name, 3, 2)])
    refused = cli.run("cluster", "drain", "3", *rest)
    assert (refused.returncode, b"--yes" in refused.stderr) == (ExitCode.USAGE, True)
    moves = cli.json("cluster", "drain", "3", "--dry-run", *rest)
    assert name in {one["topic_name"] for one in moves}
    (done,) = cli.json("cluster", "drain", "3", "--wait", "--yes", *rest)
    assert (done["state"], done["percent"], done["action"]) == ("succeeded", 100, "drain")
    (shown,) = cli.json("operations", "show", done["id"], *rest)
    assert shown["messages"]
    late = cli.run("operations", "cancel", done["id"], "--yes", *rest)
    assert (late.returncode, b"succeeded already" in late.stderr) == (ExitCode.FAILED, True)
    assert cli.json("cluster", "undrain", "3", "--wait", *rest)[0]["state"] == "succeeded"
    listed = [one["id"] for one in cli.json("operations", "list", *rest)]
    assert listed.index(done["id"]) >= 1


@pytest.mark.feature("AD68")
def test_events_are_listed_and_watched(
    cluster: Cluster, cli: Cli, rest: tuple[str, str], topic_name: Callable[[str], str]
) -> None:
    name = topic_name("watched")
    watching = subprocess.Popen(
        [*COMMAND, "events", "watch", "-n", "1", "-o", "json", *rest], stdout=subprocess.PIPE
    )
    with sync.Admin(cluster.kafka()) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    assert json.loads(watching.communicate(timeout=PATIENCE_S)[0])["message"]
    seen = wait_for(
        lambda: [one for one in cli.json("events", "list", *rest) if one["subject"] == name],
        "the event is listed",
    )
    assert seen[0]["type"] == "topic-created"


@pytest.mark.feature("AD68")
def test_lag_and_throughput_of_the_cluster_are_shown(
    cluster: Cluster, cli: Cli, rest: tuple[str, str], topic_name: Callable[[str], str]
) -> None:
    name = topic_name("behind")
    with sync.Admin(cluster.kafka()) as admin, sync.Producer(cluster.kafka()) as producer:
        admin.create_topics([NewTopic(name, assignments=[[1]])])
        producer.send_many(name, [(b"", b"x")] * 5_000)
        admin.alter_group_offsets(name, {TopicPartition(name, 0): 0})
    lag = wait_for(
        lambda: [one for one in cli.json("group", "lag", *rest) if one["group"] == name],
        "the lag is measured",
    )
    assert lag[0]["lag"] == 5_000
    assert [one["broker"] for one in cli.json("cluster", "traffic", *rest)] == [1, 2, 3]
    alive = cli.json("cluster", "can-replace", "1", *rest, code=ExitCode.FAILED)
    assert alive[0]["can_replace"] is False
    refused = cli.run("cluster", "can-replace", "1", *rest)
    told, title, *risks = refused.stdout.splitlines()[1:]
    assert (told.split(), title.split()[:3]) == ([b"1", b"no"], [b"RISK", b"TOPIC", b"PARTITION"])
    assert [b"only_replica", name.encode(), b"0"] in [risk.split()[:3] for risk in risks]
    assert b"broker 1 is alive" in refused.stderr
    assert cli.json("share", "dead-letters", *rest) == []


@pytest.mark.feature("AD68", "AD53")
def test_a_refusal_and_a_controller_that_is_not_there_say_what_to_try(
    cli: Cli, rest: tuple[str, str]
) -> None:
    unknown = cli.run("operations", "show", "none", *rest)
    assert unknown.returncode == ExitCode.FAILED
    assert b"api: GET /v3/operations/none" in unknown.stderr
    assert b"try: tidemark operations list" in unknown.stderr
    nobody = cli.run("events", "list", "--rest", f"{HOST}:1")
    assert nobody.returncode == ExitCode.UNAVAILABLE
    assert b"-X rest=HOST:PORT" in nobody.stderr
    assert b"Traceback" not in unknown.stderr + nobody.stderr
