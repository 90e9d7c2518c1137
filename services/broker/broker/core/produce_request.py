"""PendingProduce: one Produce request that cannot be answered in the callback that appends it.

             taken            last detour ended            committed, woken, not parked
    TAKING --------> APPENDING ---------------> COMMITTING --------------------------> ANSWERED

A phase without anything to wait for is skipped. While partitions are taken, the outcome of each is
noted: refused, appended and to be committed, or on a detour (the coordinator or a worker must see
the batch first). Then the request waits for its detours, and for its commits up to its deadline;
if the leadership of one partition is lost meanwhile, it goes on waiting for the others. Each input
returns a ``Step``: what the shell has to do, and which results become errors. Results, bytes and
awaits are the shell's.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

from broker.core.commit_wait import CommitWait, HostedT

PlaceT = TypeVar("PlaceT")
"""Place of one partition's result in the answer; the shell's own."""


_NO_TIME: Final = InstantMs(-1)


class Phase(Enum):
    """Phase of a request."""

    TAKING = "taking"
    APPENDING = "appending"
    COMMITTING = "committing"
    ANSWERED = "answered"


class Action(Enum):
    """Action of the shell after an input."""

    HOLD = "hold"
    """Nothing: appends are under way."""
    PARK = "park"
    """Wait for ``Step.ends``. Then ``committed``, ``woken``, or ``not_parked`` follows."""
    ANSWER = "answer"
    CLOSE = "close"
    """Close the connection: a request with acks=0 failed, and its failure has no other sign."""
    NO_ANSWER = "no answer"
    """acks=0."""


# Reading a member of an Enum costs as much as a call; these are read for every acks=all request.
HOLD: Final = Action.HOLD
PARK: Final = Action.PARK
ANSWER: Final = Action.ANSWER
CLOSE: Final = Action.CLOSE
NO_ANSWER: Final = Action.NO_ANSWER
_TAKING: Final = Phase.TAKING
_APPENDING: Final = Phase.APPENDING
_COMMITTING: Final = Phase.COMMITTING
_ANSWERED: Final = Phase.ANSWERED


class Step(NamedTuple, Generic[HostedT, PlaceT]):
    """Effect of one input."""

    action: Action
    failures: Sequence[tuple[PlaceT, ErrorCode]] = ()
    """Results that become errors, before the action."""
    ends: Sequence[tuple[HostedT, int]] = ()
    """PARK: what the high watermarks must reach."""
    now: InstantMs = _NO_TIME
    """PARK: time of the input."""
    wait_ms: int = 0
    """PARK: time left then."""


_ANSWER_ALL: Final[Step[Any, Any]] = Step(ANSWER)


class PendingProduce(Generic[HostedT, PlaceT]):
    """One request on its way to its answer.

    Invariant: something is under way in APPENDING, something is not committed in COMMITTING, and
    neither in ANSWERED.
    """

    __slots__ = ("_acks", "_began_at", "_due", "_under_way", "_waiting", "has_failed", "phase")

    def __init__(self, acks: int, now: InstantMs, timeout_ms: int) -> None:
        """``now``: time of the callback in which all partitions are taken."""
        self._acks = acks
        self._began_at = now
        self._due = now + timeout_ms
        self._under_way = 0
        self._waiting: list[tuple[CommitWait[HostedT], PlaceT]] = []
        self.phase: Phase = _TAKING
        self.has_failed = False
        """True if a partition was refused, or its leadership lost. A time-out does not count."""

    # -- outcomes of partitions

    def refused(self) -> None:
        """Note a partition whose batch was not appended."""
        self.has_failed = True

    def appended(self, commit: CommitWait[HostedT], place: PlaceT) -> None:
        """Note a batch that is in the log, and must be committed before it is acknowledged."""
        assert self.phase is _TAKING or self.phase is _APPENDING, self.phase
        self._waiting.append((commit, place))

    def detour_began(self) -> None:
        """Note an append that happens later."""
        assert self.phase is _TAKING, self.phase
        self._under_way += 1

    # -- inputs

    def taken(self) -> Step[HostedT, PlaceT]:
        """Go on after every partition was taken."""
        assert self.phase is _TAKING, self.phase
        if self._under_way:
            self.phase = _APPENDING
            return Step(HOLD)
        return self._settle(self._began_at)

    def detour_ended(self, now: InstantMs) -> Step[HostedT, PlaceT]:
        """Go on after an append that came later; its outcome has been noted."""
        assert self.phase is _APPENDING, self.phase
        self._under_way -= 1
        return Step(HOLD) if self._under_way else self._settle(now)

    def committed(self) -> Step[HostedT, PlaceT]:
        """Answer after all that was waited for is committed."""
        assert self.phase is _COMMITTING, self.phase
        self._waiting = []
        return self._answered([])

    def woken(self, now: InstantMs) -> Step[HostedT, PlaceT]:
        """Go on after time is up, or the leadership of one of the partitions was lost: the others
        are still waited for.
        """
        assert self.phase is _COMMITTING, self.phase
        return self._settle(now)

    def not_parked(self) -> Step[HostedT, PlaceT]:
        """Give up what is not committed: it cannot be waited for."""
        assert self.phase is _COMMITTING, self.phase
        return self._answered([])

    def _settle(self, now: InstantMs) -> Step[HostedT, PlaceT]:
        """Drop what is committed, and fail what was appended under a leadership that is over."""
        failures: list[tuple[PlaceT, ErrorCode]] = []
        left, ends = [], []
        for waiting in self._waiting:
            commit, place = waiting
            if commit.is_lost:
                self.has_failed = True
                failures.append((place, commit.failure()))
            elif not commit.is_committed:
                left.append(waiting)
                ends.append((commit.hosted, commit.end))
        self._waiting = left
        if not left or now >= self._due or self._acks == 0:
            return self._answered(failures)
        self.phase = _COMMITTING
        return Step(PARK, failures, ends, now, self._due - now)

    def _answered(self, failures: list[tuple[PlaceT, ErrorCode]]) -> Step[HostedT, PlaceT]:
        for commit, place in self._waiting:
            failures.append((place, commit.failure()))
        self._waiting = []
        self.phase = _ANSWERED
        if self._acks != 0:
            return Step(ANSWER, failures) if failures else _ANSWER_ALL
        return Step(CLOSE if self.has_failed else NO_ANSWER, failures)

    def check(self) -> None:
        """Assert the invariant."""
        assert (self._under_way > 0) <= (self.phase in (_TAKING, _APPENDING))
        assert self.phase is not _APPENDING or self._under_way
        assert self.phase is not _COMMITTING or self._waiting
        assert self.phase is not _ANSWERED or not self._waiting
