"""Every diagram of docs/states equals the table that it was drawn from."""

import runpy
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@cache
def tool() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/draw_states.py"))


def test_every_diagram_equals_its_table(tmp_path: Path) -> None:
    tool()["write"](tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs/states").iterdir()}
    assert kept == drawn, "run tools/draw_states.py"


def test_every_move_of_a_table_is_drawn() -> None:
    for diagram in tool()["DIAGRAMS"].values():
        moves = sum(map(len, diagram.previous.values()))
        arrows = tool()["draw"](diagram).count(" --> ")
        assert arrows == moves + 1 + (diagram.last is not None)
