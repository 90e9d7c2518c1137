"""For every test: property tests must not fail because the machine is busy. `make unit` draws fewer
examples than `make test`, and takes fewer cases of the tests that start threads, sockets or loops;
tables of cores, codecs and bytes are run whole.
"""

import gc
import os
import signal
from collections.abc import Iterator
from typing import Final

import progress
import pytest
import worker_groups
from hypothesis import HealthCheck, settings

QUICK: Final = bool(os.environ.get("QUICK"))
QUICK_EXAMPLES_MAX: Final = 4
QUICK_CASES_MAX: Final = 2
WHOLE: Final = frozenset(("core", "codec", "kafka", "model", "machine", "storage", "golden"))
"""Folders whose tests `make unit` runs with every case: a case takes microseconds there, and two
cells of a table say nothing about the others.
"""
_CALM = [HealthCheck.too_slow]
settings.register_profile("full", deadline=None, suppress_health_check=_CALM, print_blob=True)
settings.register_profile(
    "quick", settings.get_profile("full"), max_examples=QUICK_EXAMPLES_MAX, database=None
)
settings.load_profile("quick" if QUICK else "full")
# Modules, syntax trees and examples are made by the hundred thousand and stay: Python's own 700
# would have the collector look for garbage among them for a fifth of the time.
gc.set_threshold(50_000, 20, 20)
# A shell starts its background jobs with SIGINT ignored, and all their children inherit that:
# programs that a test interrupts would not notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Tests that share what is dear to start run together."""
    worker_groups.begin(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A run on several workers tells what it is at."""
    progress.begin(session.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a quick run also tests that ask for a number of examples of their own draw few, and of a
    test with many cases outside WHOLE a few, spread over all, are run.
    """
    if not QUICK:
        return
    for item in items:
        for owner, name in (
            (getattr(item, "obj", None), "_hypothesis_internal_use_settings"),
            (getattr(item, "cls", None), "settings"),  # of a state machine
        ):
            own = getattr(owner, name, None)
            if isinstance(own, settings) and own.max_examples > QUICK_EXAMPLES_MAX:
                setattr(owner, name, settings(own, max_examples=QUICK_EXAMPLES_MAX))
    left_out = set(_cases_left_out(items))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _cases_left_out(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "shell" not in item.path.parts and not WHOLE.isdisjoint(item.path.parts):
            continue
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_one in cases.values():
        of_one.sort(key=lambda item: item.nodeid)  # the same ones in every worker
        step = len(of_one) / QUICK_CASES_MAX
        if step > 1:
            kept = {int(number * step) for number in range(QUICK_CASES_MAX)}
            yield from (item for at, item in enumerate(of_one) if at not in kept)


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look at it again and again."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Tests run in another order each time: say which it was when one failed."""
    config = terminalreporter.config
    if exitstatus == pytest.ExitCode.TESTS_FAILED and config.pluginmanager.has_plugin("randomly"):
        seed = config.getoption("randomly_seed")
        terminalreporter.write_line(f"the same order again: --randomly-seed={seed}")
