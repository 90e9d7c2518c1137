"""Processes beside a test: commands that end with their block, and processes that are paused."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tidemark.cli.dev.process import pause_process


@contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A ``Popen`` that is killed at the end of the block: its own block waits without a limit."""
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """SIGSTOP for the length of the block; every thread has stopped when it begins."""
    try:
        for pid in pids:
            pause_process(pid)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # killed meanwhile
                os.kill(pid, signal.SIGCONT)
