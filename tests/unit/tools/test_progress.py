"""What a run on several workers says while it runs."""

import pytest
from progress import LONG_S, Progress

TEST = "tests/e2e/test_a.py::test_it"


def report(when: str, outcome: str, text: str = "") -> pytest.TestReport:
    return pytest.TestReport(TEST, ("", 0, ""), {}, outcome, text, when)  # type: ignore[arg-type]


class Run:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self.progress = Progress(self.said.append, lambda: self.now_s)
        self.progress.pytest_runtest_logstart(TEST)

    def after(self, seconds: float) -> list[str]:
        self.now_s += seconds
        self.progress.tell()
        return self.said


def test_a_test_that_takes_long_is_named_until_it_ends() -> None:
    run = Run()
    assert run.after(LONG_S - 1) == []
    assert run.after(1) == [f"running for {LONG_S:.0f} s: {TEST}"]
    run.progress.pytest_runtest_logfinish(TEST)
    assert len(run.after(LONG_S)) == 1


def test_a_failure_is_told_at_once() -> None:
    run = Run()
    run.progress.pytest_runtest_logreport(report("setup", "passed"))
    run.progress.pytest_runtest_logreport(report("call", "failed", "no answer\nhere"))
    assert run.said == [f"failed in call: {TEST}: no answer"]


def test_a_test_whose_worker_ended_does_not_run_on() -> None:
    run = Run()
    run.progress.pytest_runtest_logreport(report("???", "failed", "worker 'gw0' crashed"))
    assert run.after(LONG_S) == [f"failed in ???: {TEST}: worker 'gw0' crashed"]
