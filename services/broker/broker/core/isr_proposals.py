"""What a broker's leaders propose, on its way to the controller: one request in flight, the latest
proposal of each partition, and patience when there is no answer.
"""

from typing import Final

from tidemark.model.backoff import Backoff
from tidemark.model.ids import InstantMs, TopicId

from broker.core.isr import IsrProposal

BACKOFF: Final = Backoff(50, 1_000)
REQUEST_PROPOSALS_MAX: Final = 1_000
_AT_ONCE: Final = InstantMs(-1)

_Key = tuple[TopicId, int]


class IsrProposals:
    """Invariant: a partition is queued at most once, and what is in flight is proposed again unless
    it was answered: without an answer it may or may not have been agreed.
    """

    __slots__ = ("_failures", "_in_flight", "_next_at", "_queue")

    def __init__(self) -> None:
        self._queue: dict[_Key, IsrProposal] = {}
        self._in_flight: tuple[IsrProposal, ...] = ()
        self._failures = 0
        self._next_at = _AT_ONCE

    def __len__(self) -> int:
        return len(self._queue) + len(self._in_flight)

    def add(self, proposal: IsrProposal) -> None:
        """Send it soon; it replaces an older one of its partition."""
        self._queue[proposal.topic_id, proposal.partition] = proposal

    def next_request(self, now: InstantMs) -> tuple[IsrProposal, ...] | None:
        """What to ask for now; None while a request is in flight, nothing is queued, or it is too
        early after a failure.
        """
        if self._in_flight or not self._queue or now < self._next_at:
            return None
        keys = list(self._queue)[:REQUEST_PROPOSALS_MAX]
        self._in_flight = tuple(self._queue.pop(key) for key in keys)
        return self._in_flight

    def next_try(self, now: InstantMs) -> InstantMs | None:
        """When to ask ``next_request`` again; None: once something was added or answered."""
        if self._in_flight or not self._queue:
            return None
        return max(self._next_at, now)

    def answered(self) -> None:
        """The controller judged each proposal of the request in flight."""
        self._in_flight = ()
        self._failures = 0
        self._next_at = _AT_ONCE

    def failed(self, now: InstantMs, dice: float) -> None:
        """Queue the request in flight again, after a delay that grows with each failure.

        For requests without an answer, and for answers that do not judge the proposals. ``dice``
        in [0, 1) spreads the delay.
        """
        for proposal in self._in_flight:
            self._queue.setdefault((proposal.topic_id, proposal.partition), proposal)
        self._in_flight = ()
        self._failures += 1
        self._next_at = InstantMs(now + round(BACKOFF.delay_ms(self._failures, dice)))
