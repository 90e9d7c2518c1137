"""Run a seed of the cluster's simulator, and say what broke."""

from pathlib import Path
from typing import Final

from sim.cluster.parts import Options
from sim.cluster.world import World
from sim.run import Outcome, outcome_of

SEEDS_THAT_FAILED: Final = Path(__file__).with_name("seeds.txt")


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """One reproducible run. Whatever is raised inside is a finding."""
    options = options or Options()
    world = World(seed, options)
    try:
        return outcome_of(world.run, seed, options, world.trace)
    finally:
        world.close()
