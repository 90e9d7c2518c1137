"""Dead letters while processes are killed at each step of the copying: each letter is in the queue
exactly once for readers of committed records.

``EVERY_VICTIM=1`` kills each of the processes at each step, as ``make soak`` does.
"""

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from broker.core.share.dead_letters import Step
from e2e.clusters import Cluster, started_cluster
from e2e.dead_letters import BROKER, QUICK, Letters
from e2e.share_wire import REJECT
from e2e.step_faults import Faults
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.long]

STEPS = [f"share-letters-{step}" for step in Step if step is not Step.ABORT]
STEPS += [f"share-letters-{Step.COMMIT}-done"]
REPLICAS = (1, 2, 3)
VICTIMS = {
    "the leader": ("broker-1",),
    "the queue's leader": ("broker-3",),
    "the share-coordinator": ("share-coordinator-1",),
    "the txn-coordinator": ("txn-coordinator-1",),
    "all of them": ("broker-1", "broker-3", "share-coordinator-1", "txn-coordinator-1"),
}
IN_DOUBT = f"share-letters-{Step.COMMIT}"
"""Step at which nobody knows whether the transaction will have ended."""


def kills() -> list[tuple[str, str]]:
    """Victims and step of each test: each step with victims in turn, and the step in doubt with
    every victim.
    """
    if os.environ.get("EVERY_VICTIM"):
        return list(itertools.product(VICTIMS, STEPS))
    in_turn = zip(itertools.cycle(VICTIMS), STEPS)
    return [*((one, IN_DOUBT) for one in VICTIMS), *(one for one in in_turn if one[1] != IN_DOUBT)]


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    made = Faults(tmp_path_factory.mktemp("faults"))
    before = dict(os.environ)
    os.environ.update(made.environment)
    yield made
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Iterator[Cluster]:
    """Three brokers, a txn-coordinator and a share-coordinator. A test restarts what it kills."""
    assert faults.environment
    running = started_cluster(
        tmp_path_factory.mktemp("dead-letter-faults"),
        brokers=3,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={
            "broker": {**BROKER, "replica.lag.time.max.ms": 4_000},
            "share-coordinator": QUICK,
            "txn-coordinator": QUICK,
        },
    )
    yield running
    running.end()


def test_without_faults_every_step_is_reached(cluster: Cluster, faults: Faults) -> None:
    faults.clear()
    for step in STEPS:
        faults.arm(step)
    letters = rejected(cluster)
    letters.wait_for_letters([0, 1, 2])
    assert [step for step in STEPS if not faults.has_struck(step)] == []
    letters.end()


@pytest.mark.feature("Y07")
@pytest.mark.parametrize(("victims", "step"), kills())
def test_each_letter_is_there_once_though_processes_die_at_a_step(
    cluster: Cluster, faults: Faults, victims: str, step: str
) -> None:
    names = VICTIMS[victims]
    faults.clear()
    cluster.wait_healthy()
    faults.arm(step, *(cluster.pid(name) for name in names))
    letters = rejected(cluster)
    wait_for(lambda: faults.has_struck(step), f"nothing came to {step}")
    for name in names:
        cluster.restart(name)
    wait_for(lambda: copied(letters) >= {0, 1, 2}, lambda: str(letters.offsets()))
    assert letters.offsets() == Counter([0, 1, 2])
    letters.end()


def rejected(cluster: Cluster) -> Letters:
    """Three records, rejected as the first of ten."""
    letters = Letters(cluster, replicas=REPLICAS)
    member = letters.member(letters.leader())
    assert member.take(0) == [(0, 9, 1)]
    with contextlib.suppress(OSError, EOFError):  # the leader may die before it answers
        member.acknowledge((0, 2, REJECT))
    return letters


def copied(letters: Letters) -> set[int]:
    """Offsets that the queue has, after a member has fetched: a new leader loads the state then."""
    with contextlib.suppress(OSError, EOFError, AssertionError):
        letters.member(letters.leader()).fetch(0)
    return set(letters.offsets())
