"""AgedCache: the last answer of each node with its age, fetched once for all callers.

A caller waits for a fresh answer for a bounded time. After it the caller gets the last answer with
its age, or the reason why there is none; the fetch goes on for the next caller.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark.runtime.clock import Clock

from controller.admin.errors import AdminError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Aged(Generic[Value]):
    """Answer of a node: ``value`` with its age, ``problem`` if there is none or only an old one."""

    value: Value | None
    age_ms: int | None = None
    problem: str | None = None


@dataclass(slots=True)
class _Entry(Generic[Value]):
    value: Value | None = None
    at_ms: int = 0
    problem: str | None = None
    failed_at_ms: int | None = None
    fetch: "asyncio.Task[None] | None" = None


class AgedCache(Generic[Key, Value]):
    """Cache of answers. ``fresh_ms`` is the age below which an answer is not fetched again; a
    failure stands for the same time, so that a dead node is not called by every request. An answer
    of an age below ``stale_ms`` is returned at once, while the next one is being fetched.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        *,
        fresh_ms: int,
        stale_ms: int = 0,
        entries_max: int = 1_024,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._fresh_ms = fresh_ms
        self._stale_ms = stale_ms
        self._entries_max = entries_max
        self._entries: dict[Key, _Entry[Value]] = {}

    async def get(
        self, key: Key, fetch: Callable[[], Awaitable[Value]], *, wait_ms: int
    ) -> Aged[Value]:
        """Return the answer for ``key``, at most ``wait_ms`` from now."""
        entry = self._entries.get(key)
        if entry is None:
            self._make_room()
            entry = self._entries[key] = _Entry()
        if self._is_due(entry):
            entry.fetch = self._tasks.create_task(self._fetch(entry, fetch), name=f"fetch-{key}")
        late = None
        if entry.fetch is not None and not self._is_of_use(entry):
            await asyncio.wait([entry.fetch], timeout=wait_ms / 1_000)
            late = f"no answer within {wait_ms} ms" if entry.fetch is not None else None
        if entry.value is None:
            return Aged(None, None, entry.problem or late)
        age_ms = self._clock.now_ms() - entry.at_ms
        return Aged(entry.value, age_ms, entry.problem or late)

    def _is_due(self, entry: _Entry[Value]) -> bool:
        now = self._clock.now_ms()
        if entry.fetch is not None:
            return False
        if entry.failed_at_ms is not None and now - entry.failed_at_ms < self._fresh_ms:
            return False
        return entry.value is None or now - entry.at_ms >= self._fresh_ms

    def _is_of_use(self, entry: _Entry[Value]) -> bool:
        """True for an answer that is shown without waiting for the next one."""
        return entry.value is not None and self._clock.now_ms() - entry.at_ms < self._stale_ms

    async def _fetch(self, entry: _Entry[Value], fetch: Callable[[], Awaitable[Value]]) -> None:
        try:
            entry.value = await fetch()
            entry.at_ms = self._clock.now_ms()
            entry.problem = entry.failed_at_ms = None
        except AdminError as problem:
            entry.problem = problem.message
            entry.failed_at_ms = self._clock.now_ms()
        except Exception as bug:
            log.critical("answer not fetched: internal error", exc_info=True)
            entry.problem = f"internal error: {type(bug).__name__}"
            entry.failed_at_ms = self._clock.now_ms()
        finally:
            entry.fetch = None

    def _make_room(self) -> None:
        """Forget the oldest entries without a fetch."""
        while len(self._entries) >= self._entries_max:
            idle = (key for key, entry in self._entries.items() if entry.fetch is None)
            oldest = next(idle, None)
            if oldest is None:
                return
            del self._entries[oldest]

    def forget(self, key: Key) -> None:
        """Forget the answer for ``key``, which a change has made untrue; also one that is being
        fetched, as it may be from before the change.
        """
        self._entries.pop(key, None)
