"""ParkingLot: the parked requests of the broker on the event loop: their deadlines, the changes of
partitions that wake them, and waits as something to await.
"""

import asyncio
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.ids import BrokerId, InstantMs
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig
from broker.core.fetch_sessions import FetchSessions
from broker.core.follower_answer import GATHER_BYTES, GATHER_MS, is_urgent
from broker.core.parked import INTERNAL, Parked, ParkedLimits
from broker.core.unread_bytes import UNKNOWN_BYTES
from broker.shell.partitions.hosted import HostedPartition

_NO_WATERMARK: Final = -1
CLOSED_PAUSE_MS: Final = 100
"""Duration of a wait that cannot be parked because the broker stops. A loop around such a wait must
leave the event loop to others, or what it waits for cannot happen.
"""


def parked_limits(config: BrokerConfig) -> ParkedLimits:
    """Return the configured number of requests of each kind that may wait."""
    return ParkedLimits(
        reads_max=config.parked_requests_max,
        followers_max=config.parked_followers_max,
        writes_max=config.parked_writes_max,
    )


class Follower(NamedTuple):
    """Key for which every fetch of this follower waits, in addition to its partitions."""

    broker_id: BrokerId


class ParkingLot:
    """Wakes parked requests: at their deadlines, and when a partition changes.

    A fetch in a session waits for the session as one, and in addition only for those of its
    partitions that are not idle there. Consumers wait for the partition (its high watermark),
    followers for its ``tail`` (its log end). Runs on the loop.
    """

    def __init__(
        self,
        limits: ParkedLimits,
        clock: Clock,
        sessions: FetchSessions[FetchPartition],
        *,
        tells_followers: bool = False,
    ) -> None:
        """``tells_followers``: a high watermark that moved ends the wait of followers, which serve
        consumers up to theirs.
        """
        self.requests = Parked(limits, on_earlier=self._arm)
        self._clock = clock
        self._sessions = sessions
        self._tells_followers = tells_followers
        sessions.on_closed = self.requests.released
        self._timer: asyncio.TimerHandle | None = None
        self.deletions = 0
        """Number of deletions of records that wait for followers."""

    # -- waits

    async def wait_readable(
        self, hosted: Sequence[HostedPartition], *, bytes_missing: int, wait_ms: int
    ) -> bool:
        """Wait until these partitions gained ``bytes_missing`` readable bytes. False at the
        deadline, or soon if there is no room. Always gives up the loop at least once.
        """
        gained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - the callback's one answer
            if not gained.done():
                gained.set_result(fulfilled)

        request = self.requests.park_fetch(
            hosted,
            bytes_missing=bytes_missing,
            now=self._clock.now_ms(),
            wait_ms=wait_ms,
            wake=wake,
        )
        if request is None:
            await self._not_parked(wait_ms)
            return False
        try:
            return await gained
        finally:
            self.requests.cancel(request)

    async def wait_committed(
        self, hosted: HostedPartition, end: int, *, wait_ms: int, kind: int = INTERNAL
    ) -> bool:
        """Wait until the high watermark reaches ``end``. False at the deadline, if leadership is
        lost, or soon if the broker stops. Always gives up the loop at least once.
        """
        return await self._wait_passed(hosted, end, wait_ms, kind)

    async def wait_deleted(self, hosted: HostedPartition, offset: int, *, wait_ms: int) -> bool:
        """Wait until the low watermark reaches ``offset``, to which the leader has moved its log
        start. False as for ``wait_committed``.
        """
        self.deletions += 1
        try:
            return await self._wait_passed(hosted.start, offset, wait_ms, INTERNAL)
        finally:
            self.deletions -= 1

    async def _wait_passed(self, key: Hashable, end: int, wait_ms: int, kind: int) -> bool:
        passed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - the callback's one answer
            if not passed.done():
                passed.set_result(fulfilled)

        request = self.requests.park_produce(
            [(key, end)], now=self._clock.now_ms(), wait_ms=wait_ms, wake=wake, kind=kind
        )
        if request is None:
            await self._not_parked(wait_ms)
            return False
        try:
            return await passed
        finally:
            self.requests.cancel(request)

    async def _not_parked(self, wait_ms: int) -> None:
        is_closed = self.requests.is_closed
        await asyncio.sleep(min(wait_ms, CLOSED_PAUSE_MS) / 1_000 if is_closed else 0)

    async def wait_room(self) -> None:
        """Return once a write that has to wait for its commit may be appended."""
        requests = self.requests
        while requests.is_full and not requests.is_closed:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            resume = partial(_done, room)
            requests.when_room(resume)
            try:
                await room
            finally:
                requests.forget_room(resume)

    # -- changes of partitions

    def moved(self, hosted: HostedPartition, gained_bytes: int) -> None:
        """Wake requests after the high watermark of a partition moved. Followers get it with their
        next fetch, unless they serve consumers.
        """
        requests, idle = self.requests, self._sessions.idle
        if requests.count:
            requests.advanced(hosted, hosted.partition.bounds.high_watermark, gained_bytes)
        if hosted in idle:
            self._wake_sessions(hosted)
        if self._tells_followers:
            requests.advanced(hosted.tail, hosted.partition.bounds.log_end, UNKNOWN_BYTES)
            self._wake_sessions(hosted.tail)
        elif hosted.tail in idle:
            self._sessions.note(hosted.tail)

    def is_awaited(self, hosted: HostedPartition) -> bool:
        """True if a producer or a consumer waits for the high watermark of a partition; also if a
        session of a consumer is idle there, whether or not it has a request now.
        """
        return self.requests.is_watched(hosted) or hosted in self._sessions.idle

    def appended(
        self, hosted: HostedPartition, size_bytes: int, gained_bytes: int, *, must_wait: bool
    ) -> None:
        """Wake requests after an append: followers may read it, and consumers the bytes gained.
        ``must_wait``: its producer waits for followers. Without anybody who waits, followers wait
        for more.
        """
        requests, idle, tail = self.requests, self._sessions.idle, hosted.tail
        urgent = is_urgent(
            must_wait=must_wait,
            is_awaited=self.is_awaited(hosted),
            serves_consumers=self._tells_followers,
        )
        if gained_bytes:
            if requests.is_watched(hosted):
                requests.advanced(hosted, hosted.partition.bounds.high_watermark, gained_bytes)
            if hosted in idle:
                self._wake_sessions(hosted)
        if not urgent:
            self._gather(tail, size_bytes)
        else:
            if requests.is_watched(tail):
                requests.advanced(tail, hosted.partition.bounds.log_end, size_bytes)
            if tail in idle:
                self._wake_sessions(tail)
        for broker_id in hosted.partition.replica_set.unfetched:
            # Answered now, it comes again and names this partition: the write does not wait for
            # the end of its long poll.
            requests.released(Follower(broker_id))

    def _gather(self, tail: Hashable, size_bytes: int) -> None:
        """Let followers' fetches wait a little longer for more. Their sessions stay idle, so that
        an urgent append wakes them.
        """
        now = self._clock.now_ms()
        waiting: list[Hashable] = [tail] if self.requests.is_watched(tail) else []
        waiting += [cached.session for cached in self._sessions.idle.get(tail, ())]
        self._sessions.note(tail)
        for key in waiting:
            self.requests.gathered(key, size_bytes, now, wait_ms=GATHER_MS, bytes_max=GATHER_BYTES)

    def gone(self, hosted: HostedPartition) -> None:
        """Wake all requests of a partition whose leadership changed; they look again."""
        self._look_again(hosted)
        self._look_again(hosted.tail)
        self._look_again(hosted.start)

    def followers_look_again(self, hosted: HostedPartition) -> None:
        """Wake the followers of a partition that has lost some, or begins later."""
        self._look_again(hosted.tail)

    def followers_started(self, hosted: HostedPartition) -> None:
        """Wake deletions after the log start of a follower, or the ISR, may have changed."""
        low_watermark = hosted.partition.commitment.low_watermark
        self.requests.advanced(hosted.start, low_watermark, 0)

    def _look_again(self, changed: Hashable) -> None:
        self.requests.released(changed)
        for session in self._sessions.notify(changed):
            self.requests.released(session)

    def has_news(self, hosted: HostedPartition) -> None:
        """Note that the log start, the ISR or the replicas of a partition changed. No request waits
        for that, but the next answers of sessions contain the partition.
        """
        self._sessions.note(hosted)
        self._sessions.note(hosted.tail)
        if self.deletions:
            self.followers_started(hosted)

    def _wake_sessions(self, changed: Hashable) -> None:
        """Wake requests that wait for a session. Each finds by itself whether the change is enough,
        or waits for this partition too, so that its next gains are counted.
        """
        for session in self._sessions.notify(changed):
            if self.requests.is_watched(session):
                self.requests.advanced(session, _NO_WATERMARK, UNKNOWN_BYTES)

    # -- deadlines

    def wake_all(self) -> None:
        """Wake every request, because the broker stops. None is parked from here on."""
        self._disarm()
        self.requests.close(self._clock.now_ms())

    def _arm(self, due: InstantMs) -> None:
        """Set the timer to a deadline that is the earliest now."""
        self._disarm()
        wait_s = max(0, due - self._clock.now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self.requests.expire(self._clock.now_ms())
        due = self.requests.next_deadline()
        if due is not None and self._timer is None:
            self._arm(due)


def _done(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
