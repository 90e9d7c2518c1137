"""The metadata feed: for each subscriber a snapshot, then all deltas, in order and without a gap.

A subscriber's queue is bounded. If it overflows, a new snapshot takes its place.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import START_OF_FEED, ClusterDelta, ClusterImage, FeedPosition
from tidemark.runtime.metadata_wire import delta_update, snapshot_update
from tidemark.runtime.telemetry import fields
from tidemark_wire.v1 import controller_pb2 as pb

log = logging.getLogger(__name__)

NOT_A_BROKER: Final = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of subscribers and their queues."""

    updates_queued_max: int = 256
    subscribers_max: int = 1_024

    def __post_init__(self) -> None:
        assert self.updates_queued_max > 0, "updates_queued_max"
        assert self.subscribers_max > 0, "subscribers_max"


class FeedListener(Protocol):
    """Receiver of news about the streams of registered brokers and coordinators, while the feed is
    open.
    """

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> None:
        """Called when a broker has applied the feed up to ``position``."""

    def lost(self, broker_epoch: BrokerEpoch) -> None:
        """Called when the last stream of a broker broke."""

    def regained(self, broker_epoch: BrokerEpoch) -> None:
        """Called when a broker has a stream, and had none before."""


class Subscription:
    """One stream. Its last update has an error code. ``broker_epoch`` may be a coordinator's: both
    are numbers of one sequence.
    """

    def __init__(self, name: str, broker_epoch: BrokerEpoch, updates_max: int) -> None:
        self.name = name
        self.answers_heartbeats = False
        self.takes_partitions = False
        """True if deltas may carry single partitions in place of whole topics."""
        self.is_silent = False
        self._beat_at: InstantMs | None = None
        """Time of the heartbeat that is not answered yet."""
        self._must_beat = False
        self.broker_epoch = broker_epoch
        self.acknowledged = START_OF_FEED
        self._updates_max = updates_max
        self._updates: deque[pb.MetadataUpdate] = deque()
        self._ready = asyncio.Event()
        self._behind = True  # the next update is a snapshot
        self._last: pb.MetadataUpdate | None = None
        self.gone = False

    @property
    def over(self) -> bool:
        """True if the last update is decided: the stream no longer shows that its subscriber is
        alive.
        """
        return self._last is not None

    def offer(self, update: pb.MetadataUpdate) -> None:
        """Queue a delta. Beyond the bound a snapshot takes the place of the queue."""
        if self._behind:
            return
        if len(self._updates) >= self._updates_max:
            log.warning(
                "subscriber too slow, new snapshot sent", extra=fields(subscriber=self.name)
            )
            self.start_over()
            return
        self._updates.append(update)
        self._ready.set()

    def beat(self, now: InstantMs) -> int:
        """Send a heartbeat, unless one is unanswered. Return the ms for which one has been."""
        if self._beat_at is None and self.answers_heartbeats and not self.over:
            self._beat_at = now
            self._ready.set()
            self._must_beat = True
        return 0 if self._beat_at is None else now - self._beat_at

    def answered(self) -> None:
        """Note an acknowledgement, which answers a heartbeat."""
        self._beat_at = None

    def start_over(self) -> None:
        """Drop the queue: the next update is a snapshot."""
        self._updates.clear()
        self._behind = True
        self._ready.set()

    def end(self, code: ErrorCode, hint: str = "") -> None:
        """End the stream with an error. Queued updates are not sent."""
        if self._last is None:
            self._last = pb.MetadataUpdate(error_code=code, controller_hint=hint)
        self._ready.set()

    def leave(self) -> None:
        """Note that the subscriber has closed its side: nothing is sent after this."""
        self.gone = True
        self._ready.set()

    async def next_update(self, feed: "MetadataFeed") -> pb.MetadataUpdate | None:
        """Wait for the next update to send; None once the subscriber has left."""
        while not self.gone:
            if self._last is not None:
                return self._last
            if self._behind and (snapshot := feed.snapshot()) is not None:
                self._behind = False
                return snapshot
            if self._updates:
                return self._updates.popleft()
            if self._must_beat:
                self._must_beat = False
                return pb.MetadataUpdate(heartbeat=True)
            self._ready.clear()
            await self._ready.wait()
        return None


