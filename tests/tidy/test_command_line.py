"""docs/command-line.md and the command line agree: commands, options, codes, settings, fields."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tidemark.cli.main import app
from tidemark.cli.settings import SETTINGS, variable_of
from tidemark.cli.topic.percent_format import InputFormat, compile_format
from tidy.proofs import ROOT

PAGE = (ROOT / "docs/command-line.md").read_text()
COMMON = frozenset(("--bootstrap", "-b", "--output", "-o", "--help", "-h"))
"""Described once, above the tables."""


def rows(head: str) -> list[list[str]]:
    """Cells of the table under this head, without their marks."""
    table = PAGE.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def documented() -> dict[str, set[str]]:
    """Options by command."""
    commands = re.findall(r"^\| `([a-z][^`]*)` \| (.*?) \| .+ \|$", PAGE, re.MULTILINE)
    found = {}
    for command, options in commands:
        words = [word for word in command.split() if re.fullmatch(r"[a-z][a-z0-9-]*", word)]
        if len(words) > 1:
            found[" ".join(words)] = set(re.findall(r"`(-[^`]+)`", options))
    return found


def real(node: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Options by command, without hidden commands."""
    node = typer.main.get_command(app) if node is None else node
    for name, command in getattr(node, "commands", {}).items():
        yield from real(command, (*path, name))
    if path and not hasattr(node, "commands") and not node.hidden:
        names = {name for each in node.params for name in (*each.opts, *each.secondary_opts)}
        yield " ".join(path), {name for name in names if name.startswith("-")} - COMMON


@pytest.mark.feature("AD66")
def test_every_command_is_on_the_page_and_no_other() -> None:
    assert set(documented()) == {command for command, _ in real()}


@pytest.mark.feature("AD66")
@pytest.mark.parametrize(("command", "options"), list(real()))
def test_every_option_of_a_command_is_on_the_page_and_no_other(
    command: str, options: set[str]
) -> None:
    assert documented()[command] == options


@pytest.mark.feature("AD66")
def test_the_exit_codes_are_those_of_the_help() -> None:
    codes = [int(row[0]) for row in rows("| code | meaning |")]
    assert codes == [int(code) for code in re.findall(r"(\d+) ", app.info.epilog or "")]


@pytest.mark.feature("AD66")
def test_every_setting_is_on_the_page_with_its_variable_and_default() -> None:
    table = rows("| setting | environment variable | default | meaning |")
    shown = [[cell.strip("`") for cell in row[:3]] for row in table]
    assert shown == [
        [name, variable_of(name), each.default or "-"] for name, each in SETTINGS.items()
    ]


FIELDS = [
    (letter, reads == "yes")
    for field, _, reads in rows("| field | content | `produce` reads it |")
    for letter in re.findall(r"`%([a-zA-Z])`", field)
]


@pytest.mark.feature("AD66")
@pytest.mark.parametrize(("letter", "reads"), FIELDS)
def test_a_field_on_the_page_is_a_field_of_formats(letter: str, reads: bool) -> None:
    assert compile_format(f"%{letter}")
    if reads:
        assert InputFormat.of(f"%{letter}")


@pytest.mark.feature("AD66")
def test_every_field_of_formats_is_on_the_page() -> None:
    assert {letter for letter, _ in FIELDS} == set("tpoTkvshKVS")
