"""The style guide, where a machine can hold it: sizes, pure cores, mirrored tests, true docs."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from tidemark.cli.log import app as log_commands
from tidemark.cli.main import app as cli

cli.add_typer(log_commands, name="log")

ROOT = Path(__file__).parents[2]
SERVICES = {
    "broker": "services/broker/broker",
    "controller": "services/controller/controller",
    "txn_coordinator": "services/txn-coordinator/txn_coordinator",
    "share_coordinator": "services/share-coordinator/share_coordinator",
}
SOURCES = ("lib/tidemark", *SERVICES.values(), "spark-jobs", "tools")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

# Late, by name: this list may only shrink.
LONG_MODULES: frozenset[str] = frozenset()
LONG_FUNCTIONS: frozenset[str] = frozenset()
UNTESTED_CORES: frozenset[str] = frozenset()
TYPE_CYCLES: frozenset[str] = frozenset(
    {"services/txn-coordinator/txn_coordinator/shell/metrics.py"}
)
"""Modules of a shell that name a type of a module that imports them."""

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    return sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))


class Function(NamedTuple):
    name: str
    lines: int
    """Without its docstring."""
    waits: bool


class Outline(NamedTuple):
    """What is asked of a module: small, for a syntax tree that is kept is walked by each collection
    of garbage.
    """

    functions: tuple[Function, ...]
    joined_assertions: tuple[int, ...]
    """Lines with ``assert a and b``."""


@cache
def outline(path: Path) -> Outline:
    found = list(statements(ast.parse(path.read_text())))
    return Outline(
        tuple(
            Function(node.name, body_lines(node), isinstance(node, ast.AsyncFunctionDef))
            for node in found
            if isinstance(node, AnyFunction)
        ),
        tuple(
            node.lineno
            for node in found
            if isinstance(node, ast.Assert)
            and isinstance(node.test, ast.BoolOp)
            and isinstance(node.test.op, ast.And)
        ),
    )


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement at any depth.

    Expressions are not entered: they are most of a tree, and hold none.
    """
    holders = (ast.stmt, ast.excepthandler, ast.match_case)
    todo: list[ast.AST] = [tree]
    while todo:
        for _, held in ast.iter_fields(todo.pop()):
            if isinstance(held, list):
                below = [node for node in held if isinstance(node, holders)]
                todo += below
                yield from (node for node in below if isinstance(node, ast.stmt))


def body_lines(function: AnyFunction) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) else 0  # type: ignore[operator]
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1 - docstring


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_function_is_a_monster() -> None:
    long = {
        f"{name(path)}:{function.name}"
        for path in source_files()
        for function in outline(path).functions
        if function.lines > FUNCTION_LINES_MAX
    }
    assert long == LONG_FUNCTIONS


def test_no_module_is_a_monster() -> None:
    long = {
        name(path)
        for path in source_files()
        if len(path.read_text().splitlines()) > MODULE_LINES_MAX
    }
    assert long == LONG_MODULES


def test_cores_never_wait() -> None:
    waiting = [
        f"{name(path)}:{function.name}"
        for path in source_files()
        if "core" in path.parts
        for function in outline(path).functions
        if function.waits
    ]
    assert waiting == []


def test_an_assertion_asserts_one_thing() -> None:
    joined = [
        f"{name(path)}:{line}"
        for path in source_files()
        for line in outline(path).joined_assertions
    ]
    assert joined == []


def test_every_core_and_storage_module_has_its_test_file() -> None:
    lacking = set()
    for service, folder in SERVICES.items():
        package = ROOT / folder
        for path in [*package.glob("core/**/*.py"), *package.glob("storage/**/*.py")]:
            within = path.relative_to(package).parent
            mirror = ROOT / "tests/unit" / service / within / f"test_{path.name}"
            if path.name != "__init__.py" and not mirror.exists():
                lacking.add(name(path))
    assert lacking == UNTESTED_CORES


def test_back_off_is_written_once() -> None:
    doubling = re.compile(r"min\(2 \*|<< min\(")
    by_hand = [name(path) for path in source_files() if doubling.search(path.read_text())]
    assert by_hand == ["lib/tidemark/model/backoff.py"]


