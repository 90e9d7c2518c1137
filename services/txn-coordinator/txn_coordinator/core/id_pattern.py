"""Patterns of ListTransactions (KIP-1152): the regular expressions that an operator may send.

Kafka reads them as RE2. Ids longer than 1,024 characters match no pattern.
"""

from typing import Final

from tidemark.re2.pattern import Pattern
from tidemark.re2.syntax import PatternError

PATTERN_CHARS_MAX: Final = 255
ID_CHARS_MAX: Final = 1_024
STEPS_MAX: Final = 1_000
"""Largest number of steps of a pattern, with counted repetitions expanded."""


class IdPatternError(ValueError):
    """The pattern is refused. The text is the reason."""


def compile_id_pattern(text: str) -> Pattern:
    """Return the pattern, which has to match whole ids. Raises IdPatternError."""
    if len(text) > PATTERN_CHARS_MAX:
        raise IdPatternError(f"a pattern has at most {PATTERN_CHARS_MAX} characters")
    try:
        return Pattern(text, steps_max=STEPS_MAX)
    except PatternError as problem:
        raise IdPatternError(str(problem)) from None


def matches(pattern: Pattern, transactional_id: str) -> bool:
    """True if the pattern matches the whole id."""
    return len(transactional_id) <= ID_CHARS_MAX and pattern.matches(transactional_id)
