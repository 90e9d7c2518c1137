"""Runs inside Spark's Python processes: tells the demonstration which step they have reached, and
holds the one that it wants to strike.

``TIDEMARK_SPARK_STEP_HOOK=demo_hook:at_step`` and ``TIDEMARK_DEMO_STEPS=<directory>`` switch it on.
Processes meet in files, because those that matter here are killed at any moment.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

DIRECTORY_VARIABLE: Final = "TIDEMARK_DEMO_STEPS"
TRACE: Final = "trace.jsonl"
WANTED: Final = "wanted.json"
TAKEN: Final = "taken.json"
REACHED: Final = "reached.json"
RELEASE: Final = "release"
_POLL_S: Final = 0.02


def at_step(step: str, **facts: object) -> None:
    """Note the step; where it is the wanted one, wait to be killed or released."""
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    at_s = round(time.monotonic(), 3)  # one clock for every process of a machine
    known = {"step": str(step), "pid": os.getpid(), "at_s": at_s, **facts}
    line = json.dumps(known) + "\n"
    handle = os.open(directory / TRACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())  # one write: lines of several processes do not mix
    finally:
        os.close(handle)
    if _is_wanted(directory, known):
        _hold(directory, line)


def _is_wanted(directory: Path, known: dict[str, object]) -> bool:
    """True for one process only, whichever comes first."""
    try:
        wanted = json.loads((directory / WANTED).read_text())
        batch_id = known["batch_id"]
        assert isinstance(batch_id, int), known
        if known["step"] != wanted["step"] or batch_id < wanted["batch_id_min"]:
            return False
        (directory / WANTED).rename(directory / TAKEN)
    except FileNotFoundError:
        return False
    return True


def _hold(directory: Path, line: str) -> None:
    scratch = directory / f"{REACHED}.tmp"
    scratch.write_text(line)
    scratch.rename(directory / REACHED)
    parent = os.getppid()
    while not (directory / RELEASE).exists():
        if os.getppid() != parent:
            sys.exit("the driver is gone")  # nobody is left to go on for
        time.sleep(_POLL_S)
