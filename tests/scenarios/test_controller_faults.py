"""A cluster whose active controller has an error of its own code, in whole processes."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from controller.core import term
from controller.core.cluster import Cluster
from scenarios.replication_world import ReplicationWorld
from scenarios.runner import parse_command


@pytest.fixture
def run() -> Iterator[Callable[[str], list[str]]]:
    logging.disable(logging.CRITICAL)
    world = ReplicationWorld()
    yield lambda line: world.execute(parse_command(line))
    world.close()
    logging.disable(logging.NOTSET)


def fail(*_: Any, **__: Any) -> Any:
    raise KeyError("a bug")


def test_a_poisonous_request_does_not_hinder_a_failover(
    run: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("cluster orders=1,2,3 min=2")
    before = run("controllers")
    monkeypatch.setattr(term, "decide_configs", fail)
    for _ in range(3):
        run("config min.insync.replicas=1")
    run("kill b1")
    run("wait 6s")
    assert run("state short") == ["orders e2 leader b2 isr 2,3"]
    assert run("produce 5 acks=all") == ["acks=all <- 0..4"]
    assert run("controllers") == before


def test_after_an_error_in_a_change_another_controller_finishes_the_failover(
    run: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("cluster orders=1,2,3 min=2")
    before = run("controllers")
    apply = Cluster.apply

    def fail_once(*_: Any) -> None:
        monkeypatch.setattr(Cluster, "apply", apply)
        raise KeyError("a bug")

    monkeypatch.setattr(Cluster, "apply", fail_once)
    run("kill b1")
    run("wait 10s")
    assert run("state short") == ["orders e2 leader b2 isr 2,3"]
    assert run("produce 5 acks=all") == ["acks=all <- 0..4"]
    assert sorted(run("controllers")) != sorted(before)
    assert run("controllers count") == ["1 active, 1 standby"]
