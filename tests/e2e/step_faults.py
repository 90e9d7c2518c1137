"""Faults at the named steps of a broker, armed by a test. The hook is ``e2e.step_faults:hook``.

A fault is a file with the name of its step in the directory that ``TIDEMARK_TEST_FAULTS`` names. It
holds the ids of the processes that are killed. The first process that comes to the step takes the
file away, so that the fault strikes once.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from tidemark.runtime.failpoints import HOOK_VARIABLE

DIRECTORY_VARIABLE: Final = "TIDEMARK_TEST_FAULTS"
HOOK: Final = "e2e.step_faults:hook"
STRUCK: Final = "struck"


class Faults:
    """The test's side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / STRUCK).mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the processes that may come to a step."""
        tests = str(Path(__file__).parent.parent)
        return {HOOK_VARIABLE: HOOK, DIRECTORY_VARIABLE: str(self.directory), "PYTHONPATH": tests}

    def arm(self, step: str, *pids: int) -> None:
        """Kill these processes once the step is reached."""
        (self.directory / step).write_text(" ".join(map(str, pids)))

    def has_struck(self, step: str) -> bool:
        """True once the step was reached."""
        return (self.directory / STRUCK / step).exists()

    def clear(self) -> None:
        """Forget what has struck and what has not."""
        for path in (*self.directory.glob("*"), *(self.directory / STRUCK).glob("*")):
            if path.is_file():
                path.unlink()


def hook(step: str) -> None:
    """Kill the processes that are named for the step; this one last."""
    directory = Path(os.environ[DIRECTORY_VARIABLE])
    struck = directory / STRUCK / step
    try:
        (directory / step).rename(struck)
    except FileNotFoundError:
        return
    pids = [int(one) for one in struck.read_text().split()]
    for pid in sorted(pids, key=os.getpid().__eq__):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
