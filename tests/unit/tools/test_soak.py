"""The script is not importable: it is run as people run it, or as a module by its path."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[3]
soak = SimpleNamespace(**runpy.run_path(str(ROOT / "tools/soak.py")))


def test_the_suite_is_repeated_before_the_longer_runs() -> None:
    names = [part.name for part in soak.parts(2, seeds=9, minutes=1)]
    assert names == ["suite-1", "suite-2", "sim-cluster", "sim-txn", "sim-node", "chaos"]


def test_what_is_not_asked_for_is_left_out() -> None:
    assert list(soak.parts(0, seeds=0, minutes=0)) == []


def test_failed_tests_are_named_even_where_make_goes_on() -> None:
    told = "FAILED tests/a.py::test_a\nmake: [Makefile:1: test] Error 1 (ignored)\n2 passed"
    assert soak.failures(0, told) == told.splitlines()[:2]
    assert soak.failures(2, "no such target") == ["exit status 2"]
    assert soak.failures(0, "12 passed in 3 s") == []


def test_burning_processes_end_with_the_block() -> None:
    with soak.burning(1) as (process,):
        assert process.poll() is None
    assert process.poll() is not None


def test_a_run_keeps_its_output_and_says_what_failed(tmp_path: Path) -> None:
    part = soak.Part("one", [sys.executable, "-c", "print('FAILED x'); exit(1)"])
    assert soak.run(part, tmp_path) == ["one: FAILED x"]
    assert (tmp_path / "one.log").read_text() == "FAILED x\n"
