"""Incremental fetch sessions (KIP-227): the broker remembers what a fetcher asks, requests and
answers carry changes.

Session id and epoch of a request say what it is:

    epoch -1 (final)    whole fetch without a session; closes the named session
    epoch  0 (initial)  whole fetch that asks for a new session; closes the named one
    epoch >= 1          changes to the named session, which must be at exactly that epoch

Pure. Ids come from a ``draw_id`` given by the shell. The cache is bounded: a new session replaces
the one unused for longest, if that was idle for ``eviction_ms``; else the fetcher gets no session
(id 0), which is always correct.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
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

    __slots__ = ("high_watermark", "key", "log_start", "wanted")

    def __init__(self, key: PartitionKey, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start = -1

    def must_answer(
        self, error_code: int, high_watermark: int, log_start: int, records_bytes: int
    ) -> bool:
        """Whether the fetcher must hear of this partition; remembers what it then knows."""
        changed = (
            records_bytes > 0
            or error_code != ErrorCode.NONE
            or high_watermark != self.high_watermark
            or log_start != self.log_start
        )
        self.high_watermark = high_watermark if error_code == ErrorCode.NONE else -1
        self.log_start = log_start
        return changed


class FetchSession(Generic[Wanted]):
    """One fetcher's partitions, in the order in which they are served."""

    __slots__ = ("by_id", "epoch", "partitions", "session_id", "used_at")

    def __init__(self, session_id: int, *, by_id: bool, now: InstantMs) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.used_at = now
        self.partitions: OrderedDict[PartitionKey, CachedPartition[Wanted]] = OrderedDict()

    def update(
        self,
        wanted: Iterable[tuple[PartitionKey, Wanted]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        """Take over what a request adds, changes and drops."""
        for key, want in wanted:
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(key, want)
            else:
                cached.wanted = want
        for key in forgotten:
            self.partitions.pop(key, None)

    def served(self, keys: Sequence[PartitionKey]) -> None:
        """Partitions that gave records go to the end, so that the next answer serves the others
        first.
        """
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchPlan(NamedTuple, Generic[Wanted]):
    """What to fetch and how to answer: ``session`` None means whole and sessionless."""

    session: FetchSession[Wanted] | None
    incremental: bool
    wanted: list[tuple[PartitionKey, Wanted]]


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
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        self.eviction_ms = eviction_ms
        self.partition_count = 0
        self.evicted_count = 0
        self._sessions: OrderedDict[int, FetchSession[Wanted]] = OrderedDict()

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
    ) -> FetchPlan[Wanted] | ErrorCode:
        """Take one request. An error code answers the whole request."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._close(session_id)
            session = None
            if session_epoch == INITIAL_EPOCH and wanted:
                session = self._create(wanted, by_id=by_id, now=now)
            return FetchPlan(session, incremental=False, wanted=wanted)
        return self._continue(session_id, session_epoch, wanted, forgotten, by_id=by_id, now=now)

    def _continue(
        self,
        session_id: int,
        session_epoch: int,
        wanted: list[tuple[PartitionKey, Wanted]],
        forgotten: list[PartitionKey],
        *,
        by_id: bool,
        now: InstantMs,
    ) -> FetchPlan[Wanted] | ErrorCode:
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self.partition_count += len(session.partitions) - before
        if not session.partitions:
            self._close(session_id)
            return FetchPlan(None, incremental=False, wanted=[])
        if len(session.partitions) > before and self.partition_count > self.partitions_max:
            self._close(session_id)  # it may come back whole, and then finds room or goes without
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session_id)
        everything = [(key, cached.wanted) for key, cached in session.partitions.items()]
        return FetchPlan(session, incremental=True, wanted=everything)

    def _create(
        self,
        wanted: list[tuple[PartitionKey, Wanted]],
        *,
        by_id: bool,
        now: InstantMs,
    ) -> FetchSession[Wanted] | None:
        if not self._make_room(len(wanted), now):
            return None
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._draw_id()
        session: FetchSession[Wanted] = FetchSession(session_id, by_id=by_id, now=now)
        session.update(wanted, ())
        self._sessions[session_id] = session
        self.partition_count += len(session.partitions)
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

    def check(self) -> None:
        """Assert the bounds and the count."""
        assert len(self._sessions) <= self.sessions_max
        assert self.partition_count <= self.partitions_max
        counted = sum(len(session.partitions) for session in self._sessions.values())
        assert counted == self.partition_count, (counted, self.partition_count)
