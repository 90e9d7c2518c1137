"""The newcomer's exercise of CONTRIBUTING.md works: every change in its table fails its test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tidy.exercise import DOCUMENT, ROOT, Exercise, broken_source, exercises
from waiting import PATIENCE_S

EXERCISES = exercises()


def test_every_row_of_the_table_can_be_read() -> None:
    text = DOCUMENT.read_text()
    table = text[text.index("| invariant |") :].split("\n\n")[0]
    assert len(EXERCISES) == len(table.splitlines()) - 2


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.invariant)
def test_the_change_fits_the_function_and_the_test_exists(exercise: Exercise) -> None:
    assert broken_source(exercise) != (ROOT / exercise.path).read_text()
    path, *_, name = exercise.test.split("::")
    assert re.search(rf"def {name}\(", (ROOT / path).read_text())


def test_a_change_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="times"):
        broken_source(EXERCISES[0]._replace(function="Isr.begin", old="agreed", new=""))
    with pytest.raises(ValueError, match="no function"):
        broken_source(EXERCISES[0]._replace(function="Isr.nothing"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(EXERCISES)), ids=lambda n: EXERCISES[n].invariant)
def test_the_change_fails_the_named_test(number: int, tmp_path: Path) -> None:
    exercise = EXERCISES[number]
    command = [sys.executable, "-m", "pytest", "-p", "tidy.broken_module", exercise.test]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}"]
    settings = {**os.environ, "PYTHONPATH": "tests", "QUICK": "", "BROKEN_EXERCISE": str(number)}
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert f"FAILED {exercise.test}" in run.stdout
