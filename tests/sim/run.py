"""Run a seed, and report the invariant that broke."""

import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sim.checkers import BrokenError
from sim.report import Trace
from sim.simulator import Options, Simulator

SLIPS: Final = (TypeError, AttributeError, NameError, LookupError, NotImplementedError)
FINDINGS_SHOWN: Final = 10
TESTS: Final = Path(__file__).parents[1]
SEEDS_THAT_FAILED: Final = Path(__file__).with_name("seeds.txt")


@dataclass
class Outcome:
    """Result of one seed."""

    seed: int
    options: object
    seen: Counter[str]
    """Number of occurrences of each event."""
    broken: str = ""
    """The invariant, or the exception; empty if all invariants held."""
    where: str = ""
    tail: tuple[str, ...] = ()
    promise: str = ""
    """Promise that was broken, by its name; empty for every other exception: see ``promise_of``."""
    is_slip: bool = False
    """True if Python itself refused what the product, a mutation or the simulator did."""

    def fail(self, found: BaseException) -> None:
        """Note the exception that ended the run."""
        all_found = leaves(found)
        found = next((one for one in all_found if promise_of(one)), all_found[0])
        self.promise = promise_of(found)
        self.is_slip = any(isinstance(one, SLIPS) for one in all_found)
        is_checker = isinstance(found, BrokenError)
        self.broken = str(found) if is_checker else f"{type(found).__name__}: {found}"
        self.where = _frames(found)

    @property
    def has_failed(self) -> bool:
        return bool(self.broken)

    def __str__(self) -> str:
        """Return all that is needed to repeat the run."""
        if not self.has_failed:
            return f"seed {self.seed}: all invariants held; {self.seen.total()} events"
        lines = [f"seed {self.seed} failed, {self.options}", *self.tail]
        return "\n".join([*lines, self.where, f"broken: {self.broken}"])


def run_seed(seed: int, options: Options | None = None) -> Outcome:
    """Run one seed, reproducibly. Any exception inside is a finding."""
    options = options or Options()
    sim = Simulator(seed, options)
    return outcome_of(sim.run, seed, options, sim.trace)


def outcome_of(run: Callable[[], None], seed: int, options: object, trace: Trace) -> Outcome:
    """Run, and return the result."""
    outcome = Outcome(seed, options, trace.seen)
    try:
        run()
    except Exception as found:  # noqa: BLE001 - a bug of ours, told with its seed
        outcome.fail(found)
        outcome.tail = tuple(trace.tail())
    return outcome


def promise_of(found: BaseException) -> str:
    """Name of the promise that ``found`` breaks, empty if it is any other exception.

    A promise is a checker's, by a BrokenError, or an assert in a ``check`` of the product, which
    states the invariants of a core. An assert elsewhere, a TypeError or a KeyError may come from
    the simulator or from a bug that was put in without care.
    """
    if isinstance(found, BrokenError):
        return found.invariant
    if not isinstance(found, AssertionError):
        return ""
    stack = [frame.f_code for frame, _ in traceback.walk_tb(found.__traceback__)]
    checks = [code for code in stack if code.co_name == "check" and _is_product(code.co_filename)]
    return checks[0].co_qualname if checks else ""


def leaves(found: BaseException) -> list[BaseException]:
    """The exceptions of a group, of groups in it too; or the exception itself."""
    if not isinstance(found, BaseExceptionGroup):
        return [found]
    return [leaf for one in found.exceptions for leaf in leaves(one)]


def first_broken(outcomes: Iterable[Outcome], promises: Collection[str]) -> Outcome:
    """The first outcome that breaks one of the promises.

    Other findings do not count: a bug that was put in is found only by a promise that it breaks.
    Raises AssertionError for a slip at once, and if no outcome breaks any of the promises.
    """
    others = []
    for outcome in outcomes:
        assert not outcome.is_slip, str(outcome)
        if outcome.promise in promises:
            return outcome
        if outcome.has_failed:
            others.append(f"seed {outcome.seed}: {outcome.broken}")
    shown = others[:FINDINGS_SHOWN]
    raise AssertionError("\n".join([f"nothing breaks any of {promises}", *shown]))


def _is_product(file: str) -> bool:
    return not Path(file).is_relative_to(TESTS)


def _frames(found: BaseException) -> str:
    return "".join(traceback.format_tb(found.__traceback__)[-6:]).rstrip()


def unreached(
    wanted: Iterable[str], seeds: Iterable[int], reached_by: Callable[[int], Collection[str]]
) -> list[str]:
    """What no seed reaches, in order; [] with the seed that reaches the last, which is the last to
    run. A test names first the seeds that once reached everything.
    """
    left = list(wanted)
    for seed in seeds:
        reached = reached_by(seed)
        left = [what for what in left if what not in reached]
        if not left:
            break
    return left


def seeds_that_failed(path: Path = SEEDS_THAT_FAILED) -> list[int]:
    """Return the seeds of seeds.txt: one per line, followed by its finding."""
    lines = path.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]
