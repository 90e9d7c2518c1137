from typing import Any

import pytest
from tidemark.plans.kubernetes.release import ClusterCheck, Done, Pod, Wait
from tidemark.plans.kubernetes.roll import ended, may_restart, next_pod
from unit.tidemark.plans.kubernetes.releases import OLD, release, without

AGED = {"revision": OLD}
WHOLE = ClusterCheck()


def name_of_next(**changed: dict[str, Any]) -> str:
    found = next_pod(release(**changed))
    assert isinstance(found, Pod), found
    return found.name


def reason(**changed: dict[str, Any]) -> str:
    found = next_pod(release(**changed))
    assert isinstance(found, Wait), found
    return found.reason


def pod(name: str) -> Pod:
    return next(each for each in release().pods if each.name == name)


@pytest.mark.feature("KU15")
def test_nothing_is_left_when_every_pod_runs_the_newest_revision() -> None:
    assert next_pod(release()) == Done()


@pytest.mark.feature("KU15")
def test_the_highest_ordinal_that_is_older_is_next() -> None:
    assert name_of_next(broker_0=AGED, broker_1=AGED) == "broker-1"


@pytest.mark.feature("KU15")
def test_coordinators_come_first_and_controllers_last() -> None:
    assert name_of_next(controller_0=AGED, broker_0=AGED, txn_coordinator_0=AGED).startswith("txn")
    assert name_of_next(controller_0=AGED, broker_0=AGED) == "broker-0"
    assert name_of_next(controller_0=AGED) == "controller-0"


@pytest.mark.feature("KU15")
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"broker_2": {"is_ready": False}}, "broker-2 is not ready"),
        ({"broker_2": {"is_deleting": True}}, "broker-2 is being ended"),
        ({"zookeeper_1": {"is_ready": False}}, "zookeeper-1 is not ready"),
        ({"broker": {"replicas": 4}}, "broker has 3 pods, not 4"),
        ({"broker": {"is_observed": False}}, "has not seen the latest change of broker"),
    ],
)
def test_nothing_is_restarted_while_a_pod_is_missing_or_not_ready(
    changed: dict[str, Any], words: str
) -> None:
    assert words in reason(broker_0=AGED, **changed)


def test_sets_that_kubernetes_restarts_are_waited_for() -> None:
    rolling = {"is_on_delete": False}
    assert reason(controller=rolling, controller_0=AGED, broker_0=AGED) == (
        "Kubernetes has not restarted controller-0 yet"
    )


def test_chosen_pods_are_restarted_although_they_are_up_to_date() -> None:
    found = next_pod(release(), frozenset({"uid-broker-1", "uid-controller-0"}))
    assert found == pod("broker-1")


@pytest.mark.feature("KU15")
@pytest.mark.parametrize(
    ("check", "words"),
    [
        (None, "no controller answers"),
        (ClusterCheck(brokers_fenced=(2,)), "broker 2 is not alive"),
        (ClusterCheck(partitions_not_whole=7), "7 partitions are not fully replicated"),
        (
            ClusterCheck(risks=("below_min_isr (3 partitions)",)),
            "broker-1 is a risk: below_min_isr",
        ),
    ],
)
def test_a_broker_is_not_restarted_when_anything_is_at_risk_or_unknown(
    check: ClusterCheck | None, words: str
) -> None:
    problem = may_restart(pod("broker-1"), check)
    assert problem is not None
    assert words in problem.reason


@pytest.mark.feature("KU15")
def test_a_broker_is_restarted_when_nothing_is_at_risk() -> None:
    assert may_restart(pod("broker-1"), WHOLE) is None


def test_risks_of_a_broker_do_not_hold_back_a_controller() -> None:
    assert may_restart(pod("controller-1"), ClusterCheck(risks=("unavailable",))) is None
    assert may_restart(pod("controller-1"), ClusterCheck(partitions_not_whole=1)) is not None


def test_a_roll_has_ended_when_every_replica_is_in_sync_again() -> None:
    assert ended(WHOLE) is None
    assert ended(None) == Wait("no controller answers")
    assert ended(ClusterCheck(partitions_not_whole=1)) is not None


def test_a_pod_that_was_deleted_and_not_yet_made_again_is_waited_for() -> None:
    assert next_pod(without(release(), pod="broker-1")) == Wait("broker has 2 pods, not 3")
