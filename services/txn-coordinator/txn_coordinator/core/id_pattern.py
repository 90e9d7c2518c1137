"""Patterns of ListTransactions (KIP-1152): the regular expressions that an operator may send.

Kafka reads them as RE2, which takes linear time. Python's engine backtracks, so it gets only pieces
of a fixed width. What repeats and branches is followed here, by the set of all positions at which a
part may end: each position is visited once for each part. A repetition of a part that repeats or
branches, many repetitions, backreferences and lookaround are refused. Ids longer than 1,024
characters match no pattern.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

PATTERN_CHARS_MAX: Final = 255
ID_CHARS_MAX: Final = 1_024
_REPEATS_MAX: Final = 8
_UNBOUNDED_MAX: Final = 3
_COUNT_MAX: Final = 1_000
"""Largest number of a counted repetition, as in RE2."""
_REPEAT: Final = re.compile(r"[*+?]|\{(?:\d+(?:,\d*)?|,\d*)\}")
_GROUP: Final = re.compile(r"\((?:\?:|\?P<\w+>)?")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE: Final = re.compile(r"\\(?:[dDsSwWbBnrtfv]|x[0-9a-fA-F]{2}|[^\w])")


Ends = Callable[[str, set[int]], set[int]]
"""Part of a pattern: returns where it may end in an id, if it begins at any of some positions."""


class IdPatternError(ValueError):
    """The pattern is refused. The text is the reason."""


class IdPattern:
    """A compiled pattern."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends

    def fullmatch(self, text: str) -> bool:
        """Return True if the pattern matches the whole text."""
        return len(text) in self._ends(text, {0})


def compile_id_pattern(text: str) -> IdPattern:
    """Return the pattern, which has to match whole ids. Raises IdPatternError."""
    if len(text) > PATTERN_CHARS_MAX:
        raise IdPatternError(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    _check_linear(text)
    try:
        re.compile(text)
    except (re.error, OverflowError) as problem:
        raise IdPatternError(f"not a regular expression: {problem}") from None
    return IdPattern(_alternatives(text, 0)[0])


def matches(pattern: IdPattern, transactional_id: str) -> bool:
    """True if the pattern matches the whole id."""
    return len(transactional_id) <= ID_CHARS_MAX and pattern.fullmatch(transactional_id)


# -- parts


def _piece(source: str) -> Ends:
    """Return a part without repetitions and branches."""
    found = re.compile(source).match

    def ends(text: str, starts: set[int]) -> set[int]:
        return {match.end() for at in starts if (match := found(text, at))}

    return ends


def _in_turn(parts: Sequence[Ends]) -> Ends:
    def ends(text: str, starts: set[int]) -> set[int]:
        for part in parts:
            starts = part(text, starts)
        return starts

    return ends


def _either(branches: Sequence[Ends]) -> Ends:
    def ends(text: str, starts: set[int]) -> set[int]:
        return set().union(*(branch(text, starts) for branch in branches))

    return ends


def _repeated(source: str, repeat: str) -> Ends:
    """Return a piece that repeats. Raises IdPatternError."""
    least, most = _bounds(repeat)
    first, once = _piece(f"(?:{source}){{{least}}}"), _piece(source)

    def ends(text: str, starts: set[int]) -> set[int]:
        fresh = found = first(text, starts)
        rounds = least
        while fresh and rounds != most:
            fresh = once(text, fresh) - found
            found = found | fresh
            rounds += 1
        return found

    return ends


def _bounds(repeat: str) -> tuple[int, int | None]:
    """Return the least and the greatest number of a repetition; None: any number."""
    known = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(repeat)
    if known is not None:
        return known
    low, comma, high = repeat[1:-1].partition(",")
    if max(len(low), len(high)) > len(str(_COUNT_MAX)) or int(low or 0) > _COUNT_MAX:
        raise IdPatternError(f"a repetition has at most the count {_COUNT_MAX}")
    least = int(low or 0)
    return least, (int(high) if high else None) if comma else least


def _alternatives(text: str, position: int) -> tuple[Ends, int]:
    """Return the part up to the end of the text or of the group, and the position of that end.
    ``text`` is checked. Raises IdPatternError.
    """
    branches: list[Ends] = []
    parts: list[Ends] = []
    begun = position  # of a piece that is not among the parts yet
    while True:
        is_end = position == len(text) or text[position] == ")"
        if is_end or text[position] == "|":
            parts.append(_piece(text[begun:position]))
            branches.append(_in_turn(parts))
            if is_end:
                return _either(branches), position
            parts, begun = [], position + 1
            position += 1
            continue
        at, inner = position, None
        opened = _GROUP.match(text, position)
        if opened is not None:
            inner, position = _alternatives(text, opened.end())
            position += 1
        else:
            position = _atom_end(text, position, [False])
        repeat = _REPEAT.match(text, position)
        if repeat is None and inner is None:
            continue
        parts.append(_piece(text[begun:at]))
        if repeat is not None:
            inner = _repeated(text[at:position], repeat.group())
            position = _after_repeat(text, repeat.end())
        assert inner is not None, "a group or a repetition"
        parts.append(inner)
        begun = position


def _after_repeat(text: str, position: int) -> int:
    """Return the position behind the mark of a lazy repetition, which matches the same ids."""
    if text.startswith("+", position):
        raise IdPatternError("possessive repetitions are not supported")
    return position + text.startswith("?", position)


# -- the check


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
