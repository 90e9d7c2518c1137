"""Patterns of ListTransactions (KIP-1152): the regular expressions that an operator may send.

Kafka reads them as RE2, which takes linear time. Python's engine backtracks, so everything that
could take long is refused: a repetition of a part that repeats or branches, many repetitions,
backreferences, lookaround. Ids longer than 1,024 characters match no pattern.
"""

import re
from typing import Final

PATTERN_CHARS_MAX: Final = 255
ID_CHARS_MAX: Final = 1_024
_REPEATS_MAX: Final = 8
_UNBOUNDED_MAX: Final = 3
"""Each may cost a factor of the id's length."""
_REPEAT: Final = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_GROUP: Final = re.compile(r"\((?:\?:|\?P<\w+>)?")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE: Final = re.compile(r"\\(?:[dDsSwWbBnrtfv]|x[0-9a-fA-F]{2}|[^\w])")


class IdPatternError(ValueError):
    """The pattern is refused. The text is the reason."""


def compile_id_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, which has to match whole ids. Raises IdPatternError."""
    if len(text) > PATTERN_CHARS_MAX:
        raise IdPatternError(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    _check_linear(text)
    try:
        return re.compile(text)
    except re.error as problem:
        raise IdPatternError(f"not a regular expression: {problem}") from None


def matches(pattern: re.Pattern[str], transactional_id: str) -> bool:
    """True if the pattern matches the whole id."""
    return len(transactional_id) <= ID_CHARS_MAX and pattern.fullmatch(transactional_id) is not None


def _check_linear(text: str) -> None:
    """Raise IdPatternError for a pattern that may take more than linear time."""
    groups, position = [False], 0  # for each open group: a part of it repeats or branches
    repeats: list[str] = []
    closed_branches = False
    while position < len(text):
        repeat = _REPEAT.match(text, position)
        if repeat is not None:
            repeats.append(repeat.group())
            if closed_branches:
                raise IdPatternError("a repetition of what repeats or branches is not supported")
            groups[-1] = True
            position = repeat.end()
        elif text[position] == ")":
            if len(groups) == 1:
                raise IdPatternError("a parenthesis is closed that was not opened")
            closed_branches = groups.pop()
            groups[-1] = groups[-1] or closed_branches
            position += 1
            continue
        else:
            position = _atom_end(text, position, groups)
        closed_branches = False
    unbounded = sum(repeat != "?" for repeat in repeats)
    if len(repeats) > _REPEATS_MAX or unbounded > _UNBOUNDED_MAX:
        raise IdPatternError(
            f"a pattern has at most {_REPEATS_MAX} repetitions, {_UNBOUNDED_MAX} of them not '?'"
        )


def _atom_end(text: str, position: int, groups: list[bool]) -> int:
    """Return the position after one character, class or escape, or after the start of a group."""
    kind = text[position]
    if kind == "(":
        opened = _GROUP.match(text, position)
        assert opened is not None
        if text.startswith("?", opened.end()):
            raise IdPatternError("only groups, named groups and (?:...) are supported")
        groups.append(False)
        return opened.end()
    if kind == "|":
        groups[-1] = True
    if kind not in "[\\":
        return position + 1
    atom = (_CLASS if kind == "[" else _ESCAPE).match(text, position)
    if atom is None:
        raise IdPatternError(f"not supported: {text[position : position + 2]}")
    return atom.end()
