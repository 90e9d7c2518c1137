"""Short runs of a cluster with a share group, and deliberate bugs, which must be found."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sim.cluster.directory_moves import DIRECTORY_FAULTS
from sim.cluster.disk_faults import DISK_FAULTS
from sim.cluster.faults import FAULTS, FEED_FAULTS, OLD_DISK_FAULTS
from sim.cluster.lost_ends import LOSS_FAULTS
from sim.cluster.rivals import RIVAL_FAULTS
from sim.cluster.run import SHARE_SEEDS_THAT_FAILED, run_share_seed, run_share_world
from sim.cluster.share_extent import LONG, LONG_MS, ONE_LEADER, draw_extent
from sim.cluster.share_faults import SHARE_FAULTS
from sim.cluster.share_mutations import BREAKS, MUTATIONS, mutated, options_for
from sim.cluster.share_world import ShareOptions
from sim.cluster.unregistering import GIVE_UP_FAULTS
from sim.hunt import FINDING, seeds_to_try
from sim.run import first_broken, seeds_that_failed, unreached

SEEDS = 1_000
SEEDS_A_TEST = 10
REACHING_MUCH = (2_071, 2_072, 2_048, 2_018, 2_028, 2_035, 2_064, 2_006, 2_030, 2_077)
REACHING = (*REACHING_MUCH, *range(2_000, 2_080))
EVENTS_A_SEED_MAX = 11_000
"""Events of a seed on average: bounds its work, and so the CPU time of all seeds."""
REACHED = (
    "s is",
    "log owner",
    "m1- gets",
    "m1- ACCEPT",
    "m1- RELEASE",
    "m1- REJECT",
    "m1- RENEW",
    "m1- DELAYED",
    "m1- UNSEEN",
    "m2- dies",
    "m3- holds",
    "m3- leaves",
    "log commit",
    "log abort",
    "log loses",
    "m1- hears",
    "m2- is",
    "reset 0:",
    "cleaners compact",
    "network cuts",
    "letters 1",
)

STRIKING = (
    *FAULTS,
    *DISK_FAULTS,
    *SHARE_FAULTS,
    *RIVAL_FAULTS,
    *FEED_FAULTS,
    *OLD_DISK_FAULTS,
    *GIVE_UP_FAULTS,
    *DIRECTORY_FAULTS,
    *LOSS_FAULTS,
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


@pytest.mark.feature("S16", "S17", "S26", "S30", "S31", "Y05")
@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_all_promises_of_share_groups_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        outcome = run_share_seed(seed)
        assert not outcome.has_failed, str(outcome)


@pytest.mark.parametrize("seed", seeds_that_failed(SHARE_SEEDS_THAT_FAILED))
def test_a_seed_that_once_failed_holds(seed: int) -> None:
    outcome = run_share_seed(seed)
    assert not outcome.has_failed, str(outcome)


def test_the_runs_reach_what_they_are_for() -> None:
    def reached(seed: int) -> Counter[str]:
        outcome, world = run_share_world(seed)
        assert not outcome.has_failed, str(outcome)
        return outcome.seen + world.injector.struck

    assert unreached([*REACHED, *STRIKING], REACHING, reached) == []


def test_a_seed_has_a_bounded_number_of_events() -> None:
    worlds = [run_share_world(seed)[1] for seed in range(2_000, 2_020)]
    assert sum(world.scheduled for world in worlds) / len(worlds) < EVENTS_A_SEED_MAX


def test_some_seeds_are_long_and_most_are_short() -> None:
    drawn = [draw_extent(seed, 0) for seed in range(1, SEEDS + 1)]
    assert sum(one.is_long for one in drawn) / SEEDS == pytest.approx(LONG, abs=0.03)
    short = [one for one in drawn if not one.is_long]
    led = sum(one.has_one_leader for one in short) / len(short)
    assert led == pytest.approx(ONE_LEADER, abs=0.05)
    assert {one.length_ms for one in drawn if one.is_long} == {LONG_MS}
    assert len({one.length_ms for one in drawn}) == 4


@pytest.mark.parametrize(("length_ms", "is_long"), [(LONG_MS - 1, False), (LONG_MS, True)])
def test_a_length_that_is_given_holds(length_ms: int, is_long: bool) -> None:
    for seed in range(1, 21):
        extent = draw_extent(seed, length_ms)
        assert (extent.length_ms, extent.is_long) == (length_ms, is_long)


def test_a_seed_is_the_same_run_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    full = ShareOptions(length_ms=1_500, is_full=True)
    run_share_seed(7, full)
    first = capsys.readouterr().out
    run_share_seed(7, full)
    assert capsys.readouterr().out == first
    assert first.count("\n") > 40


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds(name: str, record_property: Callable[[str, object], None]) -> None:
    options = options_for(name)
    with mutated(name):
        outcomes = (run_share_seed(seed, options) for seed in seeds_to_try("share", name))
        found = first_broken(outcomes, BREAKS[name])
    record_property(FINDING, f"seed {found.seed}: {found.promise}")
