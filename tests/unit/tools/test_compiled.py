"""The list of compiled modules, and what a process says of its build."""

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled.build import OWN, PACKAGES, ROOT, Interpreter, key
from compiled.modules import COMPILED, INTERPRETED, sources
from tidemark.runtime.build import build_text, is_compiled

pytestmark = pytest.mark.feature("Y16")

INTERPRETED_ANYWAY = frozenset(
    ("BaseException", "Enum", "Exception", "IntEnum", "IntFlag", "NamedTuple", "Protocol")
)
"""Classes with these bases are no extension types, whatever compiles them."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tree")
    for folder in PACKAGES:
        shutil.copytree(ROOT / folder, made / Path(folder).name)
    return made


@pytest.mark.parametrize("pattern", COMPILED)
def test_every_pattern_finds_modules(tree: Path, pattern: str) -> None:
    assert list(tree.glob(pattern))


def test_modules_that_stay_interpreted_exist_and_are_left_out(tree: Path) -> None:
    found = {str(path.relative_to(tree)) for path in sources(tree)}
    assert [name for name in INTERPRETED if not (tree / name).is_file()] == []
    assert found.isdisjoint(INTERPRETED)
    assert "broker/core/partition.py" in found


def test_a_tree_is_kept_by_what_goes_into_it() -> None:
    assert key() == key(OWN)
    assert len(key()) == 16
    assert key(Interpreter("another", OWN.argv)) != key()


def test_a_process_says_what_it_runs() -> None:
    kind = "compiled" if is_compiled() else "interpreted"
    assert build_text().startswith(f"{kind}, Python 3.")


def module_of(tree: Path, path: Path) -> str:
    """Return the name by which a file is imported."""
    return ".".join(path.relative_to(tree).with_suffix("").parts)


def bases_of(tree: Path, path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield each class of a file with its imported bases: class, module and name of the base."""
    parsed = ast.parse(path.read_text())
    imported = {
        name.asname or name.name: (each.module, name.name)
        for each in ast.walk(parsed)
        if isinstance(each, ast.ImportFrom) and each.module
        for name in each.names
    }
    for each in ast.walk(parsed):
        if isinstance(each, ast.ClassDef):
            for base in each.bases:
                name = ast.unparse(base).partition("[")[0]
                if name in imported:
                    yield (f"{module_of(tree, path)}.{each.name}", *imported[name])


def extension_types(tree: Path) -> set[tuple[str, str]]:
    """Return module and name of the classes that are compiled to extension types."""
    found = set()
    for path in sources(tree):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.ClassDef):
                names = {ast.unparse(base).partition("[")[0] for base in each.bases}
                if not names & INTERPRETED_ANYWAY:
                    found.add((module_of(tree, path), each.name))
    return found


def test_no_interpreted_class_inherits_from_a_compiled_one(tree: Path) -> None:
    compiled, types = set(sources(tree)), extension_types(tree)
    assert ("tidemark.protocol.acl_authorizer", "AclAuthorizer") in types
    wrong = [
        f"{name} inherits from {module}.{base}"
        for path in sorted(tree.rglob("*.py"))
        if path not in compiled
        for name, module, base in bases_of(tree, path)
        if (module, base) in types
    ]
    assert wrong == []


def test_no_name_stands_for_two_types_of_exceptions(tree: Path) -> None:
    """mypyc gives a variable the type of its first exception; another one is a TypeError there."""
    shared = []
    for path in sources(tree):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds: dict[str, set[str]] = {}
                for handler in ast.walk(each):
                    if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                        kinds.setdefault(handler.name, set()).add(ast.unparse(handler.type))
                shared += [
                    f"{module_of(tree, path)}.{each.name}: {name} is {sorted(kind)}"
                    for name, kind in kinds.items()
                    if len(kind) > 1
                ]
    assert shared == []
