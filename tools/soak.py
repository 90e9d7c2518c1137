"""``make soak``: what is slow and proves a little more each time it is run.

``SEEDS=2000 MINUTES=30``: so many seeds of each simulated world, from ``FIRST`` (1) on, then
hostile frames, each process killed at each step of dead letters, the end-to-end tests with the
services' periodic work done all the time, and chaos for so long.
``TIMES=10``: ``make test`` so many times in a row. ``BURN=4``: beside so many processes that burn
CPU. Each run's output is kept under ``build/soak``, in a folder named by the time it began;
failures are printed as they happen and again at the end, and the exit status is 1 if there was one.
"""

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
KEPT: Final = ROOT / "build" / "soak"
FUZZ_SEEDS: Final = 1_000_000
WORLDS: Final = ("cluster", "txn", "share", "node")
_BURN: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""Ends with its parent, however that ends."""
_FAILED: Final = re.compile(
    r"^(?:FAILED|ERROR) .*|^make(?:\[\d+\])?: (?:\*\*\* )?\[.*|^the same order again: .*"
)
"""Of make, whatever it says of a command that failed: by its status, or by a signal."""
_COUNTED: Final = re.compile(r"^\d+ (?:passed|failed|skipped|seeds|errors?)\b.*")
_OF_SOAK: Final = frozenset(("ARGS", "BURN", "FIRST", "MINUTES", "SEED", "SEEDS", "TIMES"))
_OF_MAKE: Final = frozenset(("MAKEFLAGS", "MFLAGS", "MAKELEVEL"))
"""What make passes on; `make test` within is not to see what `make soak` was given."""


class Part(NamedTuple):
    """One command of a soak."""

    name: str
    argv: Sequence[str]


def parts(times: int, seeds: int, minutes: float, *, first: int = 1) -> Iterator[Part]:
    """In the order in which they run."""
    for number in range(1, times + 1):
        # A target's later lines run whatever the earlier ones found.
        yield Part(f"suite-{number}", ("make", "--ignore-errors", "test"))
    if seeds:
        for world in WORLDS:
            of_world = ("--world", world, "--seeds", str(seeds), "--first", str(first))
            yield Part(f"sim-{world}", (sys.executable, "-m", "sim", *of_world))
    if minutes > 0:
        yield Part("fuzz", ("make", "fuzz", f"SEED={secrets.randbelow(FUZZ_SEEDS)}"))
        faults = (sys.executable, "-m", "pytest", "-q", "tests/e2e/test_dead_letter_faults.py")
        yield Part("dead-letters", ("env", "EVERY_VICTIM=1", *faults))
        workers = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
        processes = (sys.executable, "-m", "pytest", "-q", *workers, "tests/e2e")
        yield Part("passes", ("env", "PASSES=often", *processes))
        yield Part("chaos", (sys.executable, "-m", "chaos", "--minutes", f"{minutes:g}"))


@contextmanager
def burning(count: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """So many processes that use all the CPU they are given."""
    argv = (sys.executable, "-c", _BURN, str(os.getpid()))
    started = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def failures(code: int, text: str) -> list[str]:
    """Lines that say what failed; none when all is well."""
    found = [line for line in text.splitlines() if _FAILED.match(line)]
    return found or ([f"exit status {code}"] if code else [])


def run(part: Part, directory: Path) -> list[str]:
    """Lines that say what failed."""
    log_path = directory / f"{part.name}.log"
    env = {name: value for name, value in os.environ.items() if name not in _OF_SOAK | _OF_MAKE}
    env["PYTHONPATH"] = str(ROOT / "tests")
    began = time.monotonic()
    with log_path.open("wb") as log:
        done = subprocess.run(part.argv, cwd=ROOT, env=env, stdout=log, stderr=log, check=False)
    text = log_path.read_text(errors="replace")
    found = failures(done.returncode, text)
    counts = [line for line in text.splitlines() if _COUNTED.match(line)]
    minutes = (time.monotonic() - began) / 60
    said = f"{part.name}: {'FAILED' if found else 'passed'} in {minutes:.1f} min, {log_path}"
    print(said, *counts, *found, sep="\n  ", flush=True)
    return found


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--times", type=_count, default=0, help="number of runs of the whole suite")
    parser.add_argument("--burn", type=_count, default=0, help="processes that burn CPU meanwhile")
    parser.add_argument(
        "--seeds", type=_count, default=0, help="number of seeds of each simulated world"
    )
    parser.add_argument("--first", type=_count, default=1, help="first seed")
    parser.add_argument("--minutes", type=float, default=0, help="of chaos")
    asked = parser.parse_args()
    if not asked.times and not asked.seeds and not asked.minutes > 0:
        parser.error("nothing to do: give --times, --seeds or --minutes")
    return asked


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def main() -> int:
    """Returns the exit status."""
    asked = arguments()
    directory = KEPT / time.strftime("%Y%m%d-%H%M%S")
    directory.mkdir(parents=True)
    todo = list(parts(asked.times, asked.seeds, asked.minutes, first=asked.first))
    with burning(asked.burn):
        failed = {part.name: lines for part in todo if (lines := run(part, directory))}
    print(f"{len(todo)} runs, {len(failed)} failed")
    for name, lines in failed.items():
        print(name, *lines, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
