"""``python -m bench.peers``: Tidemark compared with Apache Kafka and NATS, three servers each."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.peers.report import Circumstances, Measured, markdown, write_json
from bench.peers.rows import KAFKA, ROWS, SYSTEMS, Load, Size, disk_bytes
from bench.peers.systems import System, started
from bench.peers.turns import run_idle, run_in_turns, warm_up
from bench.processes import ROOT
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

WARM_UP_MEGABYTES: Final = 5 << 10
"""What passes through Kafka's JVMs before they count."""
_NAMES: Final = tuple(row.name for row in ROWS)


def options(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument("--only", type=_names(_NAMES), default=list(_NAMES), metavar="ROW,...")
    parser.add_argument(
        "--systems", type=_names(SYSTEMS), default=list(SYSTEMS), metavar="NAME,..."
    )
    parser.add_argument("--megabytes", type=int, default=512, help="written by a run, once")
    parser.add_argument("--seconds", type=float, default=20, help="of runs at a rate")
    parser.add_argument("--runs", type=int, default=2, help="runs of each load and system")
    parser.add_argument(
        "--warm-up-megabytes",
        type=int,
        default=WARM_UP_MEGABYTES,
        help="through Kafka before it counts; with less the report says so",
    )
    parser.add_argument("--directory", type=Path, help="for all data; removed at the end")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run what was asked for; all processes and data are gone at the end."""
    asked = options(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    size = Size(asked.megabytes, asked.seconds)
    directory = Path(tempfile.mkdtemp(prefix="tidemark-peers-", dir=asked.directory))
    try:
        with ExitStack() as ending:
            ending.callback(shutil.rmtree, directory, ignore_errors=True)
            check_space(directory, size)
            systems = started(asked.systems, directory, size, ending, say)
            measured = compare(systems, asked, size)
    except CommandError as problem:
        print(*problem.lines(), sep="\n", file=sys.stderr)
        return problem.exit_code
    circumstances = Circumstances(
        options={**vars(asked), "directory": str(asked.directory)},
        versions={name: system.version for name, system in systems.items()},
        is_short=KAFKA in asked.systems and asked.warm_up_megabytes < WARM_UP_MEGABYTES,
    )
    path = write_json(measured, circumstances, ROOT / "bench-results")
    print(*markdown(measured), "", *circumstances.lines(measured), sep="\n")
    print(f"All runs: {path.relative_to(ROOT)}")
    return 0


def check_space(directory: Path, size: Size) -> None:
    """Raises CommandError if the disk has too little room."""
    free, needed = shutil.disk_usage(directory).free, disk_bytes(size)
    if free < needed:
        raise CommandError(
            f"{directory} has {free >> 20} MB of room, and {needed >> 20} MB may be needed",
            hint="fewer --megabytes, or --directory on another disk",
            code=ExitCode.IO,
        )


def compare(systems: Mapping[str, System], asked: argparse.Namespace, size: Size) -> list[Measured]:
    """Warm up, and measure each row that was asked for."""
    if KAFKA in systems:
        warm_up(systems[KAFKA], asked.warm_up_megabytes, size, say)
    measured = []
    for row in (row for row in ROWS if row.name in asked.only):
        if row.load is Load.IDLE:
            samples = run_idle(systems, size, asked.runs)
        else:
            samples = run_in_turns(systems, row, size, asked.runs, say)
        measured.append(Measured(row, samples, os.getloadavg()[0]))
    return measured


def say(line: str) -> None:
    """Progress goes to standard error: standard output has the report alone."""
    print(line, file=sys.stderr, flush=True)


def _interrupted(*_: object) -> None:
    """End, and let nothing interrupt the stopping of servers: timeout(1) sends a signal twice."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(ExitCode.INTERRUPTED)


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        asked = text.split(",")
        if unknown := [name for name in asked if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return asked

    return names


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
