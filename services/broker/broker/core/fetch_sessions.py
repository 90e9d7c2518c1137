"""Incremental fetch sessions (KIP-227): the broker remembers what a fetcher asks, requests and
answers carry changes.

Session id and epoch of a request say what it is:

    epoch -1 (final)    whole fetch without a session; closes the named session
    epoch  0 (initial)  whole fetch that asks for a new session; closes the named one
    epoch >= 1          changes to the named session, which must be at exactly that epoch

A request of a session looks at what *moved* since the last one, not at all that the session has:
what it names, what had more to give, and what something happened to. Its other partitions *rest*: a
look found nothing to tell of them, and the shell says when there is (``stir``, ``note``).

Pure. Ids come from a ``draw_id`` given by the shell. The cache is bounded: a new session replaces
the one unused for longest, if that was idle for ``eviction_ms``; else the fetcher gets no session
(id 0), which is always correct.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1

PartitionKey = tuple[str, bytes, int]
"""Topic name ('' when asked by id), topic id (16 zero bytes when asked by name), partition."""


Wanted = TypeVar("Wanted")
"""What a fetcher wants of one partition (offset, bytes...): kept and given back, never looked into.
"""


class CachedPartition(Generic[Wanted]):
    """One partition of a session: what is wanted, and what the fetcher was last told."""

    __slots__ = (
        "_rested_until",
        "high_watermark",
        "key",
        "log_start",
        "rests_on",
        "session",
        "turn",
        "wanted",
    )

    def __init__(self, session: "FetchSession[Wanted]", key: PartitionKey, wanted: Wanted) -> None:
        self.session = session
        self.key = key
        self.wanted = wanted
        self.turn = session.next_turn()
        self.high_watermark = -1
        self.log_start = -1
        self.rests_on: Hashable | None = None
        """Who waits in the session is woken when this is stirred; None: nobody is."""
        self._rested_until = session.used_at

    @property
    def fetched_at(self) -> InstantMs:
        """When the session last fetched while this rested: then it was asked for what there was,
        without being named (``replica_progress.StandingFetch``).
        """
        return self._rested_until if self.rests_on is None else self.session.used_at

    def ends_rest(self) -> None:
        """From here on its session's fetches say nothing of it."""
        self._rested_until = self.session.used_at
        self.rests_on = None
        self.session.moved[self] = None

    def knows(self, high_watermark: int, log_start: int) -> bool:
        """Whether this is what the fetcher was last told."""
        return high_watermark == self.high_watermark and log_start == self.log_start

    def must_answer(
        self, error_code: int, high_watermark: int, log_start: int, records_bytes: int
    ) -> bool:
        """Whether the fetcher must hear of this partition; remembers what it then knows."""
        changed = (
            records_bytes > 0
            or error_code != ErrorCode.NONE
            or not self.knows(high_watermark, log_start)
        )
        self.high_watermark = high_watermark if error_code == ErrorCode.NONE else -1
        self.log_start = log_start
        return changed


class FetchSession(Generic[Wanted]):
    """One fetcher's partitions, served in turn.

    Invariant: each of them rests or is among ``moved``; both where there is news that nobody waits
    for.
    """

    __slots__ = (
        "_turns",
        "asker",
        "by_id",
        "epoch",
        "moved",
        "partitions",
        "session_id",
        "used_at",
    )

    def __init__(self, session_id: int, *, by_id: bool, asker: Hashable, now: InstantMs) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.asker = asker
        self.epoch = 1
        self.used_at = now
        self.partitions: dict[PartitionKey, CachedPartition[Wanted]] = {}
        self.moved: dict[CachedPartition[Wanted], None] = {}
        self._turns = 0

    def next_turn(self) -> int:
        """The place behind all others."""
        self._turns += 1
        return self._turns

    def served(self, keys: Sequence[PartitionKey]) -> None:
        """Partitions that gave records go to the end, so that the next answer serves the others
        first.
        """
        for key in keys:
            if key in self.partitions:
                self.partitions[key].turn = self.next_turn()


