"""Mutations fit the product: a replacement can be called as the original, each mutation names the
promises that it breaks, and only a failure of such a promise counts.
"""

import inspect
from typing import Any, Final

import pytest
from broker.core.leader_epochs import LeaderEpochs

from sim import mutations as of_a_node
from sim.checkers import BrokenError, require
from sim.cluster import mutations as of_a_cluster
from sim.cluster import share_mutations as of_share_groups
from sim.cluster import txn_mutations as of_transactions
from sim.mutations import Change, changed
from sim.report import Trace
from sim.run import Outcome, first_broken, outcome_of, promise_of

WORLDS: Final = (of_a_node, of_a_cluster, of_transactions, of_share_groups)
CHANGES: Final = [
    pytest.param(change, id=f"{name}: {change[1]}")
    for world in WORLDS
    for name, changes in world.MUTATIONS.items()
    for change in changes
    if callable(getattr(change[0], change[1]))
]
"""Without those that replace a constant."""


def calls_of(function: Any) -> list[tuple[list[str], dict[str, str]]]:
    """Return arguments of the longest and of the shortest call that a function takes."""
    parameters = inspect.signature(function).parameters.values()
    every = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    needed = [one for one in every if one.default is one.empty]
    return [
        (
            [one.name for one in some if one.kind is not one.KEYWORD_ONLY],
            {one.name: one.name for one in some if one.kind is one.KEYWORD_ONLY},
        )
        for some in (every, needed)
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_a_mutation_can_be_called_as_what_it_replaces(change: Change) -> None:
    owner, attribute, _ = change
    original = getattr(owner, attribute)
    with changed([change]):
        new = getattr(owner, attribute)
    assert inspect.iscoroutinefunction(new) == inspect.iscoroutinefunction(original)
    for positional, named in calls_of(original):
        inspect.signature(new).bind(*positional, **named)


@pytest.mark.parametrize("world", WORLDS)
def test_every_mutation_names_the_promises_it_breaks(world: Any) -> None:
    assert world.BREAKS.keys() == world.MUTATIONS.keys()
    assert all(world.BREAKS.values())


def outcome(failure: BaseException | None, seed: int = 1) -> Outcome:
    """Outcome of a run that raises the failure, if there is one."""

    def run() -> None:
        if failure is not None:
            raise failure

    return outcome_of(run, seed, "options", Trace())


def test_only_a_promise_that_fits_counts() -> None:
    runs = [None, BrokenError("another", ""), ValueError("ours"), AssertionError("ours")]
    outcomes = [outcome(found) for found in runs]
    with pytest.raises(AssertionError, match=r"nothing breaks any of.*\n.*another.*\n.*ours"):
        first_broken(outcomes, ["fits"])
    grouped = ExceptionGroup("tasks", [ValueError(), BrokenError("fits", "in a task")])
    assert first_broken([*outcomes, outcome(grouped, seed=7)], ["fits"]).seed == 7


@pytest.mark.parametrize("slip", [TypeError("x"), AttributeError("x"), KeyError("x")])
def test_a_slip_of_a_mutation_or_of_the_simulator_ends_the_search(slip: Exception) -> None:
    outcomes = [outcome(ExceptionGroup("tasks", [slip])), outcome(BrokenError("fits", ""))]
    with pytest.raises(AssertionError, match="seed 1 failed"):
        first_broken(outcomes, ["fits"])


def test_an_assert_of_a_check_is_a_promise_and_other_asserts_are_none() -> None:
    with pytest.raises(AssertionError) as of_a_check:
        LeaderEpochs([(2, 0), (1, 5)])
    assert promise_of(of_a_check.value) == "LeaderEpochs.check"
    with pytest.raises(AssertionError) as of_a_caller:
        LeaderEpochs().assign(-1, 0)
    assert promise_of(of_a_caller.value) == ""
    with pytest.raises(BrokenError) as of_a_checker:
        require(False, "named")
    assert promise_of(of_a_checker.value) == "named"
