"""``python -m sim``: its arguments."""

from collections.abc import Callable, Mapping

import pytest

from sim.__main__ import FAULTS, share_options
from sim.cluster.parts import Options
from sim.cluster.share_world import ShareOptions, ShareWorld
from sim.cluster.txn_world import TxnOptions, TxnWorld
from sim.cluster.world import World

SEEDS = 41
WORLDS: Mapping[str, Callable[[int], World]] = {
    "cluster": lambda seed: World(seed, Options()),
    "txn": lambda seed: TxnWorld(seed, TxnOptions()),
    "share": lambda seed: ShareWorld(seed, ShareOptions(has_losses=seed < SEEDS // 2 or None)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_faults_that_seeds_draw_are_those_that_can_be_asked_for(name: str) -> None:
    drawn: set[str] = set()
    for seed in range(1, SEEDS):
        world = WORLDS[name](seed)
        drawn.update(world.injector.drawn)
        world.close()
    assert drawn == set(FAULTS[name])


def test_a_log_loses_its_end_only_where_the_checkers_follow_it() -> None:
    world = ShareWorld(1, share_options(0, ("lose_end",), is_full=False))
    assert (world.has_losses, world.has_transactions, world.has_letters) == (True, False, False)
    world.close()
    drawn = share_options(0, None, is_full=False)
    assert (drawn.has_losses, drawn.has_transactions, drawn.has_letters) == (None, None, None)
