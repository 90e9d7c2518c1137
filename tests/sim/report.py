"""One aligned line per event, so that lines can be read as columns. Legend: docs/testing.md."""

from collections import Counter, deque
from typing import NamedTuple

from sim.history import Bounds

TAIL_LINES = 40


class Line(NamedTuple):
    """One event, formatted only when it is printed."""

    at_ms: int
    actor: str
    what: str
    partition: str
    role: str
    leader_epoch: int
    bounds: Bounds | None

    def __str__(self) -> str:
        if self.bounds is None:
            state = ""
        else:
            start, stable, watermark, end, synced = self.bounds
            watermarks = f"{start}/_{stable}/_{watermark}/_{end}"
            state = f"{self.role} e{self.leader_epoch:<3} {watermarks:<22} s{synced}"
        return f"{self.at_ms:>6}  {self.actor:<9} {self.partition:<9} {state:<38} {self.what}"


class Trace:
    """Latest lines; with ``is_full`` all lines, printed as they come."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self.seen: Counter[str] = Counter()
        """Count of each action of each actor (without its number): what the run covers."""
        self._tail: deque[Line] = deque(maxlen=TAIL_LINES)

    @property
    def count(self) -> int:
        return self.seen.total()

    def add(self, line: Line) -> None:
        """Add one event."""
        self.seen[f"{line.actor.rstrip('0123456789')} {line.what.split(' ', 1)[0]}"] += 1
        self._tail.append(line)
        if self.is_full:
            print(line)

    def tail(self) -> list[str]:
        """Return the latest lines, oldest first."""
        return [str(line).rstrip() for line in self._tail]