class MetadataFeed:
    """All subscriptions of this replica; none while it is not active."""

    def __init__(self, limits: FeedLimits, listener: FeedListener | None = None) -> None:
        self._limits = limits
        self._listener = listener
        self._image: ClusterImage | None = None
        self._snapshot: pb.MetadataUpdate | None = None
        self._subscriptions: list[Subscription] = []

    @property
    def is_open(self) -> bool:
        """True if this replica has metadata to send."""
        return self._image is not None

    @property
    def image(self) -> ClusterImage:
        """All metadata as last sent."""
        assert self._image is not None, "the feed is closed"
        return self._image

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, each with its acknowledged position."""
        return tuple(self._subscriptions)

    def open(self, image: ClusterImage) -> None:
        """Open the feed at the beginning of a term."""
        assert self._image is None, "opened twice"
        self._image, self._snapshot = image, None

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Send a delta to all subscribers. Streams of earlier registrations end."""
        assert self._image is not None, "the feed is closed"
        before, self._image, self._snapshot = self._image, image, None
        updates: dict[bool, pb.MetadataUpdate] = {}
        for subscription in self._subscriptions:
            narrow = subscription.takes_partitions
            if narrow not in updates:
                sent = delta.narrowed(before) if narrow else delta
                updates[narrow] = delta_update(sent, image.position, image.controller_id)
            subscription.offer(updates[narrow])
        if (
            delta.brokers_changed
            or delta.brokers_gone
            or delta.coordinators_changed
            or delta.coordinators_gone
        ):
            for subscription in self._subscriptions:
                if not self._entitled(subscription.broker_epoch):
                    subscription.end(ErrorCode.STALE_BROKER_EPOCH)

    def close(self, hint: str) -> None:
        """End all streams at the end of a term."""
        self._image = self._snapshot = None
        for subscription in self._subscriptions:
            subscription.end(ErrorCode.NOT_CONTROLLER, hint)

    def snapshot(self) -> pb.MetadataUpdate | None:
        """Return all metadata now, encoded once for all subscribers; None when closed."""
        if self._snapshot is None and self._image is not None:
            self._snapshot = snapshot_update(self._image)
        return self._snapshot

    @contextmanager
    def subscribe(
        self,
        name: str,
        broker_epoch: BrokerEpoch,
        *,
        answers_heartbeats: bool = False,
        takes_partitions: bool = False,
    ) -> Iterator[Subscription]:
        """Subscribe for as long as the block lasts. A refused subscription has ended already."""
        subscription = Subscription(name, broker_epoch, self._limits.updates_queued_max)
        subscription.answers_heartbeats = answers_heartbeats
        subscription.takes_partitions = takes_partitions
        if not self.is_open:
            subscription.end(ErrorCode.NOT_CONTROLLER)
        elif not self._entitled(broker_epoch):
            subscription.end(ErrorCode.STALE_BROKER_EPOCH)
        elif len(self._subscriptions) >= self._limits.subscribers_max:
            subscription.end(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        first = not self._is_followed(broker_epoch)
        self._subscriptions.append(subscription)
        try:
            if first and self._concerns_listener(subscription):
                self._listener_now().regained(broker_epoch)
            yield subscription
        finally:
            self._subscriptions.remove(subscription)
            is_reported = subscription.is_silent
            if (
                self._concerns_listener(subscription)
                and not is_reported
                and not self._is_followed(broker_epoch)
            ):
                log.info("feed lost", extra=fields(subscriber=name, broker_epoch=broker_epoch))
                self._listener_now().lost(broker_epoch)

    def beat(self, now: InstantMs, silent_ms: int) -> None:
        """Send every subscriber a heartbeat. A stream without an answer for ``silent_ms`` counts as
        lost. A network partition breaks no connection, so streams are marked as silent all at once:
        if this controller is cut off, that must not look like the end of one broker after another.
        """
        silent = [
            one
            for one in self._subscriptions
            if one.beat(now) >= silent_ms and not one.is_silent and self._concerns_listener(one)
        ]
        for one in silent:
            one.is_silent = True
        for one in silent:
            if not self._is_followed(one.broker_epoch):
                log.warning("subscriber stopped acknowledging", extra=fields(subscriber=one.name))
                self._listener_now().lost(one.broker_epoch)

    def restart_heartbeats(self) -> None:
        """Forget unanswered heartbeats: answers may have come while this process stood still."""
        for one in self._subscriptions:
            one.answered()

    def _note_answer(self, subscription: Subscription) -> None:
        subscription.answered()
        if not subscription.is_silent:
            return
        first = not self._is_followed(subscription.broker_epoch)
        subscription.is_silent = False
        if first and self._concerns_listener(subscription):
            log.info("subscriber acknowledges again", extra=fields(subscriber=subscription.name))
            self._listener_now().regained(subscription.broker_epoch)

    def acknowledge(self, subscription: Subscription, position: FeedPosition) -> None:
        """Note that a subscriber has applied the feed up to ``position``."""
        self._note_answer(subscription)
        if position <= subscription.acknowledged:
            return
        first = position.controller_epoch > subscription.acknowledged.controller_epoch
        subscription.acknowledged = position
        if first:
            words = fields(subscriber=subscription.name, version=position.version)
            log.info("snapshot acknowledged", extra=words)
        if self._concerns_listener(subscription):
            self._listener_now().acknowledged(subscription.broker_epoch, position)

    def _is_followed(self, broker_epoch: BrokerEpoch) -> bool:
        return any(
            one.broker_epoch == broker_epoch and not one.over and not one.is_silent
            for one in self._subscriptions
        )

    def _concerns_listener(self, subscription: Subscription) -> bool:
        """True if the listener is called for this stream, which is of a registered process and was
        not ended from here (by the end of the term, or by a newer registration).
        """
        is_broker = subscription.broker_epoch != NOT_A_BROKER
        return self._listener is not None and self.is_open and is_broker and not subscription.over

    def _listener_now(self) -> FeedListener:
        assert self._listener is not None, "nobody listens"
        return self._listener

    def _entitled(self, broker_epoch: BrokerEpoch) -> bool:
        assert self._image is not None, "the feed is closed"
        if broker_epoch == NOT_A_BROKER:
            return True
        brokers, coordinators = self._image.brokers.values(), self._image.coordinators.values()
        return any(one.broker_epoch == broker_epoch for one in brokers) or any(
            one.coordinator_epoch == broker_epoch for one in coordinators
        )
