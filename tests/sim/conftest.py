"""Bound on the work of one test. A simulated run takes work, not time: a test that never ends is
ended by the CPU seconds it has used, which a busy machine does not change, and not by the clock.
"""

import faulthandler
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

CPU_S_MAX: Final = 900.0
"""CPU seconds of one test; the longest needs less than a tenth."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take these tests out of the limit by the clock: a hunt for a mutation that is not found where
    it was found last takes minutes of CPU, and many times that beside other work.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture(autouse=True)
def _bounded_work() -> Iterator[None]:
    def spent(_number: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback()
        pytest.fail(f"not over after {CPU_S_MAX:g} CPU seconds")

    before = signal.signal(signal.SIGPROF, spent)
    signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
