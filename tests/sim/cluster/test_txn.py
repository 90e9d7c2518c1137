"""Short runs of a cluster with transactions and groups of either protocol, with the batches of
streaming queries, or with durable handles; the naive loop, which must be seen to duplicate; and
deliberate bugs, which must be found.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.storage.log import Log

from sim.cluster.run import TXN_SEEDS_THAT_FAILED, run_txn_seed, run_txn_world
from sim.cluster.txn_mutations import BREAKS, MUTATIONS, mutated, options_for
from sim.cluster.txn_world import TxnOptions
from sim.hunt import FINDING, seeds_to_try
from sim.mutations import changed
from sim.run import first_broken, seeds_that_failed, unreached

SEEDS = 100
SEEDS_A_TEST = 10
SEEDS_OF_THE_NAIVE = 10
REACHED = (
    "t is",
    "t has",
    "b is",
    "c is",
    "cleaners compact",
    "network cuts",
    "log owner",
    "p1- wrote",
    "p1- commit",
    "p1- abort",
    "p1- wakes",
    "p1- hears",
    "w offset",
    "w commit",
    "w has",
    "w hears",
    "w stands",
    "w takes",
    "w gives",
    "w leaves",
    "w loses",
    "w changes",
    "task wrote",
    "task hears",
    "d commit",
    "d hears",
    "d gives",
    "d loses",
    "d begins",
    "d abort",
    "h commits",
    "h loses",
    "h hears",
)

pytestmark = pytest.mark.filterwarnings(
    # Of a task that died with its process before it began.
    "ignore:coroutine .* was never awaited:RuntimeWarning"
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.feature("N01", "N02", "N03", "N04", "L16", "E14", "Y05", "H15")
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_all_promises_of_transactions_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        outcome = run_txn_seed(seed)
        assert not outcome.has_failed, str(outcome)


@pytest.mark.parametrize("seed", seeds_that_failed(TXN_SEEDS_THAT_FAILED))
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    outcome = run_txn_seed(seed)
    assert not outcome.has_failed, str(outcome)


@pytest.mark.feature("N05")
def test_the_naive_loop_copies_at_least_once_and_some_twice() -> None:
    repeated = 0
    for seed in range(1, SEEDS_OF_THE_NAIVE + 1):
        outcome, world = run_txn_world(seed, TxnOptions(is_naive=True))
        assert not outcome.has_failed, str(outcome)
        repeated += world.repeated_count
    assert repeated > 0


def test_the_runs_reach_what_they_are_for() -> None:
    seeds = (3_056, 3_054, 3_045, 3_043, 3_048, *range(3_042, 3_061))
    assert unreached(REACHED, seeds, lambda seed: run_txn_seed(seed).seen) == []


def test_each_round_of_the_cleaner_replaces_segments() -> None:
    swapped: list[bool] = []
    swap = Log.swap_segments

    def counted(log: Log, *args: Any) -> bool:
        swapped.append(swap(log, *args))
        return swapped[-1]

    with changed([(Log, "swap_segments", counted)]):
        assert not run_txn_seed(2, TxnOptions(faults=("compact_state",))).has_failed
    assert swapped
    assert all(swapped)


@pytest.mark.parametrize(
    ("seed", "is_rolling"),
    [(6, None), (7, False), (8, False), (9, None), (10, True)],
    ids=["sink", "classic", "kip 848", "handles", "rolling"],
)
def test_a_seed_is_the_same_run_each_time(
    seed: int, is_rolling: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    full = TxnOptions(length_ms=1_500, is_full=True, is_rolling=is_rolling)
    run_txn_seed(seed, full)
    first = capsys.readouterr().out
    run_txn_seed(seed, full)
    assert capsys.readouterr().out == first
    assert first.count("\n") > 40


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, record_property: Callable[[str, object], None]) -> None:
    options = options_for(name)
    with mutated(name):
        outcomes = (run_txn_seed(seed, options) for seed in seeds_to_try("txn", name))
        found = first_broken(outcomes, BREAKS[name])
    record_property(FINDING, f"seed {found.seed}: {found.promise}")
