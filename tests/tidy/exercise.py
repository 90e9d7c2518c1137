"""The table of invariants in CONTRIBUTING.md, and a module with one of its changes made."""

import ast
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "CONTRIBUTING.md"
ROW: Final = re.compile(
    r"^\| (?P<invariant>[^|]+) \| `(?P<path>[\w./-]+\.py)`, `(?P<function>[\w.]+)`"
    r" \| `(?P<old>[^|`]+)` → `(?P<new>[^|`]+)` \| `(?P<test>tests/[\w./]+\.py(?:::\w+)+)` \|$",
    re.MULTILINE,
)


class Exercise(NamedTuple):
    """One row: a change to a function that breaks an invariant, and the test that finds it."""

    invariant: str
    path: str
    function: str
    old: str
    new: str
    test: str


def exercises() -> list[Exercise]:
    """All rows of the table, in order."""
    return [Exercise(**match.groupdict()) for match in ROW.finditer(DOCUMENT.read_text())]


def broken_source(exercise: Exercise) -> str:
    """The module's source with the change in it. ValueError if the change does not fit."""
    source = (ROOT / exercise.path).read_text()
    first, last = _lines_of(ast.parse(source), exercise.function)
    lines = source.splitlines(keepends=True)
    body = "".join(lines[first - 1 : last])
    if body.count(exercise.old) != 1:
        count = body.count(exercise.old)
        raise ValueError(f"{exercise.path}: {exercise.function} has {exercise.old!r} {count} times")
    changed = body.replace(exercise.old, exercise.new)
    return "".join([*lines[: first - 1], changed, *lines[last:]])


def _lines_of(tree: ast.Module, function: str) -> tuple[int, int]:
    """First and last line of a function or method, ``Class.method`` or ``function``."""
    body: list[ast.stmt] = tree.body
    place: tuple[int, int] | None = None
    for name in function.split("."):
        named = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == name
        ]
        if len(named) != 1 or named[0].end_lineno is None:
            raise ValueError(f"no function {function}")
        place, body = (named[0].lineno, named[0].end_lineno), named[0].body
    assert place is not None, "a name has at least one part"
    return place
