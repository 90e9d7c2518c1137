"""Arithmetic of the comparison: what a run cost, the medians of runs, and how they are shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

GB: Final = 1e9
MB: Final = 1e6
NO_FIGURE: Final = "-"
_REACHED: Final = 0.95
"""Part of a rate that counts as reached: tools begin and end within their time."""


class Cost(Enum):
    """Unit in which the CPU of a load is shown."""

    PER_GB = "s/GB"
    PER_RECORD = "us"
    PER_COMMIT = "ms a commit"
    OF_A_CORE = "of a core"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load did. ``payload`` is in bytes and counts each record once, whatever its replicas.
    Latencies are 0 where the load does not measure them.
    """

    records: int
    payload: int
    seconds: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    commits: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a load against one system. ``memory`` is in bytes, of all its processes."""

    outcome: Outcome
    cpu_s: float
    memory: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of some runs, with the least and the greatest."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """At least one value."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass(frozen=True, slots=True)
class Figures:
    """What one system's runs of a load came to."""

    cost: Spread
    mb_s: Spread
    operations_s: Spread
    """Records, or commits where those are what a load is about."""
    p50_ms: Spread
    p99_ms: Spread
    memory_gb: Spread


def cost_of(sample: Sample, unit: Cost) -> float:
    """CPU of all server processes for each unit of work."""
    done = sample.outcome
    match unit:
        case Cost.PER_GB:
            return sample.cpu_s / (done.payload / GB)
        case Cost.PER_RECORD:
            return sample.cpu_s * 1e6 / done.records
        case Cost.PER_COMMIT:
            return sample.cpu_s * 1e3 / done.commits
        case Cost.OF_A_CORE:
            return sample.cpu_s / done.seconds


def operations_of(done: Outcome, unit: Cost) -> int:
    """What a load counts besides bytes."""
    return done.commits if unit is Cost.PER_COMMIT else done.records


def figures_of(samples: Sequence[Sample], unit: Cost) -> Figures:
    """At least one sample."""
    outcomes = [sample.outcome for sample in samples]
    return Figures(
        cost=Spread.of([cost_of(sample, unit) for sample in samples]),
        mb_s=Spread.of([one.payload / one.seconds / MB for one in outcomes]),
        operations_s=Spread.of([operations_of(one, unit) / one.seconds for one in outcomes]),
        p50_ms=Spread.of([one.p50_ms for one in outcomes]),
        p99_ms=Spread.of([one.p99_ms for one in outcomes]),
        memory_gb=Spread.of([sample.memory / GB for sample in samples]),
    )


def percentile(values: Sequence[float], part: float) -> float:
    """A percentile of unsorted values; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def number(value: float) -> str:
    """Two significant digits, and all that stand before the point."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def range_of(spread: Spread) -> str:
    """``67 to 76``; one number where both ends read alike."""
    least, greatest = number(spread.least), number(spread.greatest)
    return least if least == greatest else f"{least} to {greatest}"


def is_behind(figures: Figures, asked_s: int) -> bool:
    """True if a load that asks for a rate did not reach it: its latencies are those of a queue.
    A rate of -1 asks for none.
    """
    return figures.operations_s.least < asked_s * _REACHED


def cell(figures: Figures | None, unit: Cost) -> str:
    """Text of a system's column: cost, rate, latency; memory where the cluster is idle."""
    if figures is None:
        return NO_FIGURE
    words = [f"{range_of(figures.cost)} {unit.value}"]
    if unit is Cost.OF_A_CORE:
        return ", ".join([*words, f"{range_of(figures.memory_gb)} GB"])
    if unit is Cost.PER_GB:
        words.append(f"{range_of(figures.mb_s)} MB/s")
    else:
        words.append(f"{range_of(figures.operations_s)}/s")
    if figures.p99_ms.greatest > 0:
        words.append(f"p50 {range_of(figures.p50_ms)} ms, p99 {range_of(figures.p99_ms)} ms")
    return ", ".join(words)


def times(peer: Figures | None, own: Figures | None) -> str:
    """How many times the peer's cost is ours, by the medians."""
    if peer is None or own is None or own.cost.median == 0:
        return NO_FIGURE
    return number(peer.cost.median / own.cost.median)
