"""Syntax of patterns: RE2's, without classes of Unicode."""

import string
from dataclasses import dataclass
from enum import Enum
from typing import Final

PATTERN_CHARS_MAX: Final = 8_192
NESTING_MAX: Final = 50
REPEAT_MAX: Final = 1_000
"""Largest repetition count, as in RE2."""
RANGE_CHARS_MAX: Final = 128
"""Largest range in brackets, all of ASCII: its characters are kept one by one."""


class PatternError(ValueError):
    """Syntax error in a pattern; the message is for the pattern's author."""


class Place(Enum):
    """Position at which a zero-width assertion holds."""

    START = "start"
    END = "end"
    BOUNDARY = "boundary"
    NO_BOUNDARY = "no boundary"


@dataclass(frozen=True, slots=True)
class Chars:
    """A single character out of ``chars``, or any other one if ``is_negated``."""

    chars: frozenset[str]
    is_negated: bool = False

    def has(self, char: str) -> bool:
        """True if this character matches."""
        return (char in self.chars) is not self.is_negated

    def negated(self) -> "Chars":
        """Return the characters that do not match."""
        return Chars(self.chars, not self.is_negated)

    def union(self, other: "Chars") -> "Chars":
        """Return the characters that match either of them."""
        match self.is_negated, other.is_negated:
            case False, False:
                return Chars(self.chars | other.chars)
            case True, True:
                return Chars(self.chars & other.chars, is_negated=True)
            case True, False:
                return Chars(self.chars - other.chars, is_negated=True)
        return Chars(other.chars - self.chars, is_negated=True)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A zero-width assertion."""

    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    """All parts, in order."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """Any one of the parts."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``part`` repeated ``least`` to ``most`` times; None: without limit."""

    part: "Node"
    least: int
    most: int | None


Node = Chars | Assertion | Sequence | Either | Repeat

_DIGITS: Final = frozenset(string.digits)
_LETTERS: Final = frozenset(string.ascii_letters)
_WORD: Final = _LETTERS | _DIGITS | {"_"}
_BLANK: Final = frozenset(" \t")
_SPACE: Final = _BLANK | frozenset("\n\f\r")
_CONTROLS: Final = frozenset(map(chr, (*range(32), 127)))
_ASCII: Final = frozenset(map(chr, range(128)))
_DOT: Final = Chars(frozenset("\n"), is_negated=True)
_CLASSES: Final = {
    "d": Chars(_DIGITS),
    "D": Chars(_DIGITS, is_negated=True),
    "w": Chars(_WORD),
    "W": Chars(_WORD, is_negated=True),
    "s": Chars(_SPACE),
    "S": Chars(_SPACE, is_negated=True),
}
_NAMED_CLASSES: Final = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": _ASCII,
    "blank": _BLANK,
    "cntrl": _CONTROLS,
    "digit": _DIGITS,
    "graph": _ASCII - _CONTROLS - {" "},
    "lower": frozenset(string.ascii_lowercase),
    "print": _ASCII - _CONTROLS,
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_PLACES: Final = {
    "A": Place.START,
    "z": Place.END,
    "b": Place.BOUNDARY,
    "B": Place.NO_BOUNDARY,
}
_CONTROL: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset("imsU")
_NOTHING: Final = Sequence(())


