"""The wire is read at the edge, once: fields of messages in the ``*_mapping`` modules only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHELLS = (
    "services/controller/controller/shell",
    "services/txn-coordinator/txn_coordinator/shell",
    "services/share-coordinator/share_coordinator/shell",
)
# Makes the updates of the feed, each encoded once for all subscribers.
LEFT_OUT = frozenset({"services/controller/controller/shell/metadata_feed.py"})


def wire_modules(tree: ast.Module) -> set[str]:
    """Names under which a module imports messages."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidemark_wire")
        for alias in node.names
        if alias.name.endswith("_pb2")
    }


def is_message(annotation: ast.AST | None, modules: set[str]) -> bool:
    names = (node for node in ast.walk(annotation or ast.Pass()) if isinstance(node, ast.Name))
    return any(name.id in modules for name in names)


def messages_of(function: ast.AST, modules: set[str]) -> set[str]:
    """Parameters that are messages, or streams of them, and what loops over these yield."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    arguments = (*function.args.args, *function.args.kwonlyargs)
    found = {one.arg for one in arguments if is_message(one.annotation, modules)}
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.AsyncFor) and isinstance(node.target, ast.Name):
            found |= {node.target.id} if ast.unparse(node.iter) in found else set()
    return found


def fields_touched(path: Path) -> Iterator[str]:
    """Each read of a field and each message made, with its line."""
    tree = ast.parse(path.read_text())
    modules = wire_modules(tree)
    for function in ast.walk(tree):
        messages = messages_of(function, modules)
        for node in ast.walk(function) if messages else ():
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in messages
            ):
                yield f"{path.name}:{node.lineno}: {ast.unparse(node)}"
    for node in ast.walk(tree):
        made = node.func if isinstance(node, ast.Call) else None
        if isinstance(made, ast.Attribute) and ast.unparse(made.value) in modules:
            yield f"{path.name}:{node.lineno}: {ast.unparse(made)}()"  # type: ignore[attr-defined]


def test_fields_of_messages_are_read_in_mappings_only() -> None:
    paths = [path for shell in SHELLS for path in sorted((ROOT / shell).rglob("*.py"))]
    read = [
        line
        for path in paths
        if not path.name.endswith("_mapping.py") and str(path.relative_to(ROOT)) not in LEFT_OUT
        for line in fields_touched(path)
    ]
    assert read == []


@pytest.mark.parametrize(
    "code",
    [
        "async def f(request: pb.Ask) -> None: g(request.field)",
        "async def f(requests: Stream[pb.Ask]) -> None:\n async for one in requests: g(one.field)",
        "def f() -> object: return pb.Answer(field=1)",
    ],
)
def test_a_field_that_is_read_elsewhere_is_seen(code: str, tmp_path: Path) -> None:
    path = tmp_path / "rpc.py"
    path.write_text(f"from tidemark_wire.v1 import txn_pb2 as pb\n{code}\n")
    assert len(list(fields_touched(path))) == 1
