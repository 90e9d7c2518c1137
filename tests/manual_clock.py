"""ManualClock: a clock for tests of shells. A core needs no clock at all."""

from tidemark.model.ids import InstantMs, WallMs
from tidemark.runtime.clock import Clock


class ManualClock(Clock):
    """A clock that moves only by ``advance``."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000) -> None:
        self._passed_ms = 0
        self._wall_start_ms = wall_ms

    def advance(self, passed_ms: int) -> None:
        """Let time pass, on all clocks alike."""
        assert passed_ms >= 0, "time does not go back"
        self._passed_ms += passed_ms

    def now_ms(self) -> InstantMs:
        """Milliseconds by which the clock was advanced."""
        return InstantMs(self._passed_ms)

    def precise_s(self) -> float:
        """``now_ms`` in seconds."""
        return self._passed_ms / 1_000

    def boot_ms(self) -> InstantMs:
        """The same as ``now_ms``: a manual clock is never suspended."""
        return InstantMs(self._passed_ms)

    def wall_ms(self) -> WallMs:
        """The initial wall time plus ``now_ms``."""
        return WallMs(self._wall_start_ms + self._passed_ms)
