"""The controller as a machine: a change is written first, then applied, then published.

An error of this program ends a term, whose state may be wrong then: another controller loads it
from the store. Only one in the decision on a request does not, which has changed nothing: that
request is refused, so that its repetition does not end one term after the other.
"""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.metadata import ClusterImage, FeedPosition

from controller.core.cluster import Change
from controller.core.effects import (
    CloseFeed,
    Effect,
    NoteFault,
    OpenFeed,
    Publish,
    Reply,
    Resign,
    WriteStore,
)
from controller.core.inputs import (
    Deposed,
    Elected,
    ElectLeaders,
    Faulted,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    Input,
    LiveBrokersChanged,
    LiveCoordinatorsChanged,
    RegisterBroker,
    RegisterCoordinator,
    Request,
    StoreFailed,
    StoreWritten,
    Tick,
    UnregisterBroker,
)
from controller.core.limits import Limits
from controller.core.term import ActiveTerm
from controller.core.topics import TopicDefaults

NO_SUBSCRIBERS: Final = "no broker follows the feed: another controller may be reachable"
FAULT: Final = "an internal error: the state has to be loaded again"


class Role(Enum):
    """Role of a controller replica."""

    STANDBY = "standby"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class _Writing:
    """A change on its way to the store, and what follows once it is written: the reply, or a
    decision on the rest of the request.
    """

    write_id: int
    change: Change
    then: Reply | ElectLeaders | None

    @property
    def request_id(self) -> int | None:
        """Id of the request that is not answered yet; None: there is none."""
        if isinstance(self.then, ElectLeaders):
            return self.then.header.request_id
        return None if self.then is None else self.then.request_id


