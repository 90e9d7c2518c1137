"""Incremental fetch sessions (KIP-227): the broker remembers a fetcher's partitions, and requests
and replies contain only changes.

Session id and epoch of a request say what it is:

    epoch -1 (final)    whole fetch without a session; closes the named session
    epoch  0 (initial)  whole fetch that requests a new session; closes the named one
    epoch >= 1          changes to the named session, which must be at exactly that epoch

A request of a session reads the partitions that *moved* since the last one: those that it names,
those that had more records, and those with an event. The other partitions are *idle*: a read found
nothing to send, and the shell notifies the session of the next event (``notify``, ``note``).

Pure. Ids come from a ``draw_id`` given by the shell. The cache is bounded: a new session replaces
the least recently used one, if that was unused for ``eviction_ms``. Otherwise the fetcher gets no
session (id 0), which is always correct.
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
NO_ERROR: Final = int(ErrorCode.NONE)

PartitionKey = tuple[str, bytes, int]
"""Topic name ('' if requested by id), topic id (16 zero bytes if requested by name), partition."""


Wanted = TypeVar("Wanted")
"""Type of the fetcher's parameters for one partition (offset, bytes...), which are only stored."""


class CachedPartition(Generic[Wanted]):
    """One partition of a session: the fetcher's parameters, and the state last sent to it."""

    __slots__ = (
        "_idle_until",
        "high_watermark",
        "idle_on",
        "key",
        "log_start",
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
        self.idle_on: Hashable | None = None
        """Key whose notification wakes the fetch that waits in the session; None: not idle."""
        self._idle_until = session.used_at

    @property
    def fetched_at(self) -> InstantMs:
        """Time of the session's last fetch while this partition was idle.

        Such a fetch requests the partition without naming it (``replica_progress.StandingFetch``).
        """
        return self._idle_until if self.idle_on is None else self.session.used_at

    def end_idle(self) -> None:
        """End the idle time; later fetches count for the partition only if they name it."""
        self._idle_until = self.session.used_at
        self.idle_on = None
        self.session.moved[self] = None

    def was_sent(self, high_watermark: int, log_start: int) -> bool:
        """True if this is the state last sent to the fetcher."""
        return high_watermark == self.high_watermark and log_start == self.log_start

    def must_answer(
        self, error_code: int, high_watermark: int, log_start: int, records_bytes: int
    ) -> bool:
        """True if the reply must contain this partition; stores the state that it then sends."""
        changed = (
            records_bytes > 0
            or error_code != NO_ERROR
            or high_watermark != self.high_watermark
            or log_start != self.log_start
        )
        self.high_watermark = high_watermark if error_code == NO_ERROR else -1
        self.log_start = log_start
        return changed


class FetchSession(Generic[Wanted]):
    """The partitions of one fetcher, served in turn.

    Invariant: each partition is idle or in ``moved``, or in both if it has changes that no fetch
    waits for.
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
        """Return a position after all others."""
        self._turns += 1
        return self._turns

    def served(self, keys: Sequence[PartitionKey]) -> None:
        """Move partitions that returned records to the end, so that the others are served first."""
        partitions = self.partitions
        for key in keys:
            entry = partitions.get(key)
            if entry is not None:
                self._turns += 1
                entry.turn = self._turns


Look = tuple[PartitionKey, Wanted, CachedPartition[Wanted] | None]
"""A partition to read, and its entry in the session (None without a session)."""


class FetchPlan(NamedTuple, Generic[Wanted]):
    """Partitions to fetch, and the form of the reply.

    ``session`` is None for a full fetch without a session. ``named`` are the partitions in the
    request.
    """

    session: FetchSession[Wanted] | None
    incremental: bool
    named: list[tuple[PartitionKey, Wanted]]

    @property
    def is_empty(self) -> bool:
        """True if nothing is requested."""
        return self.session is None and not self.named

    @property
    def wanted(self) -> list[tuple[PartitionKey, Wanted]]:
        """All requested partitions, in the order in which they are served."""
        if self.session is None or not self.incremental:
            return self.named
        partitions = _in_turn(self.session.partitions.values())
        return [(cached.key, cached.wanted) for cached in partitions]

    def looks(self) -> list[Look[Wanted]]:
        """Return the partitions to read now, in the order in which they are served: all of them for
        a full fetch, those that moved for an incremental one.
        """
        session = self.session
        if session is None:
            return [(key, want, None) for key, want in self.named]
        if not self.incremental:
            return [(key, want, session.partitions.get(key)) for key, want in self.named]
        return [(cached.key, cached.wanted, cached) for cached in _in_turn(session.moved)]


def _nothing(_: object) -> None:
    """Ignore a closed session."""


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
        """Called with each session that is closed; its partitions are no longer notified."""
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        self.eviction_ms = eviction_ms
        self.partition_count = 0
        self.evicted_count = 0
        self._sessions: OrderedDict[int, FetchSession[Wanted]] = OrderedDict()
        self.idle: dict[Hashable, dict[CachedPartition[Wanted], None]] = {}
        """Idle partitions by the key that they wait for; read directly on the hot path."""

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
        """Begin one request. An error code answers the whole request.

        ``asker``: the properties of the sender that its replies depend on. If they change, all
        partitions of the session are read again.
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
            self._end_all_idle(session)
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
            self._close(session_id)  # the fetcher may create it again, if there is room
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
        """Apply a request's additions, changes and removals."""
        partitions, before = session.partitions, len(session.partitions)
        for cached in session.moved:
            if cached.idle_on is not None:
                self._end_idle(cached)
        for key, want in wanted:
            entry = partitions.get(key)
            if entry is None:
                entry = partitions[key] = CachedPartition(session, key, want)
                session.moved[entry] = None
            else:
                entry.wanted = want
                if entry.idle_on is not None:
                    self._end_idle(entry)
        for key in forgotten:
            dropped = partitions.pop(key, None)
            if dropped is not None:
                self._end_idle(dropped)
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
            self._end_all_idle(session)
            self.on_closed(session)

    # -- idle partitions

    def mark_idle(self, cached: CachedPartition[Wanted], on: Hashable) -> bool:
        """Mark a partition idle, after a read without records, error or change of state.

        The session reads it again when a request names it, or after ``notify`` or ``note`` with
        ``on``. Returns False if the session is closed, since nothing would end the idle time.
        """
        session = cached.session
        if self._sessions.get(session.session_id) is not session:
            return False
        session.moved.pop(cached, None)
        if cached.idle_on is None:
            cached.idle_on = on
            idle = self.idle.get(on)
            if idle is None:
                idle = self.idle[on] = {}
            idle[cached] = None
        return True

    def notify(self, on: Hashable) -> Iterable[FetchSession[Wanted]]:
        """End the idle time of all partitions that wait for ``on``, and return their sessions.

        For events that waiting fetches must return.
        """
        idle = self.idle.pop(on, None)
        if idle is None:
            return ()
        for cached in idle:
            cached.end_idle()
        return [cached.session for cached in idle]

    def note(self, on: Hashable) -> None:
        """Let the next request read the partitions that wait for ``on``; they stay idle until then.

        For events that a reply reports, but that no fetch waits for.
        """
        for cached in self.idle.get(on, ()):
            cached.session.moved[cached] = None

    def _end_idle(self, cached: CachedPartition[Wanted]) -> None:
        on = cached.idle_on
        if on is None:
            return
        cached.end_idle()
        idle = self.idle[on]
        del idle[cached]
        if not idle:
            del self.idle[on]

    def _end_all_idle(self, session: FetchSession[Wanted]) -> None:
        for cached in session.partitions.values():
            self._end_idle(cached)

    def check(self) -> None:
        """Assert the bounds, the counts, and that every idle partition is registered."""
        assert len(self._sessions) <= self.sessions_max
        assert self.partition_count <= self.partitions_max
        counted = sum(len(session.partitions) for session in self._sessions.values())
        assert counted == self.partition_count, (counted, self.partition_count)
        for session in self._sessions.values():
            idle = {each for each in session.partitions.values() if each.idle_on is not None}
            assert set(session.partitions.values()) == idle | session.moved.keys(), "forgotten"
            assert all(each in self.idle[each.idle_on] for each in idle), "not registered"
        registered = sum(len(idle) for idle in self.idle.values())
        live = [each for session in self._sessions.values() for each in session.partitions.values()]
        assert registered == sum(each.idle_on is not None for each in live), "of a closed session"
