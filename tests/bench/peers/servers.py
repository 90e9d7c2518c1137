"""Clusters of three servers on loopback, started and stopped by the comparison."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from tidemark.cli.failure import CommandError

NODES: Final = (1, 2, 3)
START_S: Final = 120.0
STOP_S: Final = 30.0
SOON_MS: Final = 1_000
"""How soon files of deleted topics go: the disk has room for few of them."""
LOG_TAIL: Final = 2_000
_POLL_S: Final = 0.2


class Servers(Protocol):
    """A cluster."""

    name: str

    def start(self) -> None:
        """Start, and wait until clients are served. Raises CommandError."""

    def stop(self) -> None:
        """Stop what runs; kill what does not stop."""

    @property
    def address(self) -> str:
        """Where clients find it."""

    def roots(self) -> list[int]:
        """Processes that, with all that they started, are the cluster."""


class Children:
    """Child processes with a log file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a program."""
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_until(self, is_ready: Callable[[], bool], what: str) -> None:
        """Raises CommandError if a program ends before, or time is up."""
        deadline = time.monotonic() + START_S
        while not is_ready():
            for name, process in self._running.items():
                if process.poll() is not None:
                    tail = self._log(name).read_text(errors="replace")[-LOG_TAIL:]
                    raise CommandError(f"{name} ended with status {process.returncode}:\n{tail}")
            if time.monotonic() > deadline:
                raise CommandError(f"{what} was not ready within {START_S:g} s")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """SIGTERM to all, and SIGKILL to what still runs later."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def pids(self) -> list[int]:
        """Of the programs that were started."""
        return [process.pid for process in self._running.values()]

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"
