"""Short runs of a cluster, all different and reproducible; the seeds that once failed; deliberate
bugs, which must be found.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sim.cluster.mutations import BREAKS, MUTATIONS, mutated, options_for
from sim.cluster.parts import Options
from sim.cluster.run import SEEDS_THAT_FAILED, run_seed, run_txn_seed
from sim.cluster.world import World
from sim.hunt import FINDING, seeds_to_try
from sim.run import first_broken, seeds_that_failed, unreached

SEEDS = 1_000
SEEDS_A_TEST = 25
SEEDS_WITH_LITTLE_ROOM = (4, 5, 43, 44, 59)
REACHED = (
    "b is",
    "b loses",
    "b cuts",
    "b has",
    "c is",
    "c has",
    "c dies",
    "network cuts",
    "zookeeper servers",
    "zookeeper elects",
    "zookeeper server",
    "disk of",
    "operator sets",
    "operator elects",
    "operator moves",
    "zk leader",
    "zk isr",
    "p acked",
    "p hears",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.feature("G01", "G06", "G09", "G11", "G17", "G22", "Y05")
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_all_invariants_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        outcome = run_seed(seed)
        assert not outcome.has_failed, str(outcome)


def test_rooms_for_waiting_requests_run_full() -> None:
    refused, held_back = 0, 0
    for seed in SEEDS_WITH_LITTLE_ROOM:
        world = World(seed, Options())
        world.run()
        world.close()
        refused += sum(one.polls_refused for one in world.parked)
        held_back += sum(one.writes_held_back for one in world.parked)
    assert min(refused, held_back) > 0


@pytest.mark.feature("AD27")
def test_brokers_without_replicas_are_unregistered_and_return() -> None:
    seen: Counter[str] = Counter()
    for seed in range(9, 13):
        outcome = run_seed(seed, Options(faults=("give_up", "move"), brokers=4))
        assert not outcome.has_failed, str(outcome)
        seen += outcome.seen
    assert seen["operator unregisters"] > 0


@pytest.mark.parametrize("seed", seeds_that_failed(SEEDS_THAT_FAILED))
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.has_failed, str(outcome)


def test_the_runs_reach_what_they_are_for() -> None:
    seeds = (2_010, 2_018, 2_000, 2_009, *range(2_000, 2_040))
    assert unreached(REACHED, seeds, lambda seed: run_seed(seed).seen) == []


def test_a_seed_is_the_same_run_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    full = Options(length_ms=3_000, is_full=True)
    run_seed(7, full)
    first = capsys.readouterr().out
    run_seed(7, full)
    assert capsys.readouterr().out == first
    assert first.count("\n") > 50


@pytest.mark.parametrize("seed", range(3_000, 3_008))
def test_a_run_draws_nothing_from_the_machines_dice(seed: int) -> None:
    before = random.getstate()
    run_seed(seed)
    run_txn_seed(seed)
    assert random.getstate() == before


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, record_property: Callable[[str, object], None]) -> None:
    options = options_for(name)
    with mutated(name):
        outcomes = (run_seed(seed, options) for seed in seeds_to_try("cluster", name))
        found = first_broken(outcomes, BREAKS[name])
    record_property(FINDING, f"seed {found.seed}: {found.promise}")
