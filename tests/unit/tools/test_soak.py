"""The script is not importable: it is run as people run it, or as a module by its path."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import wait_for

ROOT = Path(__file__).parents[3]
soak = SimpleNamespace(**runpy.run_path(str(ROOT / "tools/soak.py")))


def test_the_suite_is_repeated_before_the_longer_runs() -> None:
    names = [part.name for part in soak.parts(2, seeds=9, minutes=1)]
    worlds = ["sim-cluster", "sim-txn", "sim-share", "sim-node"]
    assert names == ["suite-1", "suite-2", *worlds, "fuzz", "dead-letters", "passes", "chaos"]


def test_what_is_not_asked_for_is_left_out() -> None:
    assert list(soak.parts(0, seeds=0, minutes=0)) == []


def test_failed_tests_are_named_even_where_make_goes_on() -> None:
    told = "FAILED tests/a.py::test_a\nmake: [Makefile:1: test] Error 1 (ignored)\n2 passed"
    assert soak.failures(0, told) == told.splitlines()[:2]
    assert soak.failures(2, "no such target") == ["exit status 2"]
    assert soak.failures(0, "12 passed in 3 s") == []


@pytest.mark.parametrize(
    "said", ["make: [Makefile:9: test] Killed (ignored)", "make: *** [a] Fehler 2"]
)
def test_a_command_that_a_signal_ended_or_in_another_language_has_failed(said: str) -> None:
    assert soak.failures(0, f"make: Nothing to be done for 'setup'.\n{said}\n") == [said]


def test_burning_processes_end_with_the_block() -> None:
    with soak.burning(1) as (process,):
        assert process.poll() is None
    assert process.poll() is not None


def test_burning_processes_end_with_whoever_started_them() -> None:
    program = (
        "import os, runpy, sys; soak = runpy.run_path(sys.argv[1]);"
        "started = soak['burning'](1).__enter__(); print(started[0].pid, flush=True); os._exit(0)"
    )
    argv = [sys.executable, "-c", program, str(ROOT / "tools/soak.py")]
    pid = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    wait_for(lambda: _has_ended(pid), "it has ended")


def _has_ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_the_suite_within_sees_nothing_of_what_the_soak_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ARGS", "MAKEFLAGS"):
        monkeypatch.setenv(name, "TIMES=3")
    told = "import os; print('FAILED', [*{'ARGS', 'MAKEFLAGS'} & os.environ.keys()])"
    assert soak.run(soak.Part("env", [sys.executable, "-c", told]), tmp_path) == ["FAILED []"]


def test_a_run_keeps_its_output_and_says_what_failed(tmp_path: Path) -> None:
    part = soak.Part("one", [sys.executable, "-c", "print('FAILED x'); exit(1)"])
    assert soak.run(part, tmp_path) == ["FAILED x"]
    assert (tmp_path / "one.log").read_text() == "FAILED x\n"
