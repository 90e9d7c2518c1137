"""The Go program of this folder, with franz-go: built once a session.

Skips its tests where there is no Go, or no module proxy.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).parent / "go"
BUILD_S: Final = 400
RUN_S: Final = 300
TAIL: Final = 6_000
_NOT_REACHED: Final = re.compile(
    r"requires go >= |dial tcp|no such host|i/o timeout|connection refused|module lookup disabled"
)


class GoProgram:
    """What ``build`` made."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def argv(self, *arguments: str) -> list[str]:
        """Command that starts it."""
        return [str(self._path), *arguments]

    def facts(self, *arguments: str) -> dict[str, str]:
        """Run it to its end; return what it printed, by name."""
        done = subprocess.run(
            self.argv(*arguments), capture_output=True, text=True, timeout=RUN_S, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-TAIL:]}\n{done.stderr[-TAIL:]}"
        return dict(line.split("\t", 1) for line in done.stdout.splitlines())


def build(directory: Path) -> GoProgram:
    """Compile; without a network if an earlier build left the modules."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    path = directory / "franz-go-clients"
    built = subprocess.run(
        ["go", "build", "-trimpath", "-o", str(path), "."],
        cwd=PROJECT,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if built.returncode != 0 and _NOT_REACHED.search(built.stderr):
        pytest.skip(f"franz-go is not built: {built.stderr.strip()[:300]}")
    assert built.returncode == 0, built.stderr[-TAIL:]
    return GoProgram(path)
