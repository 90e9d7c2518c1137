"""Reading of a share-partition's state: when it begins, and what its failures mean."""

from tidemark.model.backoff import Backoff, Dice, RetryDelays
from tidemark.model.ids import InstantMs

from broker.core.share.acknowledgement import Answer
from broker.core.share.answers import NOT_READY
from broker.core.share.states import Phase

_BACKOFF = Backoff(100, 2_000)
_OVER = (Phase.FAILED, Phase.FENCED)


class Loading:
    """Attempts to load one share-partition, with pauses after those that fail."""

    __slots__ = ("_answer", "_delays", "retry_at")

    def __init__(self, dice: Dice) -> None:
        self.retry_at = InstantMs(0)
        """Time of the next attempt after a failure."""
        self._delays = RetryDelays(_BACKOFF, dice)
        self._answer: Answer | None = None

    def is_due(self, phase: Phase, now: InstantMs) -> bool:
        """Return True if the state is to be read now."""
        return phase is Phase.EMPTY and now >= self.retry_at

    def is_void(self, phase: Phase, now: InstantMs) -> bool:
        """Return True if the next request begins with another object."""
        return phase in _OVER and now >= self.retry_at

    def ended(self, phase: Phase, answer: Answer, now: InstantMs) -> None:
        """Note the end of an attempt, or of what it loaded."""
        if phase in (Phase.ACTIVE, Phase.INITIALIZING):
            self._answer = None
            return
        self._answer = answer
        self.retry_at = InstantMs(now + round(self._delays.next_ms()))

    def problem(self, phase: Phase) -> Answer | None:
        """Return the error of a fetch; None if records are available, or may be after a wait. An
        error that may pass is not shown: clients treat it as final.
        """
        if phase not in _OVER:
            return None
        return self._answer or NOT_READY[phase]

    def next_deadline(self, phase: Phase) -> InstantMs | None:
        """Time at which fetches that wait cause another attempt; None: they wait for none."""
        return self.retry_at if phase is Phase.EMPTY else None
