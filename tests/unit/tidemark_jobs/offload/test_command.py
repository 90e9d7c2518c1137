"""The command line of ``offload``: wrong options, and what it prints without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest
from tidemark_jobs.offload.command import main, parse
from tidemark_spark.errors import OptionError
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]
REQUIRED = ["--output", "lake", "--bootstrap-servers", "b:9292"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--output", "lake", "--topics", "a"], "--bootstrap-servers is missing"),
        (REQUIRED, "exactly one of --topics and --topic-pattern"),
        ([*REQUIRED, "--topics", "a", "--topic-pattern", "b"], "exactly one of"),
        ([*REQUIRED, "--topics", "a", "--layout", "date"], "it must contain topic"),
        ([*REQUIRED, "--topics", "a", "--layout", "topic,day"], "--layout is topic,day"),
        ([*REQUIRED, "--topics", "a", "--rows-per-file", "0"], "must be at least 1"),
        ([*REQUIRED, "--topics", "a", "--option", "x"], "--option x is not NAME=VALUE"),
        ([*REQUIRED, "--topics", "a", "--output", "s3://lake"], "is an address, not a path"),
        (
            [*REQUIRED, "--topics", "a", "--option", "startingTimestamp=5"],
            "--option startingTimestamp would change what is read",
        ),
        (
            [*REQUIRED, "--topics", "a", "--option", "Isolation.Level=read_uncommitted"],
            "would change what is read",
        ),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], what: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(arguments)
    assert what in caught.value.what


def test_an_empty_directory_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path), "--verify"]) == 0
    assert capsys.readouterr().out == "all committed files are present and complete\n"


@pytest.mark.parametrize(
    "command", [["-m", "tidemark_jobs.offload"], [str(ROOT / "spark-jobs/jobs/offload.py")]]
)
def test_the_module_and_the_script_run_the_command(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *command, "--output", str(tmp_path), "--show"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == "nothing is covered yet\n"
