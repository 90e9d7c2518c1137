"""Run a seed, and say what broke."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sim.checkers import BrokenError
from sim.report import Trace
from sim.simulator import Options, Simulator

SEEDS_THAT_FAILED: Final = Path(__file__).with_name("seeds.txt")


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    options: object
    seen: Counter[str]
    """What happened how often."""
    broken: str = ""
    """The invariant, or the exception; empty when all held."""
    where: str = ""
    tail: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        return bool(self.broken)

    def __str__(self) -> str:
        """All that is needed to see it again."""
        if not self.has_failed:
            return f"seed {self.seed}: all invariants held; {self.seen.total()} events"
        lines = [f"seed {self.seed} failed, {self.options}", *self.tail]
        return "\n".join([*lines, self.where, f"broken: {self.broken}"])


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """One reproducible run. Whatever is raised inside is a finding."""
    options = options or Options()
    sim = Simulator(seed, options)
    return outcome_of(sim.run, seed, options, sim.trace)


def outcome_of(run: Callable[[], None], seed: int, options: object, trace: Trace) -> Outcome:
    """Run it, and say how it went."""
    broken = where = ""
    try:
        run()
    except BrokenError as found:
        broken = str(found)
        where = _frames(found)
    except Exception as found:  # noqa: BLE001 - a bug of ours, told with its seed
        broken = f"{type(found).__name__}: {found}"
        where = _frames(found)
    tail = tuple(trace.tail()) if broken else ()
    return Outcome(seed, options, trace.seen, broken, where, tail)


def _frames(found: BaseException) -> str:
    return "".join(traceback.format_tb(found.__traceback__)[-6:]).rstrip()


def seeds_that_failed(path: Path = SEEDS_THAT_FAILED) -> list[int]:
    """From seeds.txt: one a line, with what it found behind it."""
    lines = path.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]
