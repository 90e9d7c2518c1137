"""Patterns of names and ids, compiled.

Python's ``re`` backtracks, so a pattern of twenty characters can block it for ever, and with it the
only event loop of a service. Here, as in RE2, a pattern becomes a state machine that reads a text
once. Its states are built as texts need them, and cached.

Constructs that RE2 rejects (back references, lookahead, lookbehind) are rejected. So are classes of
Unicode (``\\p``). A match covers the whole text, as in Kafka.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from tidemark.re2.syntax import (
    Assertion,
    Chars,
    Either,
    Node,
    PatternError,
    Place,
    Repeat,
    Sequence,
    parse,
)

STEPS_MAX: Final = 10_000
"""Largest number of steps in one pattern's program, with counted repetitions expanded."""

_STATES_MAX: Final = 2_000
"""Largest number of cached states of one pattern; beyond it the cache is cleared."""

_WORD: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")


class _Before(Enum):
    """Class of the character read last."""

    NOTHING = "nothing"
    WORD = "word"
    OTHER = "other"


class _Step(NamedTuple):
    """One step of a program: read one of ``chars``, check a ``place``, or just continue."""

    chars: Chars | None
    place: Place | None
    follows: list[int]


class _State:
    """One state of the machine: the set of program steps it may be at."""

    __slots__ = ("before", "follows", "steps")

    def __init__(self, steps: frozenset[int], before: _Before) -> None:
        self.steps = steps
        self.before = before
        self.follows: dict[str, _State] = {}


_END: Final = 0
"""Index of the step at which the pattern has matched."""


class Pattern:
    """A compiled pattern. Its cache changes the speed of a match, never its result."""

    __slots__ = ("_memory", "_program", "_start", "_steps_max")

    def __init__(self, text: str, *, steps_max: int = STEPS_MAX) -> None:
        """Compile ``text`` to at most ``steps_max`` steps, each of which a character may visit.
        Raises PatternError.
        """
        self._steps_max = steps_max
        self._program = [_Step(None, None, [])]
        entry = self._compile(parse(text), _END)
        self._memory: dict[tuple[frozenset[int], _Before], _State] = {}
        self._start = _State(frozenset({entry}), _Before.NOTHING)

    def matches(self, name: str) -> bool:
        """True if the pattern matches the whole name."""
        state = self._start
        for char in name:
            state = state.follows.get(char) or self._follow(state, char)
            if not state.steps:
                return False
        return _END in self._closure(state, None)

    def _follow(self, state: _State, char: str) -> _State:
        steps = frozenset(
            follows
            for step in self._closure(state, char)
            for follows in self._program[step].follows
            if (chars := self._program[step].chars) is not None and chars.has(char)
        )
        key = (steps, _Before.WORD if char in _WORD else _Before.OTHER)
        following = self._memory.get(key)
        if following is None:
            if len(self._memory) >= _STATES_MAX:
                self._memory.clear()
                self._start = _State(self._start.steps, _Before.NOTHING)
            following = self._memory[key] = _State(*key)
        if char.isascii():  # there are too many others to keep a state for each
            state.follows[char] = following
        return following

    def _closure(self, state: _State, char: str | None) -> set[int]:
        """Return the steps reachable without reading, if ``char`` (None: the end) is next."""
        here = _places(state.before, char)
        reached: set[int] = set()
        waiting = list(state.steps)
        while waiting:
            step = waiting.pop()
            if step in reached:
                continue
            reached.add(step)
            chars, place, follows = self._program[step]
            if chars is None and (place is None or place in here):
                waiting.extend(follows)
        return reached

    def _compile(self, node: Node, follows: int) -> int:
        """Write the program of ``node``, followed by step ``follows``; return its first step."""
        match node:
            case Chars():
                return self._write(_Step(node, None, [follows]))
            case Assertion(place):
                return self._write(_Step(None, place, [follows]))
            case Sequence(parts):
                for part in reversed(parts):
                    follows = self._compile(part, follows)
                return follows
            case Either(parts):
                return self._write(
                    _Step(None, None, [self._compile(part, follows) for part in parts])
                )
            case Repeat(part, least, most):
                return self._compile_repeat(part, least, most, follows)

    def _compile_repeat(self, part: Node, least: int, most: int | None, follows: int) -> int:
        entry = follows
        if most is None:
            loop = _Step(None, None, [follows])
            entry = self._write(loop)
            loop.follows.append(self._compile(part, entry))
        else:
            for _ in range(most - least):
                entry = self._write(_Step(None, None, [follows, self._compile(part, entry)]))
        for _ in range(least):
            entry = self._compile(part, entry)
        return entry

    def _write(self, step: _Step) -> int:
        if len(self._program) >= self._steps_max:
            raise PatternError(f"the pattern is too large: more than {self._steps_max} steps")
        self._program.append(step)
        return len(self._program) - 1


def _places(before: _Before, char: str | None) -> frozenset[Place]:
    """Return the assertions that hold between the last character and the next one."""
    places: set[Place] = set()
    if before is _Before.NOTHING:
        places.add(Place.START)
    if char is None:
        places.add(Place.END)
    at_boundary = (before is _Before.WORD) != (char is not None and char in _WORD)
    places.add(Place.BOUNDARY if at_boundary else Place.NO_BOUNDARY)
    return frozenset(places)


def matching(pattern: Pattern, names: Iterable[str]) -> frozenset[str]:
    """Return the names that match."""
    return frozenset(name for name in names if pattern.matches(name))
