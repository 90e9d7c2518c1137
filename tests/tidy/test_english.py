"""Docstrings of the product are plain English, as those of Kafka or PostgreSQL.

A docstring begins with an imperative or with a noun phrase. Its subjects are components, and
components do not hear, tell, know or wish. The docstrings that are left are counted by folder.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("lib/tidemark", "services", "spark-jobs")

LEFT: dict[str, int] = {
    "services/broker/broker/core": 33,
    "services/broker/broker/core/groups": 0,
    "services/broker/broker/shell": 5,
    "services/broker/broker/storage": 9,
}
"""Docstrings that are left, by folder or file; the longest path that fits counts. A path without an
entry has none. The numbers may only shrink.
"""

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


def place(path: str) -> str:
    """The longest entry of ``LEFT`` that fits, or the path itself."""
    fitting = (entry for entry in LEFT if f"{path}/".startswith(f"{entry}/"))
    return max(fitting, key=len, default=path)


def test_docstrings_are_plain_english() -> None:
    counted: Counter[str] = Counter()
    found: dict[str, list[str]] = {}
    for source in SOURCES:
        for file in sorted((ROOT / source).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            for line, text in docstrings(file.read_text()):
                words = problem(text)
                if words is not None:
                    counted[place(path)] += 1
                    found.setdefault(place(path), []).append(f"{path}:{line}: {words!r}")
    too_many = {entry: found[entry] for entry in counted if counted[entry] > LEFT.get(entry, 0)}
    assert too_many == {}, "say it in plain words; LEFT may only shrink"


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
def test_other_docstrings_are_counted(docstring: str, words: str) -> None:
    assert problem(docstring) == words
