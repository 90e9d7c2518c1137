"""``python -m chaos --minutes 10 --seed 7``: a real cluster, real faults, and nothing lost.

Ends with 0 when all promises were kept, 1 when one was broken (everything is kept then), 3 when too
little happened to prove anything.
"""

import argparse
import faulthandler
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Final

from chaos.report import EXIT_BROKEN
from chaos.run import Options, Outcome, run

_RESULTS: Final = Path(__file__).parents[2] / "bench-results"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, help="of the plan; a new one by default")
    parser.add_argument("--writes-s", type=float, default=400.0, help="writes offered a second")
    parser.add_argument("--directory", type=Path, help="where the cluster lives; else temporary")
    parser.add_argument("--keep", action="store_true", help="keep the directory in any case")
    return parser.parse_args()


def main() -> int:
    """The exit code of the report."""
    asked = arguments()
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="tidemark-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _terminated)
    faulthandler.register(signal.SIGUSR1)  # shows where every thread is
    print(f"seed {seed}, {asked.minutes:g} minutes, in {directory}", flush=True)
    options = Options(seed, asked.minutes * 60.0, asked.writes_s)
    outcome = run(options, directory, lambda line: print(line, flush=True))
    print(*outcome.report.lines(), sep="\n")
    code = outcome.report.exit_code()
    if code == EXIT_BROKEN:
        print("the plan, as far as it went:", *outcome.steps, sep="\n")
        print(f"again: python -m chaos --seed {seed} --minutes {asked.minutes:g}")
    print(f"report: {write_json(outcome, asked.minutes)}")
    if code == EXIT_BROKEN or asked.keep or asked.directory:
        print(f"data and logs: {directory}")
    else:
        shutil.rmtree(directory)
    return code


def write_json(outcome: Outcome, minutes: float, results: Path = _RESULTS) -> Path:
    """The report with its plan and events."""
    results.mkdir(exist_ok=True)
    path = results / time.strftime("chaos-%Y%m%d-%H%M%S.json")
    content = {
        "minutes": minutes,
        **outcome.report.content(),
        "windows": [
            {"partition": str(one.partition), "began_s": one.began_s, "length_s": one.length_s}
            for one in outcome.windows
        ],
        "plan": [str(step) for step in outcome.steps],
        "events": outcome.events,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _terminated(_number: int, _frame: FrameType | None) -> None:
    """End as ^C does, so that the cluster ends too."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
