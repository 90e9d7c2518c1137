"""ParkingLot: the broker's parked requests with a clock, and their wake as something to await."""

import asyncio
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidemark.kafka.fetch import FetchPartition
from tidemark.model.ids import BrokerId, InstantMs
from tidemark.runtime.clock import Clock

from broker.config import BrokerConfig
from broker.core.fetch_sessions import FetchSessions
from broker.core.parked import INTERNAL, WAIT_MS_MAX, Parked, ParkedLimits
from broker.core.unread_bytes import UNKNOWN_BYTES
from broker.shell.partitions.hosted import HostedPartition

_NO_WATERMARK: Final = -1
CLOSED_PAUSE_MS: Final = 100
"""How long a wait takes that cannot be parked because the broker stops. A loop around such a wait
must leave the event loop to others, or nothing it waits for can happen.
"""


def parked_limits(config: BrokerConfig) -> ParkedLimits:
    """How many requests may wait, as configured."""
    return ParkedLimits(
        reads_max=config.parked_requests_max,
        followers_max=config.parked_followers_max,
        writes_max=config.parked_writes_max,
    )


class Follower(NamedTuple):
    """Every fetch of this broker waits for it, besides what it fetches."""

    broker_id: BrokerId


class ParkingLot(Parked):
    """``Parked`` whose deadlines pass by themselves, and who tells fetch sessions what moved: a
    fetch waits for its session once, and for those of its partitions alone that do not rest there.
    Consumers' partitions rest on the partition, followers' on its tail. Runs on the loop.
    """

    def __init__(
        self, limits: ParkedLimits, clock: Clock, sessions: FetchSessions[FetchPartition]
    ) -> None:
        super().__init__(limits, on_earlier=self._arm)
        self._clock = clock
        self._sessions = sessions
        sessions.on_closed = self.released
        self._timer: asyncio.TimerHandle | None = None

    async def wait_readable(
        self, hosted: Sequence[HostedPartition], *, bytes_missing: int, wait_ms: int
    ) -> bool:
        """Wait until these partitions gained ``bytes_missing`` readable bytes; False at the
        deadline, or soon when there is no room. Always lets others run.
        """
        gained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - the callback's one answer
            if not gained.done():
                gained.set_result(fulfilled)

        request = self.park_fetch(
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
            self.cancel(request)

    async def wait_committed(
        self, hosted: HostedPartition, end: int, *, wait_ms: int, kind: int = INTERNAL
    ) -> bool:
        """Wait until the high watermark reaches ``end``; False at the deadline, when leadership is
        lost, or soon when the broker stops. Always lets others run.
        """
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - the callback's one answer
            if not committed.done():
                committed.set_result(fulfilled)

        request = self.park_produce(
            [(hosted, end)], now=self._clock.now_ms(), wait_ms=wait_ms, wake=wake, kind=kind
        )
        if request is None:
            await self._not_parked(wait_ms)
            return False
        try:
            return await committed
        finally:
            self.cancel(request)

    async def _not_parked(self, wait_ms: int) -> None:
        await asyncio.sleep(min(wait_ms, CLOSED_PAUSE_MS) / 1_000 if self.is_closed else 0)

    async def wait_room(self) -> None:
        """Return when a write may be appended that would have to wait."""
        while self.is_full and not self.is_closed:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            resume = partial(_done, room)
            self.when_room(resume)
            try:
                await room
            finally:
                self.forget_room(resume)

    def moved(self, hosted: HostedPartition, gained_bytes: int) -> None:
        """The high watermark of a partition moved: wake who waits for it. Followers hear of it with
        their next fetch.
        """
        if self.count and self.is_watched(hosted):
            self.advanced(hosted, hosted.partition.bounds.high_watermark, gained_bytes)
        self._wake_sessions(hosted)
        self._sessions.note(hosted.tail)

    def appended(self, hosted: HostedPartition, size_bytes: int, gained_bytes: int) -> None:
        """A batch is in the log: followers may have it, and consumers what became readable."""
        idle, tail = self._sessions.idle, hosted.tail
        if gained_bytes:
            if self.is_watched(hosted):
                self.advanced(hosted, hosted.partition.bounds.high_watermark, gained_bytes)
            if hosted in idle:
                self._wake_sessions(hosted)
        if self.is_watched(tail):
            self.advanced(tail, hosted.partition.bounds.log_end, size_bytes)
        if tail in idle:
            self._wake_sessions(tail)
        for broker_id in hosted.partition.replica_set.unfetched:
            # Answered now, it comes again and names this partition: the write does not wait for
            # the end of its long poll.
            self.released(Follower(broker_id))

    def gone(self, hosted: HostedPartition) -> None:
        """Leadership of a partition changed: consumers, followers and producers look again."""
        self._look_again(hosted)
        self._look_again(hosted.tail)

    def replicas_left(self, hosted: HostedPartition) -> None:
        """Who waits as one of its followers may be none any more: they look again."""
        self._look_again(hosted.tail)

    def _look_again(self, moved: Hashable) -> None:
        self.released(moved)
        for session in self._sessions.notify(moved):
            self.released(session)

    def has_news(self, hosted: HostedPartition) -> None:
        """Its log start, its ISR or its replicas are others: nobody waits for that, but the next
        answers tell what follows from it.
        """
        self._sessions.note(hosted)
        self._sessions.note(hosted.tail)

    def _wake_sessions(self, moved: Hashable) -> None:
        """Whoever waits in one finds for itself whether that is enough, or waits for this one too:
        what it gains from now on is counted.
        """
        for session in self._sessions.notify(moved):
            if self.is_watched(session):
                self.advanced(session, _NO_WATERMARK, UNKNOWN_BYTES)

    def wake_all(self) -> None:
        """Stopping: every long poll answers with what there is, and nothing parks any more: who is
        woken before its time would park again.
        """
        self.is_closed = True
        self._disarm()
        self.expire(InstantMs(self._clock.now_ms() + 2 * WAIT_MS_MAX))

    def _arm(self, due: InstantMs) -> None:
        """A parked request's deadline is now the earliest."""
        self._disarm()
        wait_s = max(0, due - self._clock.now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        self.expire(self._clock.now_ms())
        due = self.next_deadline()
        if due is not None and self._timer is None:
            self._arm(due)


def _done(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
