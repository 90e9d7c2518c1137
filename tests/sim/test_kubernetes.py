"""The watch over lost nodes in simulated clusters: nothing is given up that is needed."""

from collections.abc import Callable
from typing import Any

import pytest
from tidemark.plans.kubernetes import replacement, watch

from sim.dice import Dice
from sim.kubernetes import WAIT_TICKS, BrokenError, World, run, settle

SEEDS = range(40)


@pytest.mark.feature("KU29", "KU30", "KU31")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_needed_disk_is_never_given_up_and_everything_is_whole_in_the_end(seed: int) -> None:
    world = run(seed)
    if len(set(world.given_up)) <= 2:  # no more nodes are left than the release needs
        settle(world)


def test_seeds_replace_and_refuse() -> None:
    worlds = [run(seed) for seed in SEEDS]
    assert sum(len(set(world.given_up)) for world in worlds) > len(SEEDS) / 4
    reasons = {report.reason for world in worlds for report in world.reports}
    assert {"SeveralNodes", "NodeNotConfirmed", "NodeReplaced", "NoController"} <= reasons


@pytest.mark.feature("KU29", "KU32")
def test_of_two_nodes_that_are_lost_at_once_neither_is_replaced() -> None:
    for seed in SEEDS:
        world = World(Dice(seed))
        for name in [pod.node for pod in world.pods.values() if pod.kind == "broker"][:2]:
            world.machines[name].runs = world.machines[name].exists = False
        for _ in range(20 * WAIT_TICKS):
            world.tick()
        assert world.given_up == []
        assert {report.reason for report in world.reports} == {"SeveralNodes"}


def nothing(*_: Any, **__: Any) -> Any:
    """A gate that is always open."""
    return iter(())


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a node that may still run": lambda patch: patch.setattr(replacement, "_unconfirmed", nothing),
    "replicas elsewhere": lambda patch: patch.setattr(replacement, "_replicas", nothing),
    "no wait": lambda patch: patch.setattr(
        watch.Watch, "__init__", _without_wait(watch.Watch.__init__)
    ),
}


def _without_wait(before: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *, wait_ms: before(self, wait_ms=0 * wait_ms)


def run_many(count: int) -> None:
    """Run the first seeds."""
    for seed in range(count):
        run(seed)


@pytest.mark.parametrize("bug", BUGS)
def test_a_watch_with_a_gate_left_open_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises(BrokenError):
        run_many(200)
