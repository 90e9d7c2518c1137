"""Rule of the watchdog: when an event loop counts as stalled."""

from dataclasses import dataclass

from tidemark.model.ids import InstantMs


@dataclass(frozen=True, slots=True)
class StallBegan:
    """The loop has not run for ``still_ms``."""

    still_ms: int


@dataclass(frozen=True, slots=True)
class StallEnded:
    """The loop runs again after ``still_ms``."""

    still_ms: int


class StallRule:
    """Comparison of the loop's number of turns every ``look_ms``.

    Only time in which the watchdog itself ran counts. A look is late if the process was stopped
    (SIGSTOP), the machine was suspended or the CPU was busy; none of these is a stall of the loop.
    """

    def __init__(self, *, limit_ms: int, look_ms: int, now: InstantMs) -> None:
        assert 0 < look_ms <= limit_ms, "the limit is at least the interval of looks"
        self._limit_ms = limit_ms
        self._look_ms = look_ms
        self._looked_at = now
        self._turns = 0
        self._still_ms = 0
        self.is_stalled = False

    def look(self, turns: int, now: InstantMs) -> StallBegan | StallEnded | None:
        """Return the change that this look finds, if any; each stall begins once and ends once."""
        passed_ms, self._looked_at = now - self._looked_at, now
        still_ms = self._still_ms + min(passed_ms, 2 * self._look_ms)
        if turns != self._turns:
            self._turns, self._still_ms = turns, 0
            if not self.is_stalled:
                return None
            self.is_stalled = False
            return StallEnded(still_ms)
        self._still_ms = still_ms
        if self.is_stalled or still_ms < self._limit_ms:
            return None
        self.is_stalled = True
        return StallBegan(still_ms)
