"""Commands beside a test end with its block, whatever became of the test."""

import signal
import subprocess
import sys

import pytest
from e2e.processes import running

SLEEPER = (sys.executable, "-c", "import time; time.sleep(3_600)")


def use(started: list["subprocess.Popen[bytes]"]) -> None:
    """A test that fails while its command runs."""
    with running(SLEEPER) as command:
        started.append(command)
        assert command.poll() is not None, "it runs"


def test_a_command_ends_with_its_block_though_the_test_fails() -> None:
    started: list[subprocess.Popen[bytes]] = []
    with pytest.raises(AssertionError, match="it runs"):
        use(started)
    assert started[0].returncode == -signal.SIGKILL