class Controller:
    """The only place where the cluster's state changes, one change at a time.

    Invariant: a standby has no term, and thus no state, no write under way and no waiting request.
    """

    def __init__(self, defaults: TopicDefaults, limits: Limits) -> None:
        self._defaults = defaults
        self._limits = limits
        self._term: ActiveTerm | None = None
        self._writing: _Writing | None = None
        self._waiting: deque[Request] = deque()
        self._write_ids = 0
        self._checked_at: FeedPosition | None = None
        """Position at which the state was found sound after a fault."""

    @property
    def role(self) -> Role:
        """Active or standby."""
        return Role.STANDBY if self._term is None else Role.ACTIVE

    @property
    def image(self) -> ClusterImage | None:
        """All metadata as last published; None on a standby."""
        return None if self._term is None else self._term.image

    def step(self, stimulus: Input, now: InstantMs) -> list[Effect]:
        """Take one input to completion. Never waits, and raises nothing."""
        effects: list[Effect] = []
        try:
            self._take(stimulus, now, effects)
            self._proceed(now, effects)
        except Exception as error:  # noqa: BLE001 - a bug; what was done before it is performed
            effects += self._on_fault(type(stimulus).__name__, error)
        return effects

    def _take(self, stimulus: Input, now: InstantMs, effects: list[Effect]) -> None:
        match stimulus:
            case Elected():
                effects += self._become_active(stimulus, now)
            case Deposed(reason):
                effects += self._become_standby(reason)
            case StoreWritten(write_id):
                self._on_written(write_id, effects)
            case StoreFailed():
                effects += self._on_store_failed(stimulus)
            case Faulted(error, unanswered):
                effects += [_failed(request_id, error) for request_id in unanswered]
                effects += self._on_fault("effects", error)
            case Tick():
                pass
            case (
                LiveBrokersChanged()
                | LiveCoordinatorsChanged()
                | FeedAcknowledged()
                | FeedLost()
                | FeedRegained()
            ):
                if self._term is not None:
                    _observe(self._term, stimulus, now)
            case _:
                self._on_request(stimulus, effects)

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """Return when a Tick is due; None on a standby, and while nothing waits for time.

        Nothing is decided while a change is being written: its outcome comes first, however late.
        """
        if self._term is None or self._writing is not None:
            return None
        return self._term.next_deadline(now)

    def check(self) -> None:
        """Assert every invariant."""
        assert len(self._waiting) <= self._limits.requests_waiting_max, "requests are bounded"
        if self._term is None:
            assert self._writing is None, "a standby writes nothing"
            assert not self._waiting, "no request waits on a standby"
            return
        is_idle = self._writing is None
        self._term.check(is_idle=is_idle)
        assert not is_idle or not self._waiting, "requests wait only for a write"

    # -- roles

    def _become_active(self, elected: Elected, now: InstantMs) -> list[Effect]:
        assert self._term is None, "elected twice"
        self._term = ActiveTerm(elected, self._defaults, self._limits, now)
        return [OpenFeed(self._term.image)]

    def _become_standby(self, reason: str) -> list[Effect]:
        if self._term is None:
            return []
        refused: list[Effect] = [CloseFeed(reason)]
        writing = None if self._writing is None else self._writing.request_id
        if writing is not None:
            refused.append(_not_controller(writing))
        refused += [_not_controller(request.header.request_id) for request in self._waiting]
        self._term = self._writing = None
        self._waiting.clear()
        return refused

    def _on_fault(self, where: str, error: Exception) -> list[Effect]:
        """End the term. The feed is closed in any case: an update may be half sent."""
        closed = self._become_standby(FAULT) or [CloseFeed(FAULT)]
        return [NoteFault(where, error), *closed, Resign(FAULT)]

    # -- the store

    def _begin(
        self, term: ActiveTerm, change: Change, then: Reply | ElectLeaders | None
    ) -> WriteStore:
        assert self._writing is None, "one change at a time"
        ops = term.store_ops(change)
        self._write_ids += 1
        self._writing = _Writing(self._write_ids, change, then)
        return WriteStore(self._write_ids, ops)

    def _on_written(self, write_id: int, effects: list[Effect]) -> None:
        """Apply the change that is written: the state follows the store."""
        term, writing = self._term, self._writing
        if term is None or writing is None or writing.write_id != write_id:
            return  # of an earlier term
        self._writing = None
        change = writing.change
        try:
            term.apply(change)
        except Exception as error:
            effects += _failed_write(writing, error)
            raise
        if change.published:
            effects.append(Publish(change.delta, term.image, change.unclean))
        if isinstance(writing.then, ElectLeaders):
            self._waiting.append(writing.then)  # behind the others: they take turns
        elif writing.then is not None:
            effects.append(replace(writing.then, position=term.image.position))

    def _on_store_failed(self, failed: StoreFailed) -> list[Effect]:
        writing = self._writing
        if writing is None or writing.write_id != failed.write_id:
            return []
        if failed.fault is None:
            return [*self._become_standby(failed.reason), Resign(failed.reason)]
        self._writing = None
        answered = _failed_write(writing, failed.fault)
        return [*answered, *self._on_fault("store", failed.fault)]

    # -- requests, decided one after the other

    def _on_request(self, request: Request, effects: list[Effect]) -> None:
        request_id = request.header.request_id
        if self._term is None:
            effects.append(_not_controller(request_id))
            return
        try:
            _see_listing(self._term, request)
        except Exception as error:
            effects.append(_failed(request_id, error))
            raise
        writing = self._writing
        returns = writing is not None and isinstance(writing.then, ElectLeaders)
        if len(self._waiting) + returns >= self._limits.requests_waiting_max:
            words = f"{len(self._waiting)} requests are waiting for the controller already"
            effects.append(Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words))
            return
        self._waiting.append(request)

    def _proceed(self, now: InstantMs, effects: list[Effect]) -> None:
        """Decide until there is a change to write. Changes that are due come before requests."""
        term = self._term
        if term is None or self._writing is not None:
            return
        effects += term.fence_silent(now)
        if term.should_resign(now):
            effects += [*self._become_standby(NO_SUBSCRIBERS), Resign(NO_SUBSCRIBERS)]
            return
        due = term.due_change(now)
        if due is not None:
            effects.append(self._begin(term, due, None))
            return
        while self._waiting and self._writing is None:
            self._decide(term, self._waiting.popleft(), now, effects)

    def _decide(
        self, term: ActiveTerm, request: Request, now: InstantMs, effects: list[Effect]
    ) -> None:
        """Decide on one request. A decision that fails has changed nothing: the term goes on if its
        state is sound.
        """
        try:
            change, then = term.decide(request, now)
            if change is not None:
                decided: Effect = self._begin(term, change, then)
            else:
                assert isinstance(then, Reply), "a part of a request changes something"
                decided = replace(then, position=term.image.position)
        except Exception as error:  # noqa: BLE001 - a bug, which its request is refused for
            effects.append(NoteFault(type(request).__name__, error))
            effects.append(_failed(request.header.request_id, error))
        else:
            effects.append(decided)
            return
        if self._checked_at != term.image.position:
            term.check(is_idle=False)
            self._checked_at = term.image.position


def _observe(
    term: ActiveTerm,
    stimulus: LiveBrokersChanged
    | LiveCoordinatorsChanged
    | FeedAcknowledged
    | FeedLost
    | FeedRegained,
    now: InstantMs,
) -> None:
    match stimulus:
        case LiveBrokersChanged(listing):
            term.see_brokers(listing)
        case LiveCoordinatorsChanged(coordinators):
            term.see_coordinators(coordinators)
        case _:
            term.on_feed(stimulus, now)


def _see_listing(term: ActiveTerm, request: Request) -> None:
    if isinstance(request, RegisterBroker | UnregisterBroker):
        term.see_brokers(request.listing)
    if isinstance(request, RegisterCoordinator):
        term.see_coordinators(request.listing)


def _failed_write(writing: _Writing, error: Exception) -> list[Reply]:
    return [] if writing.request_id is None else [_failed(writing.request_id, error)]


def _failed(request_id: int, error: Exception) -> Reply:
    words = f"an internal error of the controller ({type(error).__name__}); its log has the stack"
    return Reply(request_id, ErrorCode.UNKNOWN_SERVER_ERROR, words)


def _not_controller(request_id: int) -> Reply:
    return Reply(request_id, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
