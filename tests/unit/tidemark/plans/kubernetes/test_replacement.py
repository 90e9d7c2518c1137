from typing import Any

import pytest
from tidemark.plans.kubernetes.release import ClusterCheck, Done, Release, Wait
from tidemark.plans.kubernetes.replacement import (
    DeleteClaim,
    DeletePod,
    RefusalReason,
    RetainVolume,
    Step,
    lost_on,
    next_step,
    refusal,
)
from unit.tidemark.plans.kubernetes.releases import release, without

DOWN = {"is_ready": False}
GONE = {1: ClusterCheck(brokers_fenced=(1,), partitions_not_whole=9)}
BEFORE = frozenset({"uid-broker-1", "uid-zookeeper-1"})


def lost(**changed: dict[str, Any]) -> Release:
    """Node 1 is gone, and what ran there is pending."""
    pending = {"is_ready": False, "node": "", "problem": "volume node affinity conflict"}
    pods = {"broker_1": pending, "zookeeper_1": pending}
    return without(release(**{**pods, **changed}), node="node-1")


def reason(found: Release, checks: Any = GONE, **options: Any) -> RefusalReason | None:
    refused = refusal(found, "node-1", checks, **options)
    return None if refused is None else refused.reason


def step(found: Release, *, is_dead: bool = True) -> Step | Wait | Done:
    return next_step(found, "node-1", BEFORE, is_dead=is_dead)


@pytest.mark.feature("KU30")
def test_a_node_that_is_gone_alone_is_replaced() -> None:
    assert reason(lost()) is None
    assert [pod.name for pod, _, _ in lost_on(lost(), "node-1")] == ["broker-1", "zookeeper-1"]


@pytest.mark.feature("KU30")
@pytest.mark.parametrize(
    ("found", "why"),
    [
        (lost(broker={"is_paused": True}), RefusalReason.PAUSED),
        (release(), RefusalReason.NODE_ALIVE),
        (release(node_1=DOWN), RefusalReason.NODE_NOT_CONFIRMED),
        (lost(node_2=DOWN), RefusalReason.SEVERAL_NODES),
        (without(lost(), node="node-0"), RefusalReason.SEVERAL_NODES),
        (without(lost(node_2=DOWN), pod="broker-2"), RefusalReason.SEVERAL_NODES),
        (lost(broker_2=DOWN), RefusalReason.OTHER_REPLACEMENT),
        (without(lost(), pod="broker-2"), RefusalReason.OTHER_REPLACEMENT),
        (lost(broker_0={"is_deleting": True}), RefusalReason.OTHER_REPLACEMENT),
        (lost(pv_broker_1={"is_local": False}), RefusalReason.NOT_LOCAL),
        (lost(zookeeper_2=DOWN), RefusalReason.ZOOKEEPER_MAJORITY),
    ],
)
def test_what_is_not_a_single_lost_node_is_refused(found: Release, why: RefusalReason) -> None:
    assert reason(found) is why


@pytest.mark.feature("KU30")
@pytest.mark.parametrize(
    ("check", "why"),
    [
        (None, RefusalReason.NO_CONTROLLER),
        (ClusterCheck(), RefusalReason.BROKER_ALIVE),
        (ClusterCheck((1,), risks=("others_not_in_sync",)), RefusalReason.REPLICAS_AT_RISK),
    ],
)
def test_replicas_elsewhere_must_be_known_to_be_in_sync(
    check: ClusterCheck | None, why: RefusalReason
) -> None:
    assert reason(lost(), {1: check}) is why


def test_an_operator_may_confirm_a_dead_node_and_accept_a_loss() -> None:
    at_risk = {1: ClusterCheck((1,), risks=("only_replica",))}
    assert reason(release(node_1=DOWN), confirmed=True) is None
    assert reason(release(node_1={"is_out_of_service": True})) is None
    assert reason(lost(), at_risk, accept_loss=True) is None
    assert reason(release(), confirmed=True) is RefusalReason.NODE_ALIVE


@pytest.mark.feature("KU30")
def test_what_this_replacement_has_begun_does_not_refuse_the_rest_of_it() -> None:
    half = lost(data_broker_1={"is_deleting": True})
    assert reason(half) is None
    there = lost(pv_broker_1={"node": "node-3"})
    assert reason(there, {}) is RefusalReason.OTHER_REPLACEMENT
    assert reason(there, {}, ours=frozenset({"broker-1"})) is None


@pytest.mark.feature("KU31")
def test_the_volume_is_kept_before_its_claim_is_deleted_with_its_uid() -> None:
    deleted = lost(pv_broker_1={"is_retained": False})
    assert step(deleted) == RetainVolume("pv-broker-1")
    assert step(lost()) == DeleteClaim("data-broker-1", "uid-broker-1")


@pytest.mark.feature("KU31")
def test_a_pod_that_was_made_again_on_the_old_claim_is_deleted_again() -> None:
    ending = {"is_deleting": True}
    found = lost(data_broker_1=ending, data_zookeeper_1=ending)
    assert step(found) == DeletePod("broker-1", "uid-broker-1", at_once=False)


@pytest.mark.feature("KU31")
def test_pods_that_a_dead_node_still_has_are_deleted_without_its_confirmation() -> None:
    ending = {"is_deleting": True}
    found = release(data_broker_1=ending, data_zookeeper_1=ending, node_1=DOWN, broker_1=DOWN)
    assert step(found) == DeletePod("broker-1", "uid-broker-1", at_once=True)
    assert step(found, is_dead=False) == DeletePod("broker-1", "uid-broker-1", at_once=False)


@pytest.mark.feature("KU31")
def test_a_later_claim_on_the_same_node_is_not_given_up() -> None:
    later = {"uid": "another"}
    found = release(data_broker_1=later, data_zookeeper_1=later)
    assert step(found, is_dead=False) == Done()


@pytest.mark.feature("KU31")
def test_it_is_followed_until_every_pod_is_ready() -> None:
    moved = {"node": "node-3"}
    there = {"pv_broker_1": moved, "pv_zookeeper_1": moved}
    on_node_3 = {"zookeeper_1": moved, "txn_coordinator_1": moved, "share_coordinator_1": moved}
    filling = lost(**there, **on_node_3, broker_1={**moved, "is_ready": False}, controller_1=moved)
    assert step(filling) == Wait("broker-1 is not ready")
    assert step(without(filling, pod="broker-1")) == Wait("broker lacks a pod")
    assert step(lost(**there, **on_node_3, broker_1=moved, controller_1=moved)) == Done()
