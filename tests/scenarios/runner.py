"""Scripts with their expected output, as in etcd's datadriven tests.

    # A comment says why.
    command argument key=value
    another
    ----
    what happened, line by line

A block ends at an empty line. ``REWRITE=1`` puts what happened in the place of what was expected.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEPARATOR: Final = "----"


@dataclass(frozen=True)
class Command:
    """One line: a verb, arguments, and key=value options."""

    verb: str
    arguments: tuple[str, ...]
    options: dict[str, str]

    def number(self, key: str, default: int) -> int:
        """An option that is an integer."""
        return int(self.options.get(key, default))


@dataclass(frozen=True)
class Block:
    """Comments, commands, and the lines they should give."""

    comments: tuple[str, ...]
    commands: tuple[str, ...]
    expected: tuple[str, ...]


def parse_command(line: str) -> Command:
    """``produce p1 seq=0``: verb, arguments, options."""
    verb, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Command(verb, tuple(word for word in words if "=" not in word), options)


def parse(text: str) -> list[Block]:
    """The blocks of a script."""
    blocks = []
    for part in text.strip().split("\n\n"):
        lines = part.splitlines()
        cut = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
        comments = tuple(line for line in lines[:cut] if line.startswith("#"))
        commands = tuple(line for line in lines[:cut] if line and not line.startswith("#"))
        assert SEPARATOR in lines or not commands, f"no {SEPARATOR} behind {commands}"
        blocks.append(Block(comments, commands, tuple(lines[cut + 1 :])))
    return blocks


def play(blocks: list[Block], execute: Callable[[Command], list[str]]) -> str:
    """The script again, with what really happened."""
    parts = []
    for block in blocks:
        lines = [*block.comments, *block.commands]
        if block.commands:
            lines.append(SEPARATOR)
        for command in block.commands:
            lines += execute(parse_command(command))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def run_script(
    path: Path, execute: Callable[[Command], list[str]], *, rewrite: bool
) -> tuple[str, str]:
    """(expected, happened) of one script; with ``rewrite`` the file then says what happened."""
    expected = path.read_text()
    happened = play(parse(expected), execute)
    if rewrite and happened != expected:
        path.write_text(happened)
        return happened, happened
    return expected, happened