@pytest.mark.parametrize("service", SERVICES.values())
def test_the_interpreter_sees_every_import_of_a_shell(service: str) -> None:
    shell = ROOT / service / "shell"
    hiding = {name(path) for path in shell.rglob("*.py") if "TYPE_CHECKING" in path.read_text()}
    assert hiding <= TYPE_CYCLES


def test_nothing_is_left_to_fix_me() -> None:
    mark = "FIX" + "ME"
    marked = [name(path) for path in source_files() if mark in path.read_text()]
    assert marked == []


DOCS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMED_PATH = re.compile(
    r"`((?:lib|services|spark-jobs|tests|tools|docs|proto|requirements|\.ci)/[\w./*{},-]+|[A-Z]+\.md|Makefile)`"
)


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_a_document_names_exists(doc: Path) -> None:
    named = {match.rstrip("/.") for match in NAMED_PATH.findall(doc.read_text())}
    plain = {path for path in named if not set("*{}") & set(path)}
    assert [path for path in sorted(plain) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_between_documents_leads_somewhere(doc: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", doc.read_text())
    assert [target for target in targets if not (doc.parent / target).exists()] == []


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_in_a_document_is_a_target(doc: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z0-9-]+)", doc.read_text()))
    assert named - targets == set()


PROSE_COLUMNS_MAX = 120


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a document that can be wrapped: no tables, no code, no single long word."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        in_code ^= line.lstrip().startswith("```")
        if not in_code and not line.startswith(("|", "    ")):
            yield number, re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`", "", line)


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_prose_of_a_document_has_one_width(doc: Path) -> None:
    lines = prose_lines(doc.read_text())
    wide = [number for number, line in lines if len(line) > PROSE_COLUMNS_MAX]
    assert wide == []


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_ids_of_acceptance_lines_are_in_their_table_alone(doc: Path) -> None:
    rows = (ROOT / "docs/acceptance.md").read_text()
    ids = set(re.findall(r"^\| ([A-Z]{1,2}\d{2}) \|", rows, re.MULTILINE))
    used = set(re.findall(r"\b[A-Z]{1,2}\d{2}\b", doc.read_text()))
    assert doc.name == "acceptance.md" or not used & ids


COMMAND = re.compile(r"(?<![\w/-])tidemark((?: [a-z][a-z0-9-]*)+)")
"""`tidemark topic create orders`, as its words."""
QUOTED = re.compile(r"```(.*?)```|`([^`]+)`", re.DOTALL)


@cache
def command_line() -> Any:
    """As a tree: a group has ``commands``."""
    return typer.main.get_command(cli)


def unknown_commands(text: str) -> Iterator[str]:
    """Those that begin as a command does and go on as none."""
    for match in COMMAND.findall(text):
        words = match.split()
        node = command_line()
        for number, word in enumerate(words, 1):
            if not hasattr(node, "commands"):
                break  # what follows is an argument
            node = node.commands.get(word)
            if node is None:
                yield " ".join(["tidemark", *words[:number]])


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_tidemark_command_in_a_document_exists(doc: Path) -> None:
    quoted = ["".join(found) for found in QUOTED.findall(doc.read_text())]
    assert [one for text in quoted for one in unknown_commands(text)] == []


def test_every_tidemark_command_in_an_alert_exists() -> None:
    alerts = (ROOT / "monitoring/alerts.yaml").read_text()
    assert len(re.findall(r"`tidemark ", alerts)) > 5
    assert list(unknown_commands(alerts)) == []


def test_every_tidemark_command_in_a_message_exists() -> None:
    groups = tuple(f"tidemark {name} " for name in command_line().commands)
    texts = {
        node.value
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    advised = [text for text in sorted(texts) if any(group in text for group in groups)]
    assert [one for text in advised for one in unknown_commands(text)] == []


def test_commits_hold_no_machine_path_and_no_index_address() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    forbidden = re.compile(r"(?:^|[^\w.])/(?:work|root|home)/|--(?:extra-)?index-" + "url")
    guilty = [
        path
        for path in listed
        if (ROOT / path).is_file()
        and (ROOT / path).suffix in {".py", ".toml", ".txt", ".in", ".md", ".proto", ".yaml"}
        and forbidden.search((ROOT / path).read_text())
    ]
    assert guilty == []
