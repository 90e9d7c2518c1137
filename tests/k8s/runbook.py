"""Commands of docs/operating/kubernetes.md, run as they are printed there."""

import re
from pathlib import Path
from typing import Final

from k8s.release import TIDEMARK, run
from lab.settings import ROOT

PAGE: Final = ROOT / "docs/operating/kubernetes.md"
NAMESPACE: Final = "log"
"""Namespace of the release in the page; the release is ``demo``."""
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, list[str]]:
    """Commands by the headings that they are below, in the order of the page."""
    found = {}
    for part in re.split(r"^###? ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        blocks = (block for language, block in _BLOCK.findall(text) if not language)
        commands = "".join(blocks).splitlines()
        if commands:
            found[heading] = commands
    return found


class Runbook:
    """Commands of one section, for a release in a namespace of its name."""

    def __init__(self, heading: str, directory: Path, name: str = "demo", **words: str) -> None:
        """``words``: what an operator puts in place of words in capital letters."""
        self._left = [_fitted(command, name, words) for command in sections()[heading]]
        self._directory = directory
        (directory / "helm").symlink_to(ROOT / "helm")

    def next(self, beginning: str = "", *, also: str = "") -> str:
        """Run the next command, which begins so; return what it prints. ``also``: further
        arguments.
        """
        command = self._left.pop(0)
        assert command.startswith(beginning), command
        line = f"cd {self._directory}; PATH=$PATH:{TIDEMARK.parent}; {command} {also}"
        return run("sh", "-c", line)

    def rest(self) -> list[str]:
        """Run the commands that are left; return what they print."""
        return [self.next() for _ in range(len(self._left))]

    def check_done(self) -> None:
        """Fail if a command is left."""
        assert self._left == []


def _fitted(command: str, name: str, words: dict[str, str]) -> str:
    """A command for a release in a namespace of its name."""
    command = re.sub(rf"(-n|--namespace) {NAMESPACE}\b", rf"\1 {name}", command)
    command = re.sub(r"\bdemo\b", name, command)
    for word, value in words.items():
        command = re.sub(rf"\b{word}\b", value, command)
    return command
