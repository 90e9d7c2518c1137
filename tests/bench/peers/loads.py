"""What a system is asked to do: one load at a time, by a program of its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from bench.peers.figures import Outcome
from bench.peers.rows import Row, Size
from bench.processes import ENVIRONMENT
from tidemark.cli.failure import CommandError

RunLoad = Callable[[], Outcome]
_RUN_S: Final = 1_800.0
_TAIL: Final = 2_000


class Loads(Protocol):
    """Loads of one system."""

    def prepared(self, row: Row, size: Size) -> AbstractContextManager[RunLoad]:
        """All that a load needs, records to read included; gone at the end."""


def output_of(argv: Sequence[str]) -> str:
    """Run a program to its end; its standard output. Raises CommandError."""
    try:
        done = subprocess.run(
            argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=_RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{argv[0]} did not end within {_RUN_S:g} s") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-_TAIL:]
        raise CommandError(f"a load ended with status {done.returncode}:\n{tail}")
    return done.stdout


def outcome_of(argv: Sequence[str]) -> Outcome:
    """Run a program that prints its outcome as JSON. Raises CommandError."""
    return Outcome(**json.loads(output_of(argv)))


def python_module(name: str, plan: object) -> list[str]:
    """Command of a load that is a module."""
    return [sys.executable, "-m", name, json.dumps(plan)]
