"""Restarts under load: writes with acks=all go on, none is lost, none is there twice."""

import time
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL, Measure, timed
from k8s.load import PARTITIONS, Load
from k8s.release import Release, is_of_set, write_values
from k8s.transactions import PARTITIONS as TRANSACTION_PARTITIONS
from k8s.transactions import Transactions

MANY = 100
"""Acknowledged writes before a fault."""
SERVICES = ("broker", "controller", "txnCoordinator", "shareCoordinator")


@pytest.fixture
def load(release: Release) -> Load:
    topic = f"load-{time.time_ns()}"
    release.tidemark("topic", "create", topic, "--partitions", str(PARTITIONS))
    return Load(release.client(), topic)


@pytest.fixture
def transactions(release: Release) -> Transactions:
    topic = f"transactions-{time.time_ns()}"
    release.tidemark("topic", "create", topic, "--partitions", str(TRANSACTION_PARTITIONS))
    return Transactions(release.client(), topic)


@pytest.mark.feature("KU14", "KU15", "KU18", "X02")
def test_an_upgrade_and_a_rollback_of_all_services_lose_no_acknowledged_write(
    release: Release,
    load: Load,
    tmp_path: Path,
    measured: Measure,
) -> None:
    number = release.revision()
    changed = {name: {"config": {"log.level": "DEBUG"}} for name in SERVICES}
    with load:
        with timed(measured, "upgrade of all services, s"):
            release.install(write_values(tmp_path / "v.yaml", external=EXTERNAL, **changed))
            release.wait_updated()
        measured("longest gap of a partition in the upgrade, s", load.longest_gap_s())
        with timed(measured, "rollback of all services, s"):
            release.rollback(number)
            release.wait_updated()
    measured("longest gap of a partition in upgrade and rollback, s", load.longest_gap_s())
    load.check()


@pytest.mark.feature("KU15")
def test_a_roll_by_hand_restarts_every_pod_once_and_again_nothing(
    release: Release, load: Load, transactions: Transactions, measured: Measure
) -> None:
    before = {pod["metadata"]["uid"] for pod in release.pods() if is_of_set(pod)}
    with load, transactions, timed(measured, "roll of every pod by tidemark k8s roll --all, s"):
        said = release.k8s("roll", "--all", "--timeout", "800")
    after = {pod["metadata"]["uid"] for pod in release.pods() if is_of_set(pod)}
    assert f"{len(before)} pods restarted" in said
    assert not before & after
    assert "0 pods restarted" in release.k8s("roll")
    measured("longest gap of a partition in a roll by hand, s", load.longest_gap_s())
    measured("transactions committed in a roll by hand", len(transactions.committed))
    load.check()
    transactions.check()


def test_a_killed_broker_comes_back_on_its_disk_and_no_acknowledged_write_is_lost(
    release: Release, load: Load, measured: Measure
) -> None:
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        release.replace(release.pods("broker")[0], "--grace-period=0", "--force")
    measured("longest gap of a partition when a broker is killed, s", load.longest_gap_s())
    load.check()


def test_a_broker_whose_process_crashes_is_started_again_and_no_acknowledged_write_is_lost(
    release: Release, load: Load, measured: Measure
) -> None:
    name = f"{release.name}-broker-0"
    before = release.restarts(name)
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        # The broker is the child of process 1, which records its end.
        crash = "kill -9 $(cat /proc/1/task/1/children)"
        release.kubectl("exec", name, "-c", "broker", "--", "sh", "-c", crash)
        wait_for(lambda: release.restarts(name) > before)
        release.wait_ready()
    measured("longest gap of a partition when a broker crashes, s", load.longest_gap_s())
    load.check()