Look = tuple[PartitionKey, Wanted, CachedPartition[Wanted] | None]
"""A partition to look at, and what the session has of it; None without a session."""


class FetchPlan(NamedTuple, Generic[Wanted]):
    """What to fetch and how to answer: ``session`` None means whole and sessionless. ``named`` is
    what the request names.
    """

    session: FetchSession[Wanted] | None
    incremental: bool
    named: list[tuple[PartitionKey, Wanted]]

    @property
    def is_empty(self) -> bool:
        """Nothing is asked for."""
        return self.session is None and not self.named

    @property
    def wanted(self) -> list[tuple[PartitionKey, Wanted]]:
        """All that is asked for, in the order in which it is served."""
        if self.session is None or not self.incremental:
            return self.named
        return [(one.key, one.wanted) for one in _in_turn(self.session.partitions.values())]

    def looks(self) -> list[Look[Wanted]]:
        """What must be looked at now, in the order in which it is served: of a whole fetch
        everything, of an incremental one what moved.
        """
        session = self.session
        if session is None:
            return [(key, want, None) for key, want in self.named]
        if not self.incremental:
            return [(key, want, session.partitions.get(key)) for key, want in self.named]
        return [(one.key, one.wanted, one) for one in _in_turn(session.moved)]


def _nothing(_: object) -> None:
    """Nobody waits for sessions."""


def _in_turn(cached: Iterable[CachedPartition[Wanted]]) -> list[CachedPartition[Wanted]]:
    return sorted(cached, key=attrgetter("turn"))


