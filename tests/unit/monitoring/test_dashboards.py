"""Dashboards are what the tool writes."""

import json
import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from promtool import needs_promtool, promtool

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


def test_all_topics_are_not_shown_beside_their_sum(pages: Mapping[str, str]) -> None:
    variables = json.loads(pages["topics.json"])["templating"]["list"]
    (every,) = (one["allValue"] for one in variables if one["name"] == "topic")
    assert re.fullmatch(every, "orders")
    assert not re.fullmatch(every, "")


@needs_promtool
@pytest.mark.feature("AD80")
def test_a_panel_shows_both_of_two_metrics_of_one_process(
    pages: Mapping[str, str], tmp_path: Path
) -> None:
    (query,) = (
        panel["targets"][0]["expr"]
        for panel in json.loads(pages["coordinators.json"])["panels"]
        if panel["title"] == "Records of the state of share groups"
    )
    records = "tidemark_share_state_records"
    shown = {
        "expr": f"sort(sum by (of) ({query}))",
        "eval_time": "5m",
        "exp_samples": [
            {"labels": '{of="live"}', "value": 3},
            {"labels": '{of="needed"}', "value": 5},
        ],
    }
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'{records}_needed{{instance="s1"}}', "values": "5x10"},
            {"series": f'{records}_live{{instance="s1"}}', "values": "3x10"},
        ],
        "promql_expr_test": [shown],
    }
    (tmp_path / "panels_test.yaml").write_text(yaml.safe_dump({"tests": [case]}))
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "panels_test.yaml")
