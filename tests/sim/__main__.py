"""``python -m sim --seed 7``: one run, a line an event; ``--seeds 1000``: many, failures told."""

import argparse
import logging
import sys

from sim.faults import FAULTS
from sim.run import run_seed
from sim.simulator import Options


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one to run, with every line shown")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--length-ms", type=int, default=Options.length_ms, help="simulated time")
    parser.add_argument("--faults", help=f"only these, of {','.join(FAULTS)}")
    parser.add_argument("--log", choices=("full", "brief"), help="full: every line")
    return parser.parse_args()


def main() -> int:
    """0 when all invariants held."""
    asked = arguments()
    faults = tuple(asked.faults.split(",")) if asked.faults else None
    unknown = set(faults or ()) - set(FAULTS)
    if unknown:
        print(f"unknown faults {sorted(unknown)}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 64
    logging.disable(logging.CRITICAL)  # what the storage logs is in the trace, in our words
    is_full = asked.log == "full" or (asked.seed is not None and asked.log is None)
    options = Options(length_ms=asked.length_ms, faults=faults, is_full=is_full)
    seeds = (
        [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    )
    failed = events = 0
    for seed in seeds:
        outcome = run_seed(seed, options)
        events += outcome.seen.total()
        failed += outcome.has_failed
        if outcome.has_failed or asked.seed is not None:
            print(outcome)
    print(f"{len(seeds)} seeds, {events} events, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
