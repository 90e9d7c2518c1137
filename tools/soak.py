"""``make soak``: what is slow and proves a little more each time it is run.

``SEEDS=2000 MINUTES=30``: so many lives of each simulated world, and chaos for so long.
``TIMES=10``: ``make test`` so many times in a row. ``BURN=4``: beside so many processes that burn
CPU. Each run's output is kept under ``build/soak``; what failed is said as it fails, and again at
the end; the exit status is 1 if anything did.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
KEPT: Final = ROOT / "build" / "soak"
WORLDS: Final = ("cluster", "txn", "node")
_BURN: Final = "while True: pass"
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) .*|^make.*\] Error \d+.*|^the same order again: .*")


class Part(NamedTuple):
    """One command of a soak."""

    name: str
    argv: Sequence[str]


def parts(times: int, seeds: int, minutes: float) -> Iterator[Part]:
    """In the order in which they run."""
    for number in range(1, times + 1):
        # A target's later lines run whatever the earlier ones found.
        yield Part(f"suite-{number}", ("make", "--ignore-errors", "test"))
    if seeds:
        for world in WORLDS:
            of_world = ("--world", world, "--seeds", str(seeds))
            yield Part(f"sim-{world}", (sys.executable, "-m", "sim", *of_world))
    if minutes:
        yield Part("chaos", (sys.executable, "-m", "chaos", "--minutes", f"{minutes:g}"))


@contextmanager
def burning(count: int) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """So many processes that use all the CPU they are given."""
    started = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def failures(code: int, text: str) -> list[str]:
    """The lines that say what failed; empty when all is well."""
    found = [line for line in text.splitlines() if _FAILED.match(line)]
    return found or ([f"exit status {code}"] if code else [])


def run(part: Part, directory: Path) -> list[str]:
    """What failed."""
    log_path = directory / f"{part.name}.log"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    began = time.monotonic()
    with log_path.open("wb") as log:
        done = subprocess.run(part.argv, cwd=ROOT, env=env, stdout=log, stderr=log, check=False)
    found = failures(done.returncode, log_path.read_text(errors="replace"))
    minutes = (time.monotonic() - began) / 60
    print(f"{part.name}: {'FAILED' if found else 'passed'} in {minutes:.1f} min, {log_path}")
    for line in found:
        print(f"  {line}", flush=True)
    return [f"{part.name}: {line}" for line in found]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--times", type=int, default=0, help="runs of the whole suite")
    parser.add_argument("--burn", type=int, default=0, help="processes that burn CPU meanwhile")
    parser.add_argument("--seeds", type=int, default=0, help="lives of each simulated world")
    parser.add_argument("--minutes", type=float, default=0, help="of chaos")
    asked = parser.parse_args()
    todo = list(parts(asked.times, asked.seeds, asked.minutes))
    if not todo:
        parser.error("nothing to do: give --times, --seeds or --minutes")
    KEPT.mkdir(parents=True, exist_ok=True)
    with burning(asked.burn):
        failed = [line for part in todo for line in run(part, KEPT)]
    print(f"{len(todo)} runs, {len(failed)} failures")
    for line in failed:
        print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
