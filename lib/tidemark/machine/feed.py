"""The metadata feed as cores: a snapshot, then every delta, in order and without a gap.

Generic over the update: the controller sends protobuf messages, the simulator plain objects.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, TypeVar

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import START_OF_FEED, FeedPosition

U = TypeVar("U")

NOT_A_BROKER: Final = BrokerEpoch(-1)


class Verdict(Enum):
    """What a subscriber does with an update."""

    APPLY = "apply"
    KNOWN = "known"  # a snapshot of what is applied already: nothing to do, deltas may follow
    OLDER_CONTROLLER = "older controller"  # end this subscription, look for another controller
    GAP = "gap"  # end this subscription and begin another


class FeedSubscriber:
    """One follower of the feed, across subscriptions. ``position`` only ever moves forward."""

    def __init__(self) -> None:
        self.position = START_OF_FEED
        self._snapshot_seen = False

    def subscribed(self) -> None:
        """A new subscription: its first update must be a snapshot."""
        self._snapshot_seen = False

    def judge(self, position: FeedPosition, *, is_snapshot: bool) -> Verdict:
        """What to do with an update; APPLY has moved ``position`` to it."""
        if is_snapshot:
            if position < self.position:
                return Verdict.OLDER_CONTROLLER
            self._snapshot_seen = True
            if position == self.position:
                return Verdict.KNOWN
        elif not self._snapshot_seen or not self._follows(position):
            return Verdict.GAP
        self.position = position
        return Verdict.APPLY

    def _follows(self, position: FeedPosition) -> bool:
        known = self.position
        return position == FeedPosition(known.controller_epoch, known.version + 1)


class FeedSubscription(Generic[U]):
    """One subscriber as the publisher knows it."""

    def __init__(self, broker_epoch: BrokerEpoch, updates_max: int) -> None:
        self.broker_epoch = broker_epoch
        self.acknowledged = START_OF_FEED
        self.ended: ErrorCode | None = None
        self._updates_max = updates_max
        self._updates: deque[U] = deque()
        self._is_behind = True  # owes a snapshot

    def offer(self, update: U) -> bool:
        """Queue a delta; False when it was too slow and starts over with a snapshot."""
        if self._is_behind:
            return True
        if len(self._updates) >= self._updates_max:
            self._updates.clear()
            self._is_behind = True
            return False
        self._updates.append(update)
        return True

    def end(self, code: ErrorCode) -> None:
        """What is queued is not sent any more. The first reason stays."""
        self.ended = self.ended or code

    def take(self, snapshot: Callable[[], U]) -> U | None:
        """The next thing to send; None: nothing now, or ``ended``."""
        if self.ended is not None:
            return None
        if self._is_behind:
            self._is_behind = False
            return snapshot()
        return self._updates.popleft() if self._updates else None


class FeedPublisher(Generic[U]):
    """All subscriptions of one term. ``is_entitled`` says which broker epochs are registered."""

    def __init__(
        self,
        is_entitled: Callable[[BrokerEpoch], bool],
        *,
        updates_queued_max: int = 256,
        subscribers_max: int = 1_024,
    ) -> None:
        self.subscriptions: list[FeedSubscription[U]] = []
        self._is_entitled = is_entitled
        self._updates_queued_max = updates_queued_max
        self._subscribers_max = subscribers_max

    def subscribe(self, broker_epoch: BrokerEpoch) -> FeedSubscription[U]:
        """One more; already ended when it may not be."""
        subscription: FeedSubscription[U] = FeedSubscription(broker_epoch, self._updates_queued_max)
        if not self._entitled(broker_epoch):
            subscription.end(ErrorCode.STALE_BROKER_EPOCH)
        elif len(self.subscriptions) >= self._subscribers_max:
            subscription.end(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            self.subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: FeedSubscription[U]) -> None:
        """Its connection is gone."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    def publish(self, update: U) -> list[FeedSubscription[U]]:
        """Send a delta to all; answers who was too slow. A stale broker epoch loses its stream."""
        slow = [one for one in self.subscriptions if not one.offer(update)]
        for one in self.subscriptions:
            if not self._entitled(one.broker_epoch):
                one.end(ErrorCode.STALE_BROKER_EPOCH)
        return slow

    def acknowledge(self, subscription: FeedSubscription[U], position: FeedPosition) -> None:
        """It has applied everything up to there."""
        subscription.acknowledged = max(subscription.acknowledged, position)

    def close(self) -> None:
        """The term is over."""
        for one in self.subscriptions:
            one.end(ErrorCode.NOT_CONTROLLER)

    def _entitled(self, broker_epoch: BrokerEpoch) -> bool:
        return broker_epoch == NOT_A_BROKER or self._is_entitled(broker_epoch)
