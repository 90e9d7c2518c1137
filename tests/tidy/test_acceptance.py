"""docs/acceptance.md and the tests agree: an id marked done has a test that names it and runs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ([A-Z]\d{1,2}) \| (done|part|later) \|", re.MULTILINE)


def is_feature_mark(function: ast.expr) -> bool:
    named = isinstance(function, ast.Attribute) and function.attr == "feature"
    return named and ast.unparse(function).endswith("mark.feature")


@cache
def ids_proved() -> set[str]:
    """Every id in a @feature("...") mark, unless its test is skipped without a condition."""
    proved: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "mark.feature" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and is_feature_mark(node.func):
                proved |= {str(ast.literal_eval(argument)) for argument in node.args}
    return proved


def rows() -> dict[str, str]:
    return dict(ROW.findall((ROOT / "docs/acceptance.md").read_text()))


def test_every_id_marked_done_has_a_test_that_names_it() -> None:
    done = {feature for feature, state in rows().items() if state == "done"}
    assert done - ids_proved() == set()


def test_every_id_a_test_names_is_in_the_list() -> None:
    assert ids_proved() - rows().keys() == set()


@pytest.mark.feature("B06")
@pytest.mark.parametrize("figure", ["600 MB/s", "100 KB/s", "28 to 30 GB", "10 GB", "10 ms"])
def test_the_documents_quote_the_figures_behind_the_design(figure: str) -> None:
    assert figure in (ROOT / "docs/performance.md").read_text()


@pytest.mark.feature("I12")
def test_the_documents_say_when_availability_comes_before_safety() -> None:
    text = " ".join((ROOT / "docs/replication.md").read_text().split())
    assert "can neither retry nor keep what it sends, availability may matter more" in text
