"""Replacement of leaders: when the leader of a partition may be replaced by another.

A leader that is alive is demoted first, and replaced once its broker has acknowledged the feed
update of the demotion. A leader whose live znode is gone is replaced a whole lease after the znode
was seen gone, by this controller's clock (ADR 0010, 0011). A process that made its znode again has
another lease's time to register, and renews its lease only after that. A new controller has seen
nothing, and counts from its first read. The wait is for a process, not for a broker id: another
process of the id is registered once the wait is over, or once it shows that the first one has
ended. A process whose end its supervisor has recorded holds no lease: there is no wait.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId, InstantMs, TopicId
from tidemark.model.metadata import START_OF_FEED, BrokerImage, FeedPosition, PartitionImage

from controller.core.deaf import Deaf
from controller.core.liveness import Incarnation, LiveListing, incarnation_of

Key = tuple[TopicId, int]
_BEGINNING = InstantMs(0)


class _Demotion(NamedTuple):
    """Demotion of a partition's leader: its epoch, its feed position, and the process that led."""

    leader_epoch: int
    position: FeedPosition
    incarnation_id: bytes


class _Gone(NamedTuple):
    """A process that is fenced or has no live znode, since when, and the lease that it may still
    hold.
    """

    since: InstantMs
    lease_ms: int
    is_back: bool = False
    """True if it has made its live znode again since then, and is not registered yet."""

    def left_ms(self, now: InstantMs) -> int:
        """Return how long the process may still lead."""
        return max(0, self.since + self.lease_ms - now)


