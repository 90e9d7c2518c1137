"""What processes complain of in their logs: errors, and tracebacks that nobody caught. Pure."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

_ERRORS: Final = frozenset({"ERROR", "CRITICAL"})
_TRACEBACK: Final = "Traceback (most recent call last)"


def errors(lines: Iterable[str]) -> Iterator[str]:
    """The lines that tell of one. Services write JSON, a line an event."""
    for line in lines:
        if line.startswith(_TRACEBACK) or _level(line) in _ERRORS:
            yield line.rstrip()


def _level(line: str) -> Any:
    if not line.startswith("{"):
        return None
    try:
        return json.loads(line).get("level")
    except ValueError:
        return None  # cut off by a kill
