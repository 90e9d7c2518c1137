"""What processes complain of in their logs: errors, and tracebacks that nobody caught. Pure."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

_ERRORS: Final = frozenset({"ERROR", "CRITICAL"})
_TRACEBACK: Final = "Traceback (most recent call last)"
DISK_TROUBLE: Final = (
    "log directory fenced",
    "damage found",
    "log damaged",
    "end lost",
    "partition not hosted",
    "every log directory has failed",
)
"""What a broker rightly complains of when its disk fails, or has lost bytes."""


def errors(lines: Iterable[str], *, without: Sequence[str] = ()) -> Iterator[str]:
    """The lines that tell of one, but those with words of ``without``. Services write JSON, a line
    an event.
    """
    for line in lines:
        is_error = line.startswith(_TRACEBACK) or _level(line) in _ERRORS
        if is_error and not any(words in line for words in without):
            yield line.rstrip()


def _level(line: str) -> Any:
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line).get("level")
    except ValueError:
        return None  # cut off by a kill
