"""Faults at the sink's steps, armed by a test. The hook is ``spark.step_faults:hook``.

A fault is a file ``<step>.<sink>.<batch>`` in the directory that ``TIDEMARK_TEST_FAULTS`` names;
the first process that comes to its step takes it away, so that it strikes once. What it holds says
what happens: ``kill`` (this process, -9), ``kill-jvm`` (the driver with all it has), ``fail``.
"""

import os
import signal
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from tidemark_spark.sink.failpoints import HOOK_VARIABLE, Step

DIRECTORY_VARIABLE: Final = "TIDEMARK_TEST_FAULTS"
HOOK: Final = "spark.step_faults:hook"
STRUCK: Final = "struck"


class FaultError(Exception):
    """What ``fail`` raises."""


class Faults:
    """The test's side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / STRUCK).mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Of the processes that faults may strike."""
        return {HOOK_VARIABLE: HOOK, DIRECTORY_VARIABLE: str(self.directory)}

    def arm(self, step: Step, sink_id: str, batch_id: int, what: str = "kill") -> None:
        """Once."""
        (self.directory / _name(step, sink_id, batch_id)).write_text(what)

    def struck(self, sink_id: str) -> set[str]:
        """Steps, with their batches, at which it happened: ``enlist.3``."""
        names = [path.name for path in (self.directory / STRUCK).iterdir()]
        marker = f".{sink_id}."
        return {name.replace(marker, ".") for name in names if marker in name}


def hook(step: Step, **facts: object) -> None:
    """Called by the sink."""
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    armed = directory / _name(step, str(facts["sink_id"]), int(str(facts["batch_id"])))
    struck = directory / STRUCK / armed.name
    try:
        armed.rename(struck)
    except FileNotFoundError:
        return
    what = struck.read_text()
    if what == "fail":
        raise FaultError(f"armed at {step}")
    if what == "kill-jvm":
        os.kill(_jvm(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _jvm() -> int:
    """The driver's: this process's child if it holds the session, otherwise the parent."""
    gateway = SparkContext._gateway
    return os.getppid() if gateway is None else int(gateway.proc.pid)


def _name(step: Step, sink_id: str, batch_id: int) -> str:
    return f"{step}.{sink_id}.{batch_id}"
