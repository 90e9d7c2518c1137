"""Prometheus' own checker of metrics and rules, where it is installed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from waiting import PATIENCE_S

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt install prometheus"
)


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


def promtool(*words: str | Path, text: str = "") -> str:
    """Run promtool; return what it printed. AssertionError if it found something wrong."""
    done = subprocess.run(
        ["promtool", *map(str, words)],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
