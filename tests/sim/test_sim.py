"""Short seeds, each a reproducible run, and the seeds that once failed."""

import logging
from collections.abc import Callable, Iterator

import pytest

from sim.hunt import FINDING, seeds_to_try
from sim.mutations import BREAKS, FOUND_BY, MUTATIONS, mutated
from sim.run import first_broken, run_seed, seeds_that_failed, unreached
from sim.simulator import Options

SEEDS = 1_000
SEEDS_A_TEST = 20
SHORT = Options(length_ms=1_000)
REACHED = (
    "node killed,",
    "node lost",
    "node stopped,",
    "node refused:",
    "node told:",
    "disk full",
    "disk every",
    "disk flips",
    "disk healed",
    "operator recreates",
    "operator deletes",
    "retention log",
    "compact kept",
    "flush round",
    "reader wakes",
    "reader waited",
    "producer hears",
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.feature("B05", "K07", "K09", "A19")
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_all_invariants_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        outcome = run_seed(seed, SHORT)
        assert not outcome.has_failed, str(outcome)


@pytest.mark.parametrize("seed", seeds_that_failed())
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.has_failed, str(outcome)


def test_the_runs_reach_what_they_are_for() -> None:
    seeds = range(1_000, 1_030)
    assert unreached(REACHED, seeds, lambda seed: run_seed(seed, SHORT).seen) == []


def test_a_seed_is_the_same_run_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    full = Options(length_ms=600, is_full=True)
    run_seed(7, full)
    first = capsys.readouterr().out
    run_seed(7, full)
    assert capsys.readouterr().out == first
    assert first.count("\n") > 50


def test_a_failure_tells_its_seed_options_trace_and_invariant() -> None:
    with mutated("serves beyond the high watermark"):
        found = next(one for one in map(run_seed, range(1, 50)) if one.has_failed)
    text = str(found)
    assert text.startswith(f"seed {found.seed} failed, Options(")
    assert text.count("\n") > 5
    assert "broken: nothing beyond the high watermark is served" in text


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, record_property: Callable[[str, object], None]) -> None:
    options = Options(length_ms=1_500, faults=FOUND_BY.get(name))
    with mutated(name):
        outcomes = (run_seed(seed, options) for seed in seeds_to_try("sim", name))
        found = first_broken(outcomes, BREAKS[name])
    record_property(FINDING, f"seed {found.seed}: {found.promise}")
