"""Requests that wait for an offset, for bytes or for a deadline (Kafka: purgatory). Pure; the shell
performs the wake.

There are two kinds. A *produce* waits until the high watermark of each of its partitions reaches
the end of what it wrote; ends of one partition are parked in rising order, so that waking is a pop
from the left. A *fetch* waits until its partitions have gained so many bytes; every advance is
credited to it. Both wake at their deadline, kept in buckets of ``BUCKET_MS`` so that parking and
waking are O(1) and no stale entry stays behind.

Room is limited by kind (``ParkedLimits``), so that no kind takes the room of another. A long poll
without room is answered at once, and its client polls again. A write is in the log before it waits,
and an error would be wrong. So there must be room before it is appended (``is_full``,
``when_room``), and what has been appended always parks.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from tidemark.model.ids import InstantMs

BUCKET_MS: Final = 5
WAIT_MS_MAX: Final = 600_000
"""Upper bound of every wait; bounds the number of deadline buckets."""


class ParkedLimits(NamedTuple):
    """Number of requests of each kind that may wait at a time, in the order of the kinds."""

    reads_max: int = 16_384
    """Long polls of consumers."""
    followers_max: int = 1_024
    """Long polls of followers; a few for each broker of the cluster."""
    writes_max: int = 16_384
    """Produces that wait for the in-sync replicas."""


READ: Final = 0
FOLLOWER: Final = 1
WRITE: Final = 2
INTERNAL: Final = 3
"""Kinds of parked requests. Internal ones have no limit here: coordinators and markers limit what
they have under way, and no other kind may take their room.
"""


class ParkedRequest:
    """One waiting request. ``wake`` is called at most once, with True if the wait was fulfilled."""

    __slots__ = ("bucket", "keys", "kind", "missing", "wake")

    def __init__(
        self, wake: Callable[[bool], None], missing: int, keys: tuple[Hashable, ...], kind: int
    ):
        self.wake: Callable[[bool], None] | None = wake
        self.missing = missing
        self.keys = keys
        self.kind = kind
        self.bucket = 0

    @property
    def is_waiting(self) -> bool:
        """False once woken or cancelled."""
        return self.wake is not None


_USUAL: Final = ParkedLimits()


class Parked:
    """Waiting requests of one broker, bounded by kind."""

    def __init__(
        self,
        limits: ParkedLimits = _USUAL,
        *,
        on_earlier: Callable[[InstantMs], None] | None = None,
    ) -> None:
        """``on_earlier`` is called with the deadline of a new request if it is the earliest."""
        assert min(limits) > 0, limits
        self.limits = limits
        self._on_earlier = on_earlier
        self.count = 0
        self.counts = [0, 0, 0, 0]
        """Number of waiting requests by kind."""
        self.is_full = False
        """True while as many writes wait as may: none that has to wait should be appended."""
        self.is_closed = False
        """True once requests are no longer parked."""
        self.polls_refused = 0
        """Number of long polls without room."""
        self.writes_held_back = 0
        """Number of writes that had to wait for room before they were appended."""
        self._room_wanted: dict[Callable[[], None], None] = {}
        self._gives_room = False
        self._fetches: dict[Hashable, dict[ParkedRequest, None]] = {}
        self._produces: dict[Hashable, deque[tuple[int, ParkedRequest]]] = {}
        self._buckets: dict[int, dict[ParkedRequest, None]] = {}
        self._bucket_order: list[int] = []

    # -- parking

    def park_fetch(
        self,
        keys: Iterable[Hashable],
        *,
        bytes_missing: int,
        now: InstantMs,
        wait_ms: int,
        wake: Callable[[bool], None],
        kind: int = READ,
    ) -> ParkedRequest | None:
        """Park a fetch until ``keys`` gained ``bytes_missing`` bytes. Return None without room.
        ``kind`` is READ or FOLLOWER.
        """
        if self.is_closed or self.counts[kind] >= self.limits[kind]:
            self.polls_refused += 1
            return None
        request = ParkedRequest(wake, max(bytes_missing, 1), tuple(dict.fromkeys(keys)), kind)
        for key in request.keys:
            watching = self._fetches.get(key)
            if watching is None:
                watching = self._fetches[key] = {}
            watching[request] = None
        self._park_until(request, now, wait_ms)
        return request

    def park_produce(
        self,
        ends: Iterable[tuple[Hashable, int]],
        *,
        now: InstantMs,
        wait_ms: int,
        wake: Callable[[bool], None],
        kind: int = WRITE,
    ) -> ParkedRequest | None:
        """Park a produce until each partition's high watermark reaches its end. Return None only if
        ``is_closed``; room is checked before the append. ``kind`` is WRITE or INTERNAL.
        """
        if self.is_closed:
            return None
        awaited = tuple(ends)
        request = ParkedRequest(wake, len(awaited), (), kind)
        for key, end in awaited:
            queue = self._produces.get(key)
            if queue is None:
                queue = self._produces[key] = deque()
            while queue and not queue[0][1].is_waiting:
                queue.popleft()  # timed out while the watermark stood still
            while queue and not queue[-1][1].is_waiting:
                queue.pop()  # likewise, behind one that waits longer
            if not queue or queue[-1][0] <= end:
                queue.append((end, request))
            else:  # a retry of an earlier batch
                queue.insert(bisect_right(queue, end, key=itemgetter(0)), (end, request))
        self._park_until(request, now, wait_ms)
        return request

    def _park_until(self, request: ParkedRequest, now: InstantMs, wait_ms: int) -> None:
        due = now + min(max(wait_ms, 0), WAIT_MS_MAX)
        self._put(request, -(-due // BUCKET_MS))
        self.count += 1
        self.counts[request.kind] += 1
        if request.kind == WRITE:
            self.is_full = self.counts[WRITE] >= self.limits.writes_max

    def _put(self, request: ParkedRequest, number: int) -> None:
        """Put a request into a bucket."""
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._bucket_order, number)
            if self._on_earlier is not None and self._bucket_order[0] == number:
                self._on_earlier(InstantMs(number * BUCKET_MS))
        bucket[request] = None
        request.bucket = number

    # -- room for writes

    def when_room(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once a write may be appended again. Calls are made in the order of these
        requests.
        """
        assert self.is_full, "there is room"
        self.writes_held_back += 1
        self._room_wanted[resume] = None

    def forget_room(self, resume: Callable[[], None]) -> None:
        """Withdraw ``when_room``. Idempotent."""
        self._room_wanted.pop(resume, None)

    def _give_room(self) -> None:
        """Resume as many writes as there is room for, after one has left."""
        if self._gives_room:
            return  # called from a resumed append: the loop below goes on
        self._gives_room = True
        try:
            while self._room_wanted and not self.is_full:
                resume = next(iter(self._room_wanted))
                del self._room_wanted[resume]
                resume()
        finally:
            self._gives_room = False

    # -- waking

    def is_watched(self, key: Hashable) -> bool:
        """Return True if a request waits for this key. On the hot path."""
        return key in self._fetches or key in self._produces

    def advanced(self, key: Hashable, high_watermark: int, gained_bytes: int) -> None:
        """Credit ``gained_bytes`` to the fetches of a partition, and wake the produces below its
        high watermark.
        """
        watching = self._fetches.get(key)
        if watching is not None:
            full = []
            for request in watching:
                request.missing -= gained_bytes
                if request.missing <= 0:
                    full.append(request)
            for request in full:
                if request.is_waiting:  # a wake may release others
                    self._finish(request, fulfilled=True)
        queue = self._produces.get(key)
        if queue is not None:
            self._advance_produces(key, queue, high_watermark)

    def gathered(
        self, key: Hashable, gained_bytes: int, now: InstantMs, *, wait_ms: int, bytes_max: int
    ) -> None:
        """Credit bytes that are not urgent to the fetches of a partition. One that has enough wakes
        in ``wait_ms`` at the latest, or now if it has ``bytes_max`` bytes more than it waits for.
        """
        full = []
        number = -(-(now + wait_ms) // BUCKET_MS)
        for request in self._fetches.get(key, ()):
            request.missing -= gained_bytes
            if request.missing <= -bytes_max:
                full.append(request)
            elif request.missing <= 0 and number < request.bucket:
                del self._buckets[request.bucket][request]
                self._put(request, number)
        for request in full:
            if request.is_waiting:  # a wake may release others
                self._finish(request, fulfilled=True)

    def _advance_produces(
        self, key: Hashable, queue: deque[tuple[int, ParkedRequest]], high_watermark: int
    ) -> None:
        while queue and (queue[0][0] <= high_watermark or not queue[0][1].is_waiting):
            _, request = queue.popleft()
            request.missing -= 1
            if request.missing == 0 and request.is_waiting:
                self._finish(request, fulfilled=True)
        if not queue and self._produces.get(key) is queue:
            del self._produces[key]

    def released(self, key: Hashable) -> None:
        """Wake everything that waits for a key, unfulfilled: the partition is no longer served
        here, or its leader changed.
        """
        for request in tuple(self._fetches.get(key, ())):
            if request.is_waiting:
                self._finish(request, fulfilled=False)
        for _, request in self._produces.pop(key, ()):
            if request.is_waiting:
                self._finish(request, fulfilled=False)

    def cancel(self, request: ParkedRequest) -> None:
        """Remove a request whose connection is gone, without waking it. Idempotent."""
        if request.is_waiting:
            self._leave(request)
            request.wake = None
            if self._room_wanted:
                self._give_room()

    def expire(self, now: InstantMs) -> None:
        """Wake the requests whose deadline has passed; those that gathered have what they want."""
        order = self._bucket_order
        while order and order[0] * BUCKET_MS <= now:
            for request in tuple(self._buckets.pop(heapq.heappop(order))):
                if request.is_waiting:
                    self._finish(request, fulfilled=request.missing <= 0)

    def next_deadline(self) -> InstantMs | None:
        """Return the time at which ``expire`` is due; None if no request waits."""
        order = self._bucket_order
        while order and not self._buckets[order[0]]:
            del self._buckets[heapq.heappop(order)]
        return InstantMs(order[0] * BUCKET_MS) if order else None

    def close(self, now: InstantMs) -> None:
        """Wake every request, and park none from here on: requests that are woken before their time
        would park again.
        """
        self.is_closed = True
        self.expire(InstantMs(now + 2 * WAIT_MS_MAX))

    def _finish(self, request: ParkedRequest, *, fulfilled: bool) -> None:
        wake = request.wake
        assert wake is not None, "woken twice"
        self._leave(request)
        request.wake = None
        wake(fulfilled)
        if self._room_wanted:
            self._give_room()

    def _leave(self, request: ParkedRequest) -> None:
        self.count -= 1
        self.counts[request.kind] -= 1
        if request.kind == WRITE:
            self.is_full = self.counts[WRITE] >= self.limits.writes_max
        bucket = self._buckets.get(request.bucket)
        if bucket is not None:
            bucket.pop(request, None)
        for key in request.keys:
            watching = self._fetches.get(key)
            if watching is not None:
                watching.pop(request, None)
                if not watching:
                    del self._fetches[key]

    def check(self) -> None:
        """Assert that every waiting request is in exactly one bucket, and counted."""
        waiting = [request for bucket in self._buckets.values() for request in bucket]
        assert len(waiting) == self.count, (len(waiting), self.count)
        by_kind = [sum(each.kind == kind for each in waiting) for kind in range(len(self.counts))]
        assert by_kind == self.counts, (by_kind, self.counts)
        assert self.counts[READ] <= self.limits.reads_max, self.counts
        assert self.counts[FOLLOWER] <= self.limits.followers_max, self.counts
        assert self.is_full == (self.counts[WRITE] >= self.limits.writes_max), self.counts
        assert self.is_full or not self._room_wanted, "room is withheld"
        assert all(request.is_waiting for request in waiting)
        assert set(self._bucket_order) == set(self._buckets)
