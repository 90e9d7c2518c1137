"""``python -m sim``: its arguments."""

from collections.abc import Callable, Mapping

import pytest

from sim.__main__ import FAULTS
from sim.cluster.parts import Options
from sim.cluster.share_world import ShareOptions, ShareWorld
from sim.cluster.txn_world import TxnOptions, TxnWorld
from sim.cluster.world import World

WORLDS: Mapping[str, Callable[[int], World]] = {
    "cluster": lambda seed: World(seed, Options()),
    "txn": lambda seed: TxnWorld(seed, TxnOptions()),
    "share": lambda seed: ShareWorld(seed, ShareOptions()),
}

SEEDS = 41


@pytest.mark.parametrize("name", WORLDS)
def test_the_faults_that_seeds_draw_are_those_that_can_be_asked_for(name: str) -> None:
    drawn: set[str] = set()
    for seed in range(1, SEEDS):
        world = WORLDS[name](seed)
        drawn.update(world.injector.drawn)
        world.close()
    assert drawn == set(FAULTS[name])
