"""Every script under tests/scenarios/groups gives what it says; REWRITE=1 renews what it says."""

import os
from pathlib import Path

import pytest
from scenarios.group_world import GroupWorld
from scenarios.runner import run_script

SCRIPTS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


@pytest.mark.feature("A09", "E13")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    rewrite = os.environ.get("REWRITE", "") not in ("", "0")
    expected, happened = run_script(path, GroupWorld().execute, rewrite=rewrite)
    assert happened == expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5
