"""Docstrings of the product are plain English, as those of Kafka or PostgreSQL.

A docstring begins with an imperative or with a noun phrase. Its subjects are components, and
components do not hear, tell, know or wish.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("lib/tidemark", "services", "spark-jobs")

FIRST = re.compile(r"(?:What|Who|Whether|How|Where|Why|If|When|Of)\b")
WORDS = re.compile(
    r"\b(?:hears|tells|told|knows|asks(?! for confirmation)|says|owes|wishes|whoever"
    r"|anew|no more(?= *(?:[.,;:)]|$))|any more|beside|for good|in vain|seldom|lest|as against"
    r"|comes to|came of|became of"
    r"|offices?|deserted|bury|buries|disturbs|disturbed|excuses?|forgives?)\b",
    re.IGNORECASE,
)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring of a module, those of attributes too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, " ".join(text.split())


def problem(docstring: str) -> str | None:
    """The words because of which a docstring is not plain, or None."""
    found = FIRST.match(docstring) or WORDS.search(docstring)
    return found[0] if found is not None else None


def test_docstrings_are_plain_english() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {words!r}"
        for source in SOURCES
        for file in sorted((ROOT / source).rglob("*.py"))
        for line, text in docstrings(file.read_text())
        if (words := problem(text)) is not None
    ]
    assert found == []


@pytest.mark.parametrize(
    "docstring",
    [
        "Return the high watermark.",
        "Base offset of the oldest segment. Readers need no more than that; it takes no more room.",
        "True if the ISR is known; hearsay is not enough.",
        "Bytes left, besides the header.",
    ],
)
def test_plain_docstrings_are_left_alone(docstring: str) -> None:
    assert problem(docstring) is None


@pytest.mark.parametrize(
    ("docstring", "words"),
    [
        ("What a round did.", "What"),
        ("Of the oldest segment.", "Of"),
        ("Called once the leader knows its term.", "knows"),
        ("The partition is served no more.", "no more"),
        ("Tells the owner. It asks for nothing.", "Tells"),
    ],
)
def test_other_docstrings_are_found(docstring: str, words: str) -> None:
    assert problem(docstring) == words
