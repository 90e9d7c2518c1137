"""ISR proposals of a broker's leaders to the controller: one request in flight, the latest proposal
of each partition, and a back-off after failures.
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
    """Proposals of one broker.

    Invariant: a partition is queued at most once. Proposals in flight are sent again unless they
    were answered; without an answer they may or may not have been agreed.
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
        """Queue a proposal; it replaces an older one of its partition."""
        self._queue[proposal.topic_id, proposal.partition] = proposal

    def next_request(self, now: InstantMs) -> tuple[IsrProposal, ...] | None:
        """Return the proposals to send now. None while a request is in flight, while nothing is
        queued, or during the back-off.
        """
        if self._in_flight or not self._queue or now < self._next_at:
            return None
        keys = list(self._queue)[:REQUEST_PROPOSALS_MAX]
        self._in_flight = tuple(self._queue.pop(key) for key in keys)
        return self._in_flight

    def next_try(self, now: InstantMs) -> InstantMs | None:
        """Return the time of the next request; None until a proposal is added or answered."""
        if self._in_flight or not self._queue:
            return None
        return max(self._next_at, now)

    def answered(self) -> None:
        """Finish the request in flight; the controller decided each proposal."""
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
