"""Tests that prove a feature, read from their source: where each lives, and whether it runs at all.

A mark of a test that is skipped or expected to fail whatever the machine proves nothing, nor does
one on a function that is no test or does nothing.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CLUSTER, OUTSIDE, SIMULATED, INSIDE = "cluster", "outside", "simulated", "inside"
PLACES: Final = (CLUSTER, OUTSIDE, SIMULATED, INSIDE)
"""Best first: Kubernetes; real processes; services or scripts on simulated machines; one module."""

_CLUSTER_FOLDER: Final = "k8s"
_OUTSIDE_FOLDERS: Final = ("e2e", "spark", "chaos", "conformance")
_SIMULATED_FOLDERS: Final = ("sim", "scenarios")
_STARTERS: Final = frozenset(
    (
        "BrokerProcess",
        "Cluster",
        "ControllerProcess",
        "NetnsCluster",
        "OneBroker",
        "SparkSession",
        "StartCluster",
        "guarded_controller",
        "metered_cluster",
        "mutual_cluster",
        "running_zookeeper",
        "secured_cluster",
        "subprocess",
    )
)
"""A module that names none of them starts no process: it has its broker in a thread of its own."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def place_of(path: Path, text: str) -> str | None:
    """Where the tests of a module look from; None if `make test` does not run it."""
    folder = path.relative_to(ROOT / "tests").parts[0]
    if folder == _CLUSTER_FOLDER:
        return CLUSTER
    if folder in _SIMULATED_FOLDERS:
        return SIMULATED
    if folder not in _OUTSIDE_FOLDERS:
        return INSIDE
    if any(path.is_relative_to(ROOT / name) for name in _not_in_make_test()):
        return None
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return OUTSIDE if names & _STARTERS else INSIDE


@cache
def _not_in_make_test() -> tuple[str, ...]:
    found = re.search(r"^JAVA_TESTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None, "the Makefile names the tests that need Maven"
    return tuple(found[1].split())


@cache
def proofs() -> dict[str, set[str]]:
    """By feature id: the places of the tests that prove it."""
    places: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        place = place_of(path, text) if "mark.feature" in text else None
        if place is not None:
            for feature in features_in(text):
                places.setdefault(feature, set()).add(place)
    return places


def features_in(text: str) -> set[str]:
    """Ids that the running tests of a module prove."""
    return set(_Module(ast.parse(text)).features())


class _Module:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._named = {
            target.id: statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }

    def features(self) -> Iterator[str]:
        own = self._marks([self._named["pytestmark"]] if "pytestmark" in self._named else [])
        if any(map(_is_dead, own)) or any(map(_ends_test, self._tree.body)):
            return
        tests = list(self._tests(self._tree.body))
        if tests:
            yield from _ids(own)
            yield from self._of_tables()
        for marks in tests:
            yield from _ids(marks)

    def _tests(self, body: list[ast.stmt]) -> Iterator[list[ast.expr]]:
        """Marks of each test that runs."""
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                of_class = self._marks(statement.decorator_list)
                if not any(map(_is_dead, of_class)):
                    yield from ([*of_class, *marks] for marks in self._tests(statement.body))
            if not isinstance(statement, Function) or not statement.name.startswith("test_"):
                continue
            marks = self._marks(statement.decorator_list)
            if not any(map(_is_dead, marks)) and _does_something(statement):
                yield marks

    def _of_tables(self) -> Iterator[str]:
        """Ids of marks in parameters and tables, which pytest gives to single cases."""
        decorators = {
            id(one)
            for node in ast.walk(self._tree)
            if isinstance(node, Function | ast.ClassDef)
            for one in node.decorator_list
        }
        mark = self._named.get("pytestmark")
        dead = {
            id(inner)
            for node in ast.walk(self._tree)
            if _is_dead_case(node)
            for inner in ast.walk(node)
        }
        own = {id(inner) for inner in ast.walk(mark)} if mark is not None else set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and not {id(node)} & (decorators | dead | own):
                yield from _ids([node])

    def _marks(self, marks: Iterable[ast.expr]) -> list[ast.expr]:
        """With names of the module replaced by what they stand for, and lists by their items."""
        found: list[ast.expr] = []
        for mark in marks:
            known = self._named.get(mark.id) if isinstance(mark, ast.Name) else None
            if isinstance(mark, ast.List | ast.Tuple):
                found += self._marks(mark.elts)
            else:
                found.append(mark if known is None else known)
        return found


def _ids(marks: Iterable[ast.expr]) -> Iterator[str]:
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("mark.feature"):
            yield from (str(ast.literal_eval(argument)) for argument in mark.args)


def _is_dead(mark: ast.expr) -> bool:
    """True if the mark skips the test, or expects it to fail, on every machine."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    name = ast.unparse(called).rpartition("mark.")[2]
    if name == "skip":
        return True
    conditions = mark.args[:1] if isinstance(mark, ast.Call) else []
    if name == "xfail":
        return not conditions or _is_true(conditions[0])
    return name == "skipif" and bool(conditions) and _is_true(conditions[0])


def _is_true(condition: ast.expr) -> bool:
    try:
        return bool(ast.literal_eval(condition))
    except ValueError:
        return False


def _is_dead_case(node: ast.AST) -> bool:
    """True for a ``pytest.param`` with a mark that skips it everywhere."""
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("param"):
        return False
    return any(
        isinstance(inner, ast.expr) and _is_dead(inner)
        for keyword in node.keywords
        if keyword.arg == "marks"
        for inner in ast.walk(keyword.value)
    )


def _ends_test(statement: ast.stmt) -> bool:
    """True for ``pytest.skip()`` and ``pytest.xfail()`` that no condition guards."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(statement, ast.Raise):
        value = statement.exc
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func) in ("pytest.skip", "pytest.xfail", "pytest.skip.Exception")


def _does_something(test: Function) -> bool:
    """True if more than a docstring runs, and none ends the test without a condition."""
    work = [one for one in test.body if not isinstance(one, ast.Pass)]
    work = [
        one
        for one in work
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    return bool(work) and not isinstance(work[0], ast.Return) and not any(map(_ends_test, work))
