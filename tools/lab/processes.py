"""Processes that outlive the command that starts them, and are ended by their pid.

A record has the start time with the pid: a pid that has been given to another process since is left
alone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.settings import LOGS, STATE, LabError, environment

_POLL_S: Final = 0.1
_STOP_S: Final = 5.0


def start(name: str, argv: Sequence[str]) -> None:
    """Start a program in the background. Its output goes to ``log/<name>.log``."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv,
            cwd=STATE,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _record(name).write_text(f"{process.pid} {_start_time(process.pid)}")


def pid_of(name: str) -> int | None:
    """Return the pid of a program that was started and still runs; None if it does not."""
    try:
        pid, started = _record(name).read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _start_time(int(pid)) == started else None


def stop(name: str, first: signal.Signals = signal.SIGTERM) -> None:
    """End a program; with SIGKILL if it takes too long."""
    for number in (first, signal.SIGKILL):
        pid = pid_of(name)
        if pid is None:
            break
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        with suppress(LabError):
            wait_for(lambda: pid_of(name) is None, f"{name} does not end", _STOP_S)
    _record(name).unlink(missing_ok=True)


def child_of(name: str) -> int | None:
    """Return the pid of the only child of a program."""
    pid = pid_of(name)
    if pid is None:
        return None
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def wait_for(condition: Callable[[], bool], story: str, limit_s: float) -> None:
    """Wait until a condition holds. Raises LabError with ``story`` after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"{story} (waited {limit_s:.0f} s; logs: {LOGS})")
        time.sleep(_POLL_S)


def run(*argv: str) -> str:
    """Run a program to its end, and return what it printed. Raises LabError."""
    ran = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)
    if ran.returncode:
        raise LabError(f"{' '.join(argv)}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout


def succeeds(*argv: str) -> bool:
    """True if a program ends with exit code 0."""
    return subprocess.run(argv, env=environment(), capture_output=True, check=False).returncode == 0


def _record(name: str) -> Path:
    return STATE / f"{name}.pid"


def _start_time(pid: int) -> str | None:
    """Return the start of a process in ticks after boot; None if it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else words[19]