class LeaderReplacement:
    """State of one term: brokers that are gone, feed streams that broke, demotions under way."""

    def __init__(
        self,
        term_start: FeedPosition,
        lease_ms: int,
        fence_ms: int,
        *,
        begun_at: InstantMs = _BEGINNING,
        no_subscriber_ms: int = 0,
    ) -> None:
        """``lease_ms`` is the longest lease of any broker that does not report its own. With
        ``no_subscriber_ms`` 0 a controller without subscribers never resigns, and a broker that
        never subscribes is never fenced.
        """
        self._term_start = term_start
        self._lease_ms = lease_ms
        self._fence_ms = fence_ms
        self._no_subscriber_ms = no_subscriber_ms
        self._begun_at = begun_at
        self._unsubscribed_at: InstantMs | None = None
        self._streams: set[BrokerEpoch] = set()
        self._gone: dict[Incarnation, _Gone] = {}
        self._reported: set[Incarnation] = set()
        self._acknowledged: dict[BrokerEpoch, FeedPosition] = {}
        self._demoted: dict[Key, _Demotion] = {}
        self._streams_lost: dict[BrokerEpoch, InstantMs] = {}
        self._deaf = Deaf(no_subscriber_ms)

    def see(
        self, brokers: Mapping[BrokerId, BrokerImage], listing: LiveListing, now: InstantMs
    ) -> None:
        """Take the brokers that are registered and the processes that have a session."""
        gone = {}
        for broker in brokers.values():
            process = incarnation_of(broker)
            is_back = process in listing.live
            if broker.fenced or not is_back:
                if process in listing.ended:
                    gone[process] = _Gone(now, 0)
                    continue
                gone[process] = self._since(process, is_back=is_back) or _Gone(
                    now, max(self._lease_ms, broker.lease_ms), is_back
                )
        self._gone = gone
        self._reported &= gone.keys()
        registered = {broker.broker_epoch for broker in brokers.values()}
        for epoch in self._acknowledged.keys() - registered:
            del self._acknowledged[epoch]
        if self._streams and not self._streams & registered:
            self._unsubscribed_at = now  # all registered again, and have not subscribed yet
        self._streams &= registered
        alive = {one.broker_epoch for one in brokers.values() if incarnation_of(one) not in gone}
        # Without any stream the controller is the one that is cut off: nobody's time runs.
        heard = self._streams | self._streams_lost.keys() if self._streams else alive
        self._deaf.see(alive - heard, now)

    def _since(self, process: Incarnation, *, is_back: bool) -> _Gone | None:
        """Return what is noted of a process that is gone; None if its time begins now, which it
        does once more when it is back.
        """
        before = self._gone.get(process)
        if before is not None and is_back and not before.is_back:
            self._reported.discard(process)
            return None
        return before

    def expired(self, now: InstantMs) -> frozenset[BrokerId]:
        """Return the brokers whose registered process has been gone for a whole lease."""
        return frozenset(one.broker_id for one in self._expired(now))

    def ended(self) -> frozenset[BrokerId]:
        """Return the brokers whose registered process has ended by its supervisor's record."""
        return frozenset(one.broker_id for one, gone in self._gone.items() if not gone.lease_ms)

    def newly_expired(self, now: InstantMs) -> frozenset[BrokerId]:
        """Return the expired brokers that no earlier call has returned."""
        fresh = self._expired(now) - self._reported
        self._reported |= fresh
        return frozenset(one.broker_id for one in fresh)

    def _expired(self, now: InstantMs) -> frozenset[Incarnation]:
        return frozenset(one for one, gone in self._gone.items() if not gone.left_ms(now))

    def lease_left_ms(self, broker: BrokerImage, now: InstantMs) -> int:
        """Return how long the registered process may still acknowledge writes as a leader; 0: it
        may not. A process that was not seen gone has a whole lease left.
        """
        gone = self._gone.get(incarnation_of(broker))
        return self._lease_ms if gone is None else gone.left_ms(now)

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> bool:
        """Note that a broker has applied the feed up to ``position``. True if a demotion may have
        waited for it.
        """
        before = self._acknowledged.get(broker_epoch, START_OF_FEED)
        self._acknowledged[broker_epoch] = max(before, position)
        return bool(self._demoted) or before == START_OF_FEED

    def demoted(
        self,
        key: Key,
        partition: PartitionImage,
        position: FeedPosition,
        brokers: Mapping[BrokerId, BrokerImage],
    ) -> None:
        """Note that a partition has no leader, which the feed shows from ``position`` at the
        latest.
        """
        before = self._demoted.get(key)
        if before is None or before.leader_epoch != partition.leader_epoch:
            last = brokers.get(partition.last_known_leader)
            incarnation = b"" if last is None else last.incarnation_id
            self._demoted[key] = _Demotion(partition.leader_epoch, position, incarnation)

    def elected(self, key: Key) -> None:
        """Note that a partition has a leader again."""
        self._demoted.pop(key, None)

    def is_replaceable(
        self,
        key: Key,
        partition: PartitionImage,
        brokers: Mapping[BrokerId, BrokerImage],
        expired: frozenset[BrokerId],
    ) -> bool:
        """True if the last leader of a partition without a leader acknowledges nothing more."""
        last = partition.last_known_leader
        broker = brokers.get(last)
        if last == NO_BROKER or last in expired or broker is None:
            return True
        demotion = self._demoted.get(key)
        needed = self._term_start if demotion is None else demotion.position
        if demotion is not None and demotion.incarnation_id != broker.incarnation_id:
            return True  # another process is registered: the one that led no longer holds a lease
        return self._acknowledged.get(broker.broker_epoch, START_OF_FEED) >= needed

    # -- streams

    def stream_lost(self, broker_epoch: BrokerEpoch, now: InstantMs) -> None:
        """Note that a broker's feed stream broke."""
        self._streams.discard(broker_epoch)
        self._streams_lost.setdefault(broker_epoch, now)
        if not self._streams:
            self._unsubscribed_at = now

    def stream_regained(self, broker_epoch: BrokerEpoch) -> None:
        """Note that a broker has a feed stream, again or for the first time."""
        self._streams_lost.pop(broker_epoch, None)
        self._streams.add(broker_epoch)
        self._unsubscribed_at = None

    @property
    def has_subscribers(self) -> bool:
        """True if any broker has a feed stream. If none has, this controller may be the one that is
        cut off.
        """
        return bool(self._streams)

    def has_subscriber_among(self, brokers: Iterable[BrokerImage]) -> bool:
        """True if any of these brokers has a feed stream."""
        return any(broker.broker_epoch in self._streams for broker in brokers)

    def to_fence(
        self, brokers: Mapping[BrokerId, BrokerImage], now: InstantMs
    ) -> list[BrokerImage]:
        """Return, once, the brokers to fence because their stream has been lost for too long, and
        from time to time those that never had one. None is fenced while no broker at all has a
        stream: then this controller is cut off.
        """
        if not self._streams:
            return []
        due = {one for one, since in self._streams_lost.items() if now - since >= self._fence_ms}
        for one in due:
            del self._streams_lost[one]
        due |= self._deaf.take_due(now)
        return [
            broker
            for broker in brokers.values()
            if broker.broker_epoch in due and incarnation_of(broker) not in self._gone
        ]

    def should_resign(
        self, brokers: Mapping[BrokerId, BrokerImage], listing: LiveListing, now: InstantMs
    ) -> bool:
        """True if brokers have a session, but none has had a stream for so long that another
        controller may do better: a lease since the last stream broke, or ``no_subscriber_ms`` since
        the term began.
        """
        is_any_alive = any(incarnation_of(one) in listing.live for one in brokers.values())
        due = self._resign_due()
        return is_any_alive and due is not None and now >= due

    def _resign_due(self) -> int | None:
        if not self._no_subscriber_ms or self._streams:
            return None
        if self._unsubscribed_at is None:
            return self._begun_at + self._no_subscriber_ms
        return self._unsubscribed_at + self._lease_ms

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """Return when the next lease expires, the next broker is to be fenced, or this controller
        is to resign. A resignation that was due before ``now`` waits for something else, and is
        left out.
        """
        dues = [
            gone.since + gone.lease_ms
            for one, gone in self._gone.items()
            if one not in self._reported
        ]
        if self._streams:
            dues += [since + self._fence_ms for since in self._streams_lost.values()]
            deaf = self._deaf.next_deadline()
            dues += [] if deaf is None else [deaf]
        resign = self._resign_due()
        if resign is not None and resign > now:
            dues.append(resign)
        return InstantMs(min(dues)) if dues else None
