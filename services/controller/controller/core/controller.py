"""The controller as a machine: a change is written first, then applied, then published."""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.metadata import ClusterImage

from controller.core.cluster import Change
from controller.core.effects import (
    CloseFeed,
    Effect,
    OpenFeed,
    Publish,
    Reply,
    Resign,
    WriteStore,
)
from controller.core.inputs import (
    Deposed,
    Elected,
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


class Role(Enum):
    """Role of a controller replica."""

    STANDBY = "standby"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class _Writing:
    """A change on its way to the store, and the reply to send once it is written."""

    write_id: int
    change: Change
    reply: Reply | None


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

    @property
    def role(self) -> Role:
        """Active or standby."""
        return Role.STANDBY if self._term is None else Role.ACTIVE

    @property
    def image(self) -> ClusterImage | None:
        """All metadata as last published; None on a standby."""
        return None if self._term is None else self._term.image

    def step(self, stimulus: Input, now: InstantMs) -> list[Effect]:
        """Take one input to completion. Never waits."""
        match stimulus:
            case Elected():
                effects = self._become_active(stimulus, now)
            case Deposed(reason):
                effects = self._become_standby(reason)
            case StoreWritten(write_id):
                effects = self._on_written(write_id)
            case StoreFailed(write_id, reason):
                effects = self._on_store_failed(write_id, reason)
            case Tick():
                effects = []
            case (
                LiveBrokersChanged()
                | LiveCoordinatorsChanged()
                | FeedAcknowledged()
                | FeedLost()
                | FeedRegained()
            ):
                effects = []
                if self._term is not None:
                    _observe(self._term, stimulus, now)
            case _:
                effects = self._on_request(stimulus)
        return effects + self._proceed(now)

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
        if self._writing is not None and self._writing.reply is not None:
            refused.append(_not_controller(self._writing.reply.request_id))
        refused += [_not_controller(request.header.request_id) for request in self._waiting]
        self._term = self._writing = None
        self._waiting.clear()
        return refused

    # -- the store

    def _begin(self, term: ActiveTerm, change: Change, reply: Reply | None) -> WriteStore:
        assert self._writing is None, "one change at a time"
        self._write_ids += 1
        self._writing = _Writing(self._write_ids, change, reply)
        return WriteStore(self._write_ids, term.store_ops(change))

    def _on_written(self, write_id: int) -> list[Effect]:
        """Apply the change that is written: the state follows the store."""
        term, writing = self._term, self._writing
        if term is None or writing is None or writing.write_id != write_id:
            return []  # of an earlier term
        self._writing = None
        change = writing.change
        term.apply(change)
        effects: list[Effect] = []
        if change.published:
            effects.append(Publish(change.delta, term.image, change.unclean))
        if writing.reply is not None:
            effects.append(replace(writing.reply, position=term.image.position))
        return effects

    def _on_store_failed(self, write_id: int, reason: str) -> list[Effect]:
        if self._writing is None or self._writing.write_id != write_id:
            return []
        return [*self._become_standby(reason), Resign(reason)]

    # -- requests, decided one after the other

    def _on_request(self, request: Request) -> list[Effect]:
        request_id = request.header.request_id
        if self._term is None:
            return [_not_controller(request_id)]
        if isinstance(request, RegisterBroker | UnregisterBroker):
            self._term.see_brokers(request.listing)
        if isinstance(request, RegisterCoordinator):
            self._term.see_coordinators(request.listing)
        if len(self._waiting) >= self._limits.requests_waiting_max:
            words = f"{len(self._waiting)} requests are waiting for the controller already"
            return [Reply(request_id, ErrorCode.REQUEST_TIMED_OUT, words)]
        self._waiting.append(request)
        return []

    def _proceed(self, now: InstantMs) -> list[Effect]:
        """Decide until there is a change to write. Changes that are due come before requests."""
        term = self._term
        if term is None or self._writing is not None:
            return []
        effects = term.fence_silent(now)
        if term.should_resign(now):
            return [*effects, *self._become_standby(NO_SUBSCRIBERS), Resign(NO_SUBSCRIBERS)]
        due = term.due_change(now)
        if due is not None:
            return [*effects, self._begin(term, due, None)]
        while self._waiting and self._writing is None:
            change, reply = term.decide(self._waiting.popleft(), now)
            if change is None:
                effects.append(replace(reply, position=term.image.position))
            else:
                effects.append(self._begin(term, change, reply))
        return effects


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


def _not_controller(request_id: int) -> Reply:
    return Reply(request_id, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