def parse(text: str) -> Node:
    """Return the syntax tree of a pattern. Raises PatternError."""
    if len(text) > PATTERN_CHARS_MAX:
        raise PatternError(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    parser = _Parser(text)
    node = parser.alternatives()
    if not parser.at_end:
        raise PatternError(f"unexpected ) at {parser.position}")
    return node


class _Parser:
    """Recursive-descent parser; ``position`` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self._any_case = False
        self._depth = 0

    @property
    def at_end(self) -> bool:
        return self.position == len(self.text)

    def alternatives(self) -> Node:
        parts = [self._sequence()]
        while self._skip("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while not self.at_end and self.text[self.position] not in "|)":
            parts.extend(self._quantified())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quantified(self) -> list[Node]:
        start = self.position
        atoms = self._atom()
        times = self._times()
        if times is None:
            return atoms
        if not atoms:
            raise PatternError(f"nothing to repeat at {start}")
        repeated = Repeat(atoms[-1], *times)
        self._skip("?")  # lazy or greedy: the same names match
        if self._times() is not None:
            raise PatternError(f"repeated twice at {start}")
        return [*atoms[:-1], repeated]

    def _atom(self) -> list[Node]:
        """Return the nodes of one atom: several for quoted text, none for flags."""
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return [self._class()]
            case ".":
                return [_DOT]
            case "^":
                return [Assertion(Place.START)]
            case "$":
                return [Assertion(Place.END)]
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise PatternError(f"nothing to repeat at {self.position - 1}")
            case _:
                return [self._cased(char)]

    def _times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return times
        return self._counted() if self._peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """Parse ``{n}``, ``{n,}`` or ``{n,m}``; any other brace is literal, as in RE2."""
        end = self.text.find("}", self.position)
        least, comma, most = self.text[self.position + 1 : max(end, 0)].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        if max(len(least), len(most)) > len(str(REPEAT_MAX)):
            raise PatternError(f"more than {REPEAT_MAX} repetitions at {self.position}")
        lowest = int(least)
        highest = int(most) if most else (None if comma else lowest)
        if max(lowest, highest or 0) > REPEAT_MAX:
            raise PatternError(f"more than {REPEAT_MAX} repetitions at {self.position}")
        if highest is not None and highest < lowest:
            raise PatternError(f"repetitions count down at {self.position}")
        self.position = end + 1
        return lowest, highest

    def _group(self) -> list[Node]:
        any_case = self._any_case
        if self._skip("?") and self._group_head():
            return []
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise PatternError(f"groups nest deeper than {NESTING_MAX}")
        node = self.alternatives()
        if not self._skip(")"):
            raise PatternError("missing )")
        self._depth -= 1
        self._any_case = any_case
        return [node]

    def _group_head(self) -> bool:
        """Skip the text between ``(?`` and the group's content. True for flags without a group."""
        for named in ("P<", "<"):
            if self._skip(named):
                name, _, _ = self.text[self.position :].partition(">")
                if not name.isidentifier():
                    raise PatternError(f"no group name at {self.position}")
                self.position += len(name)
                self._expect(">")
                return False
        on = True
        while (char := self._next()) not in ":)":
            if char == "-" and on:
                on = False
            elif char in _FLAGS:
                self._any_case = on if char == "i" else self._any_case
            else:
                raise PatternError(f"unknown group at {self.position - 1}")
        return char == ")"

    def _escape(self) -> list[Node]:
        char = self._next()
        if char in _PLACES:
            return [Assertion(_PLACES[char])]
        if char == "Q":
            quoted, _, _ = self.text[self.position :].partition("\\E")
            self.position = min(len(self.text), self.position + len(quoted) + len("\\E"))
            return [self._cased(char) for char in quoted] or [_NOTHING]
        if char in _CLASSES:
            return [_CLASSES[char]]
        return [self._cased(self._escaped_char(char))]

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            return self._hexadecimal()
        if char.isalnum() and char.isascii():
            raise PatternError(f"unknown escape \\{char} at {self.position - 1}")
        return char

    def _hexadecimal(self) -> str:
        if self._skip("{"):
            digits, _, _ = self.text[self.position :].partition("}")
            self.position += len(digits)
            self._expect("}")
        else:
            digits = self.text[self.position : self.position + 2]
            self.position += len(digits)
        if not 2 <= len(digits) <= 6 or not set(digits) <= set(string.hexdigits):
            raise PatternError(f"no hexadecimal number at {self.position}")
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise PatternError(f"no such character at {self.position}")
        return chr(code)

    def _class(self) -> Chars:
        """Parse a bracket expression; a ``]`` as its first character is literal."""
        negated = self._skip("^")
        members = Chars(frozenset())
        first = True
        while first or self._peek() != "]":
            members = members.union(self._class_item())
            first = False
        self.position += 1
        return members.negated() if negated else members

    def _class_item(self) -> Chars:
        if self._skip("[:"):
            negated = self._skip("^")
            name, _, _ = self.text[self.position :].partition(":]")
            if name not in _NAMED_CLASSES:
                raise PatternError(f"unknown class at {self.position}")
            self.position += len(name) + len(":]")
            chars = self._cased(*_NAMED_CLASSES[name])
            return chars.negated() if negated else chars
        low = self._class_char()
        if isinstance(low, Chars):
            return low
        if self._peek() != "-" or self.text[self.position + 1 : self.position + 2] in ("]", ""):
            return self._cased(low)
        self.position += 1
        high = self._class_char()
        if isinstance(high, Chars) or high < low:
            raise PatternError(f"no range at {self.position}")
        codes = range(ord(low), ord(high) + 1)
        if len(codes) > RANGE_CHARS_MAX:
            raise PatternError(f"a range of more than {RANGE_CHARS_MAX} at {self.position}")
        return self._cased(*map(chr, codes))

    def _class_char(self) -> str | Chars:
        char = self._next()
        if char != "\\":
            return char
        char = self._next()
        return _CLASSES.get(char) or self._escaped_char(char)

    def _cased(self, *chars: str) -> Chars:
        if not self._any_case:
            return Chars(frozenset(chars))
        forms = (form for char in chars for form in (char, char.lower(), char.upper()))
        return Chars(frozenset(form for form in forms if len(form) == 1))

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _next(self) -> str:
        if self.at_end:
            raise PatternError("the pattern ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def _skip(self, text: str) -> bool:
        is_next = self.text.startswith(text, self.position)
        if is_next:
            self.position += len(text)
        return is_next

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise PatternError(f"missing {text} at {self.position}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
