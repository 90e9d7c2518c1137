"""What a run on several workers says as it goes: a failure at once, and which tests take long.

A run that is ended from outside, as by a CI's time limit, has no summary.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

LONG_S: Final = 120.0
EVERY_S: Final = 60.0
_PHASES: Final = ("setup", "call", "teardown")


class Progress:
    """Hooks of the process that hands tests to workers."""

    def __init__(
        self, write_line: Callable[[str], None], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._write_line = write_line
        self._now_s = now_s
        self._began_s: dict[str, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress", daemon=True)

    def start(self) -> None:
        """Name the tests that take long from now on, every minute."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ending.set()
        self._thread.join()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A worker begins a test."""
        self._began_s[nodeid] = self._now_s()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A worker is through with a test."""
        self._began_s.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over, or its worker has ended without a word."""
        if report.when not in _PHASES:
            self._began_s.pop(report.nodeid, None)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(report.longrepr if crash is None else crash.message).partition("\n")[0]
            self._write_line(f"failed in {report.when}: {report.nodeid}: {reason}")

    def tell(self) -> None:
        """Name the tests that take long."""
        now_s = self._now_s()
        for nodeid, began_s in list(self._began_s.items()):
            if now_s - began_s >= LONG_S:
                self._write_line(f"running for {now_s - began_s:.0f} s: {nodeid}")

    def _repeat(self) -> None:
        while not self._ending.wait(EVERY_S):
            self.tell()


def begin(config: pytest.Config) -> None:
    """Follow the run of this process, if it has workers. It ends with the configuration."""
    if not config.pluginmanager.has_plugin("dsession"):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None, "pytest's own"

    def write_line(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    progress = Progress(write_line)
    config.pluginmanager.register(progress, "progress")
    progress.start()
    config.add_cleanup(progress.stop)
