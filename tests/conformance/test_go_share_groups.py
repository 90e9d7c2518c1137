"""franz-go's share consumer, unmodified, against a cluster. Run by ``make conformance``."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.go_programs import GoProgram, build
from conformance.java_programs import started
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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> GoProgram:
    return build(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def cluster(program: GoProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with share_cluster(tmp_path_factory.mktemp("go-share")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics and groups of one test."""
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.mark.feature("S04", "T03", "Y01")
def test_a_share_member_acknowledges_in_every_way(
    program: GoProgram, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    create_topic(cluster, name)
    read_from_the_beginning(cluster, name)
    put(cluster, name, 0, 100)
    assert program.facts("ways", cluster.bootstrap, name, name) == {
        "answered": "true",
        "refused": "0",
        "values": "100",
        "delivered twice": "0 10 20 30 40 50 60 70 80 90",
    }
    put(cluster, name, 100, 1)
    with started(program.argv("read", cluster.bootstrap, name, name), tmp_path / "log") as later:
        wait_for(lambda: "accepted" in dict(later.told()), later.story)
        assert {value.partition(" ")[2] for _, value in later.told()} == {"100"}


@pytest.mark.feature("S19", "S30", "S31", "Y01")
def test_a_share_member_survives_killed_leaders_and_coordinators(
    program: GoProgram, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    argv = program.argv("read", cluster.bootstrap, name, name)
    survive_kills(cluster, name, argv, tmp_path / "reader.log")
