from dataclasses import replace
from typing import Any

import pytest
from tidemark.model.ids import InstantMs
from tidemark.plans.kubernetes.release import ClusterCheck, Release
from tidemark.plans.kubernetes.replacement import DeleteClaim, DeletePod, RefusalReason, Step
from tidemark.plans.kubernetes.watch import REPEAT_MS, Report, Watch
from unit.tidemark.plans.kubernetes.releases import release, without

WAIT_MS = 1_000
DOWN = {"is_ready": False}
PENDING = {"is_ready": False, "node": ""}
GONE = ClusterCheck(brokers_fenced=(1,), partitions_not_whole=9)


def lost(**changed: dict[str, Any]) -> Release:
    """Node 1 is gone, and what ran there is pending."""
    return without(
        release(**{"broker_1": PENDING, "zookeeper_1": PENDING, **changed}), node="node-1"
    )


class Looking:
    """A watch with the answers of its controller."""

    def __init__(self) -> None:
        self.watch = Watch(wait_ms=WAIT_MS)
        self.answer: ClusterCheck | None = GONE

    def at(self, now: int, found: Release) -> list[Report | Step]:
        return self.watch.look(found, lambda _: self.answer, InstantMs(now))

    def reasons(self, now: int, found: Release) -> list[str]:
        return [it.reason for it in self.at(now, found) if isinstance(it, Report)]


def begun() -> Looking:
    """The claims of broker 1 and of its ZooKeeper server are given up."""
    looking = Looking()
    looking.at(0, lost())
    looking.at(WAIT_MS, lost())
    return looking


@pytest.mark.feature("KU29")
def test_a_node_is_replaced_once_it_has_been_lost_for_the_whole_time() -> None:
    looking = Looking()
    assert looking.at(0, lost()) == []
    assert looking.at(WAIT_MS - 1, lost()) == []
    report, step = looking.at(WAIT_MS, lost())
    assert step == DeleteClaim("data-broker-1", "uid-broker-1")
    assert isinstance(report, Report)
    assert (report.reason, report.is_refusal) == ("ReplacingNode", False)


@pytest.mark.feature("KU29")
def test_a_node_that_comes_back_is_waited_for_again_from_the_beginning() -> None:
    looking = Looking()
    looking.at(0, lost())
    looking.at(WAIT_MS - 1, release())
    assert looking.at(WAIT_MS, lost()) == []
    assert looking.watch.lost == {"node-1"}


@pytest.mark.feature("KU29", "KU32")
@pytest.mark.parametrize(
    ("found", "why"),
    [
        (release(node_1=DOWN), RefusalReason.NODE_NOT_CONFIRMED),
        (without(lost(), node="node-0"), RefusalReason.SEVERAL_NODES),
        (lost(node_2=DOWN), RefusalReason.SEVERAL_NODES),
        (release(node_1=DOWN, node_2=DOWN), RefusalReason.SEVERAL_NODES),
        (lost(broker={"is_paused": True}), RefusalReason.PAUSED),
        (lost(zookeeper_2=DOWN), RefusalReason.ZOOKEEPER_MAJORITY),
    ],
)
def test_the_gates_are_those_of_the_command(found: Release, why: RefusalReason) -> None:
    looking = Looking()
    looking.at(0, found)
    (report,) = looking.at(WAIT_MS, found)
    assert isinstance(report, Report)
    assert (report.reason, report.is_refusal) == (why, True)


@pytest.mark.feature("KU32")
def test_a_refusal_is_reported_when_it_is_new_and_from_time_to_time() -> None:
    looking, two = Looking(), lost(node_2=DOWN)
    looking.at(0, two)
    assert looking.reasons(WAIT_MS, two) == ["SeveralNodes"]
    assert looking.reasons(WAIT_MS + 1, two) == []
    assert looking.reasons(WAIT_MS + REPEAT_MS, two) == ["SeveralNodes"]
    looking.answer = None
    assert looking.reasons(WAIT_MS + REPEAT_MS + 1, lost()) == ["NoController"]


@pytest.mark.feature("KU29")
def test_the_rest_of_a_replacement_is_refused_when_the_node_is_back() -> None:
    looking = begun()
    back = release(data_broker_1={"is_deleting": True}, broker_1=PENDING)
    assert looking.reasons(WAIT_MS + 1, back) == ["NodeAlive"]
    assert looking.at(WAIT_MS + 2, back) == []


@pytest.mark.feature("KU29", "KU32")
def test_while_one_node_is_being_replaced_no_other_one_is() -> None:
    looking = begun()
    moved = {"node": "node-3"}
    first = {"pv_broker_1": moved, "pv_zookeeper_1": moved}
    filling = {name: {"node": "node-3"} for name in ("controller_1", "txn_coordinator_1",
               "share_coordinator_1", "zookeeper_1")}  # fmt: skip
    both = without(lost(**first, **filling, broker_1={**moved, **DOWN}), node="node-2")
    assert looking.at(WAIT_MS + 1, both) == []
    report, *more = looking.at(3 * WAIT_MS, both)
    assert isinstance(report, Report)
    assert "node-2 is not replaced while node node-1 is" in report.message
    assert more == []


@pytest.mark.feature("KU29", "KU31")
def test_it_ends_when_every_pod_is_ready_and_every_replica_in_sync() -> None:
    looking, moved = begun(), {"node": "node-3"}
    elsewhere = release(pv_broker_1=moved, pv_zookeeper_1=moved)
    looking.answer = ClusterCheck(partitions_not_whole=1)
    assert looking.at(WAIT_MS + 1, elsewhere) == []
    looking.answer = ClusterCheck()
    assert looking.reasons(WAIT_MS + 2, elsewhere) == ["NodeReplaced"]


@pytest.mark.feature("KU31")
def test_a_pod_that_an_earlier_controller_left_without_a_claim_is_made_again() -> None:
    found = without(release(broker_1=PENDING), claim="data-broker-1")
    assert Looking().at(0, found) == [DeletePod("broker-1", "uid-broker-1", at_once=False)]
    ready = replace(found, pods=[replace(each, node="node-1") for each in found.pods])
    assert Looking().at(0, ready) == []
