"""A unit test leaves its process as it was, so that the order of tests decides nothing."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tidemark.runtime.telemetry import levels

_OF_PYTEST: Final = "PYTEST_CURRENT_TEST"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def _process_state() -> dict[str, Any]:
    """Return what tests share within a process, as far as they could change it."""
    return {
        "environment": {key: text for key, text in os.environ.items() if key != _OF_PYTEST},
        "directory": Path.cwd(),
        "import path": list(sys.path),
        "log levels": levels(),
        "logging": (logging.root.manager.disable, list(logging.root.handlers)),
        "signals": [signal.getsignal(number) for number in _SIGNALS],
        "garbage collection": (gc.isenabled(), gc.get_threshold()),
    }


@pytest.fixture(autouse=True)
def process_is_left_as_it_was() -> Iterator[None]:
    before = _process_state()
    yield
    after = _process_state()
    changed = {name: (before[name], after[name]) for name in before if after[name] != before[name]}
    assert not changed, "a test that runs later would see this"


@pytest.fixture
def signals_restored() -> Iterator[None]:
    """A service that has run leaves the signals without handlers, also those that pytest had."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
