"""Runs of the loads: one system after the other, in an order that changes with each round."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bench.peers.figures import Outcome, Sample
from bench.peers.process_times import cpu_seconds, memory_bytes
from bench.peers.rows import ROWS, WARM_UP, Load, Row, Size, warm_up_rounds
from bench.peers.systems import System

Report = Callable[[str], None]
Samples = dict[str, list[Sample]]
"""Of each system, by its name."""


def order_of(names: Sequence[str], turn: int) -> list[str]:
    """Order of a turn: every second one is reversed, so that none always goes first."""
    return list(names) if turn % 2 == 0 else list(reversed(names))


def warm_up(system: System, megabytes: int, size: Size, report: Report) -> None:
    """Fill, read and delete topics until so much has passed through: a JVM compiles meanwhile."""
    consume = next(row for row in ROWS if row.load is Load.CONSUME)
    for number, part in enumerate(warm_up_rounds(megabytes, size), 1):
        # The consumer's records are written by the same tool and in the same batches.
        run(system, replace(consume, name=WARM_UP.name), replace(size, megabytes=part))
        report(f"{system.servers.name}: warm-up round {number}, {part} MB written and read")


def run(system: System, row: Row, size: Size) -> Sample:
    """One load, with the CPU that the servers used meanwhile."""
    roots = system.servers.roots()
    with system.loads.prepared(row, size) as load:
        before = cpu_seconds(roots)
        outcome = load()
        used = cpu_seconds(roots) - before
    return Sample(outcome, used, memory_bytes(roots))


def run_in_turns(
    systems: Mapping[str, System], row: Row, size: Size, runs: int, report: Report
) -> Samples:
    """All counted runs of a load. A short run goes before, uncounted."""
    names = [name for name in systems if name in row.systems]
    for name in names:
        run(systems[name], row, size.tenth())
    samples: Samples = {name: [] for name in names}
    for turn, _ in enumerate(range(runs)):
        for name in order_of(names, turn):
            samples[name].append(run(systems[name], row, size))
            report(f"{name}: {row.name}, run {turn + 1}")
    return samples


def run_idle(systems: Mapping[str, System], size: Size, runs: int) -> Samples:
    """All systems at once: an idle one disturbs no other."""
    samples: Samples = {name: [] for name in systems}
    roots = {name: system.servers.roots() for name, system in systems.items()}
    for _ in itertools.repeat(None, runs):
        begun, before = time.monotonic(), {name: cpu_seconds(roots[name]) for name in systems}
        time.sleep(size.seconds)
        for name in systems:
            used = cpu_seconds(roots[name]) - before[name]
            outcome = Outcome(0, 0, time.monotonic() - begun)
            samples[name].append(Sample(outcome, used, memory_bytes(roots[name])))
    return samples
