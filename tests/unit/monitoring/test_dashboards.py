"""Dashboards are what the tool writes."""

import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "monitoring/dashboards"


@pytest.fixture(scope="module")
def pages() -> Mapping[str, str]:
    write: Callable[[], Mapping[str, str]] = runpy.run_path(
        str(ROOT / "tools/write_dashboards.py")
    )["pages"]
    return write()


@pytest.mark.feature("AD80")
def test_the_files_are_what_the_tool_writes(pages: Mapping[str, str]) -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == pages


def test_panels_do_not_overlap_and_dashboards_have_names_of_their_own(
    pages: Mapping[str, str],
) -> None:
    boards = [json.loads(text) for text in pages.values()]
    assert len({board["uid"] for board in boards}) == len(boards) == 7
    for board in boards:
        places = {(one["gridPos"]["x"], one["gridPos"]["y"]) for one in board["panels"]}
        assert len(places) == len(board["panels"])
        assert all(one["targets"][0]["expr"] for one in board["panels"])
