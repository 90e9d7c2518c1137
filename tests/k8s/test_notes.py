"""What the chart prints after an installation: every command of it works as it is printed."""

import subprocess
import urllib.request
from pathlib import Path
from typing import Final

import pytest
from k8s.conftest import EXTERNAL
from k8s.release import Release, run, write_values
from lab.settings import environment
from waiting import PATIENCE_S, wait_for

PROGRAMS: Final = ("kubectl ", "helm ", "tidemark ")
READY: Final = "http://127.0.0.1:8080/readyz"


def commands(notes: str) -> list[str]:
    """The indented lines that begin with a program."""
    found = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
    return [line for line in found if line.startswith(PROGRAMS)]


def answers(url: str) -> bool:
    """True once the port is forwarded to a controller that is ready."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.feature("KU22")
def test_every_command_of_the_notes_works(release: Release, tmp_path: Path) -> None:
    notes = release.install(write_values(tmp_path / "values.yaml", external=EXTERNAL))
    release.wait_updated()
    if release.says("topic", "describe", "first"):
        release.tidemark("topic", "delete", "first", "--yes")
    found = commands(notes)
    for command in found:
        if "port-forward" in command:
            with subprocess.Popen(command.split(), env=environment()) as forward:
                try:
                    wait_for(lambda: answers(READY), command)
                finally:
                    forward.terminate()
        else:
            run("sh", "-c", command)
    assert {command.split()[0] for command in found} == {"kubectl", "helm"}
    assert any("port-forward" in command for command in found)
    assert any("logs job/" in command for command in found)
