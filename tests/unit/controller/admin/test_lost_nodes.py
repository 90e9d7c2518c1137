"""The watch over lost nodes, at an API server in memory."""

import pytest
from tidemark.plans.kubernetes.release import ClusterCheck
from unit.controller.admin.watched import WAIT_MS, Watched
from unit.tidemark.kubernetes.memory_api import MemoryApi
from virtual_time import run_virtual

STEPS = ["VolumeRetained", "ClaimDeleted", "PodDeleted"]


def lost() -> MemoryApi:
    api = MemoryApi()
    api.lose_node()
    return api


@pytest.mark.feature("KU29", "KU31", "KU32")
def test_a_lost_node_is_replaced_after_its_time_with_an_event_and_a_count_for_each_step() -> None:
    api = lost()
    watched = Watched(api)
    run_virtual(watched.run(until_s=WAIT_MS / 1_000 - 1))
    assert api.done == []
    run_virtual(watched.run(until_s=300))
    assert watched.events() == ["ReplacingNode", *STEPS, "NodeReplaced"]
    assert watched.steps == dict.fromkeys(STEPS, 1)
    assert [line.split()[0] for line in api.done if "/events" not in line] == [
        "PATCH", "DELETE", "DELETE"
    ]  # fmt: skip


@pytest.mark.feature("KU32")
def test_a_refusal_is_an_event_and_a_count_and_is_not_repeated_at_every_look() -> None:
    watched = Watched(lost())
    watched.answer = ClusterCheck((0,), risks=("only_replica (1 partitions)",))
    run_virtual(watched.run(until_s=300))
    assert watched.events() == ["ReplicasAtRisk"]
    assert watched.refusals == {"ReplicasAtRisk": 1}
    assert watched.steps == {}
    assert watched.shown("tidemark_controller_lost_nodes") == {"": 1}


@pytest.mark.feature("KU29")
def test_a_standby_does_nothing() -> None:
    api = lost()
    watched = Watched(api)
    watched.active.clear()
    run_virtual(watched.run(until_s=300))
    assert api.done == []


@pytest.mark.feature("KU29")
def test_a_process_that_was_stopped_does_not_act_on_an_old_look() -> None:
    watched = Watched(lost(), look_age_ms=-1)
    run_virtual(watched.run(until_s=300))
    assert watched.steps == {}


def test_requests_that_kubernetes_refuses_are_counted_and_tried_again() -> None:
    api = lost()
    api.sets = []
    watched = Watched(api)
    run_virtual(watched.run(until_s=300))
    assert watched.events() == []
    assert watched.failures == 0
