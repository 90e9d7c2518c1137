"""``python -m sim --seed 7``: one run, a line per event; ``--seeds 1000``: many runs, only failures
are printed.

``--world cluster`` runs whole services on a simulated network, ``--world txn`` the same with groups
and transactions, ``--world share`` with a share group, ``--world node`` one log and its disk.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Mapping

import sim.cluster.directory_moves
import sim.cluster.disk_faults
import sim.cluster.faults
import sim.cluster.fleeting
import sim.cluster.lost_ends
import sim.cluster.parts
import sim.cluster.rivals
import sim.cluster.run
import sim.cluster.share_faults
import sim.cluster.share_world
import sim.cluster.txn_faults
import sim.cluster.txn_world
import sim.cluster.unregistering
import sim.faults
from sim import run, simulator
from sim.run import Outcome

LOGS = ("full", "brief")
CLUSTER_FAULTS = (
    *sim.cluster.faults.FAULTS,
    *sim.cluster.disk_faults.DISK_FAULTS,
    *sim.cluster.rivals.RIVAL_FAULTS,
    *sim.cluster.faults.FEED_FAULTS,
    *sim.cluster.faults.OLD_DISK_FAULTS,
    *sim.cluster.unregistering.GIVE_UP_FAULTS,
    *sim.cluster.directory_moves.DIRECTORY_FAULTS,
)
FAULTS: Mapping[str, Iterable[str]] = {
    "node": sim.faults.FAULTS,
    "cluster": CLUSTER_FAULTS,
    "txn": (
        *CLUSTER_FAULTS,
        *sim.cluster.txn_faults.TXN_FAULTS,
        *sim.cluster.fleeting.FLEETING_FAULTS,
    ),
    "share": (
        *CLUSTER_FAULTS,
        *sim.cluster.share_faults.SHARE_FAULTS,
        *sim.cluster.lost_ends.LOSS_FAULTS,
    ),
}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="sim", description=__doc__)
    parser.add_argument("--world", choices=tuple(FAULTS), default="cluster")
    parser.add_argument("--seed", type=int, help="the one to run, with every line shown")
    parser.add_argument("--seeds", type=int, default=100, help="how many to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--length-ms", type=int, help="simulated time under faults")
    parser.add_argument("--faults", help="only these, with commas; an unknown one prints them all")
    parser.add_argument("--log", choices=LOGS, help="full: every line")
    return parser.parse_args()


def runner(asked: argparse.Namespace, *, is_full: bool) -> Callable[[int], Outcome]:
    """Return the function that runs one seed. Raises ValueError for an unknown fault."""
    faults = tuple(asked.faults.split(",")) if asked.faults else None
    there = FAULTS[asked.world]
    unknown = set(faults or ()) - set(there)
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}; there are {', '.join(there)}")
    if asked.world == "node":
        length_ms = asked.length_ms or simulator.Options.length_ms
        of_node = simulator.Options(length_ms=length_ms, faults=faults, is_full=is_full)
        return lambda seed: run.run_seed(seed, of_node)
    if asked.world == "txn":
        length_ms = asked.length_ms or sim.cluster.txn_world.TxnOptions.length_ms
        of_txn = sim.cluster.txn_world.TxnOptions(length_ms, faults, is_full)
        return lambda seed: sim.cluster.run.run_txn_seed(seed, of_txn)
    if asked.world == "share":
        length_ms = asked.length_ms or sim.cluster.share_world.ShareOptions.length_ms
        of_share = share_options(length_ms, faults, is_full=is_full)
        return lambda seed: sim.cluster.run.run_share_seed(seed, of_share)
    length_ms = asked.length_ms or sim.cluster.parts.Options.length_ms
    options = sim.cluster.parts.Options(length_ms=length_ms, faults=faults, is_full=is_full)
    return lambda seed: sim.cluster.run.run_seed(seed, options)


def share_options(
    length_ms: int, faults: tuple[str, ...] | None, *, is_full: bool
) -> sim.cluster.share_world.ShareOptions:
    """Return the options of a share world: one whose log may lose its end, if that is asked for,
    has nothing that its checkers do not follow there.
    """
    is_without = False if faults is not None and "lose_end" in faults else None
    return sim.cluster.share_world.ShareOptions(
        length_ms,
        faults,
        is_full,
        has_transactions=is_without,
        has_letters=is_without,
        has_losses=None if is_without is None else True,
    )


def main() -> int:
    """Run the seeds; return 0 if all invariants held."""
    asked = arguments()
    logging.disable(logging.CRITICAL)  # the trace has lines of its own for what the services log
    is_one = asked.seed is not None
    try:
        run_one = runner(asked, is_full=asked.log == "full" or (is_one and asked.log is None))
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 64
    seeds = [asked.seed] if is_one else range(asked.first, asked.first + asked.seeds)
    failed = events = 0
    for seed in seeds:
        outcome = run_one(seed)
        events += outcome.seen.total()
        failed += outcome.has_failed
        if outcome.has_failed or is_one:
            print(outcome)
    print(f"{len(seeds)} seeds, {events} events, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