class FetchSessions(Generic[Wanted]):
    """The cache of sessions, least recently used first."""

    def __init__(
        self,
        draw_id: Callable[[], int],
        *,
        sessions_max: int = 1_000,
        partitions_max: int = 1_000_000,
        eviction_ms: int = 120_000,
    ) -> None:
        self._draw_id = draw_id
        self.on_closed: Callable[[FetchSession[Wanted]], None] = _nothing
        """Called when a session is gone: nothing of it is stirred any more."""
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        self.eviction_ms = eviction_ms
        self.partition_count = 0
        self.evicted_count = 0
        self._sessions: OrderedDict[int, FetchSession[Wanted]] = OrderedDict()
        self.resting: dict[Hashable, dict[CachedPartition[Wanted], None]] = {}
        """Partitions by what they rest on, for whoever asks often whether anything does."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        session_epoch: int,
        wanted: list[tuple[PartitionKey, Wanted]],
        forgotten: list[PartitionKey],
        *,
        by_id: bool,
        now: InstantMs,
        asker: Hashable = None,
    ) -> FetchPlan[Wanted] | ErrorCode:
        """Take one request. An error code answers the whole request. ``asker``: by what an answer
        depends on who asks; when that changes, nothing of the session rests any more.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._close(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH and wanted:
                session = self._create(wanted, by_id=by_id, now=now, asker=asker)
            return FetchPlan(session, incremental=False, named=wanted)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.asker != asker:
            session.asker = asker
            self._end_rests(session)
        return self._continue(session, wanted, forgotten, now)

    def _continue(
        self,
        session: FetchSession[Wanted],
        wanted: list[tuple[PartitionKey, Wanted]],
        forgotten: list[PartitionKey],
        now: InstantMs,
    ) -> FetchPlan[Wanted] | ErrorCode:
        session_id, before = session.session_id, len(session.partitions)
        self._update(session, wanted, forgotten)
        if not session.partitions:
            self._close(session_id)
            return FetchPlan(None, incremental=False, named=[])
        if len(session.partitions) > before and self.partition_count > self.partitions_max:
            self._close(session_id)  # it may come back whole, and then finds room or goes without
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session_id)
        return FetchPlan(session, incremental=True, named=wanted)

    def _update(
        self,
        session: FetchSession[Wanted],
        wanted: Iterable[tuple[PartitionKey, Wanted]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        """Take over what a request adds, changes and drops."""
        partitions, before = session.partitions, len(session.partitions)
        for cached in session.moved:
            self._end_rest(cached)
        for key, want in wanted:
            known = partitions.get(key)
            if known is None:
                known = partitions[key] = CachedPartition(session, key, want)
                session.moved[known] = None
            else:
                known.wanted = want
                self._end_rest(known)
        for key in forgotten:
            dropped = partitions.pop(key, None)
            if dropped is not None:
                self._end_rest(dropped)
                del session.moved[dropped]
        self.partition_count += len(partitions) - before

    def _create(
        self,
        wanted: list[tuple[PartitionKey, Wanted]],
        *,
        by_id: bool,
        now: InstantMs,
        asker: Hashable,
    ) -> FetchSession[Wanted] | None:
        if not self._make_room(len(wanted), now):
            return None
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._draw_id()
        session: FetchSession[Wanted] = FetchSession(session_id, by_id=by_id, asker=asker, now=now)
        self._update(session, wanted, ())
        self._sessions[session_id] = session
        return session

    def _make_room(self, partitions: int, now: InstantMs) -> bool:
        while (
            len(self._sessions) >= self.sessions_max
            or self.partition_count + partitions > self.partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < self.eviction_ms:
                return False
            self._close(oldest.session_id)
            self.evicted_count += 1
        return True

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            self._end_rests(session)
            self.on_closed(session)

    # -- resting

    def rest(self, cached: CachedPartition[Wanted], on: Hashable) -> bool:
        """A look found no records, no error and nothing that its fetcher does not know: the session
        looks at it again when it is named, or when ``on`` is stirred or noted. False when there is
        no such session any more: nobody would end the rest.
        """
        session = cached.session
        if self._sessions.get(session.session_id) is not session:
            return False
        session.moved.pop(cached, None)
        if cached.rests_on is None:
            cached.rests_on = on
            resting = self.resting.get(on)
            if resting is None:
                resting = self.resting[on] = {}
            resting[cached] = None
        return True

    def stir(self, on: Hashable) -> Iterable[FetchSession[Wanted]]:
        """Something happened for which fetches wait: what rested on this rests no more. Of these
        sessions.
        """
        resting = self.resting.pop(on, None)
        if resting is None:
            return ()
        for cached in resting:
            cached.ends_rest()
        return [cached.session for cached in resting]

    def note(self, on: Hashable) -> None:
        """Something happened that is only to be told: what rests on this is looked at by the next
        request, and rests until then.
        """
        for cached in self.resting.get(on, ()):
            cached.session.moved[cached] = None

    def _end_rest(self, cached: CachedPartition[Wanted]) -> None:
        on = cached.rests_on
        if on is None:
            return
        cached.ends_rest()
        resting = self.resting[on]
        del resting[cached]
        if not resting:
            del self.resting[on]

    def _end_rests(self, session: FetchSession[Wanted]) -> None:
        for cached in session.partitions.values():
            self._end_rest(cached)

    def check(self) -> None:
        """Assert the bounds, the count, and that nothing rests unnoticed."""
        assert len(self._sessions) <= self.sessions_max
        assert self.partition_count <= self.partitions_max
        counted = sum(len(session.partitions) for session in self._sessions.values())
        assert counted == self.partition_count, (counted, self.partition_count)
        for session in self._sessions.values():
            resting = {one for one in session.partitions.values() if one.rests_on is not None}
            assert set(session.partitions.values()) == resting | session.moved.keys(), "forgotten"
            assert all(one in self.resting[one.rests_on] for one in resting), "rests unnoticed"
        known = sum(len(resting) for resting in self.resting.values())
        live = [one for session in self._sessions.values() for one in session.partitions.values()]
        assert known == sum(one.rests_on is not None for one in live), "of a session that is gone"
