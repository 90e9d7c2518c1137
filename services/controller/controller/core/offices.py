"""Offices: which leaders may be replaced by now.

A leader that lives is demoted first, and replaced once its broker has acknowledged the feed that
says so; one whose znode is gone is replaced a whole lease after that was seen, on this controller's
clock (ADR 0010, 0011). A new controller has seen nothing: it counts from its first read. What is
waited for is a process, not a broker id: another process of the id is registered once the wait is
over, or once it shows that the first one has ended.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId, InstantMs, TopicId
from tidemark.model.metadata import START_OF_FEED, BrokerImage, FeedPosition, PartitionImage

from controller.core.liveness import Incarnation, LiveListing, incarnation_of

Key = tuple[TopicId, int]
_BEGINNING = InstantMs(0)


class _Demotion(NamedTuple):
    """Since when nobody leads a partition, and which process led it before."""

    leader_epoch: int
    position: FeedPosition
    incarnation_id: bytes


class _Gone(NamedTuple):
    """Since when a process has had no znode, and for how long it may lead all the same."""

    since: InstantMs
    lease_ms: int

    def left_ms(self, now: InstantMs) -> int:
        """How long it still may."""
        return max(0, self.since + self.lease_ms - now)


class Offices:
    """What one term knows of brokers that are gone, streams that broke, and demotions under way."""

    def __init__(
        self,
        term_start: FeedPosition,
        lease_ms: int,
        fence_ms: int,
        *,
        begun_at: InstantMs = _BEGINNING,
        deserted_ms: int = 0,
    ) -> None:
        """``lease_ms`` is the longest of any broker that does not say what it has; ``deserted_ms``
        0: a controller without subscribers stays.
        """
        self._term_start = term_start
        self._lease_ms = lease_ms
        self._fence_ms = fence_ms
        self._deserted_ms = deserted_ms
        self._begun_at = begun_at
        self._deserted_at: InstantMs | None = None
        self._streams: set[BrokerEpoch] = set()
        self._gone: dict[Incarnation, _Gone] = {}
        self._told: set[Incarnation] = set()
        self._acknowledged: dict[BrokerEpoch, FeedPosition] = {}
        self._demoted: dict[Key, _Demotion] = {}
        self._streams_lost: dict[BrokerEpoch, InstantMs] = {}

    def see(
        self, brokers: Mapping[BrokerId, BrokerImage], listing: LiveListing, now: InstantMs
    ) -> None:
        """Who has a session now."""
        gone = {}
        for broker in brokers.values():
            process = incarnation_of(broker)
            if process not in listing.live:
                lease_ms = max(self._lease_ms, broker.lease_ms)
                gone[process] = self._gone.get(process, _Gone(now, lease_ms))
        self._gone = gone
        self._told &= gone.keys()
        known = {broker.broker_epoch for broker in brokers.values()}
        for epoch in self._acknowledged.keys() - known:
            del self._acknowledged[epoch]
        if self._streams and not self._streams & known:
            self._deserted_at = now  # all of them registered anew, and have yet to listen
        self._streams &= known

    def released(self, now: InstantMs) -> frozenset[BrokerId]:
        """Brokers whose registered process has been gone for a whole lease."""
        return frozenset(one.broker_id for one in self._released(now))

    def newly_released(self, now: InstantMs) -> frozenset[BrokerId]:
        """Those of them that were not told of before."""
        fresh = self._released(now) - self._told
        self._told |= fresh
        return frozenset(one.broker_id for one in fresh)

    def _released(self, now: InstantMs) -> frozenset[Incarnation]:
        return frozenset(one for one, gone in self._gone.items() if not gone.left_ms(now))

    def held_for_ms(self, broker: BrokerImage, now: InstantMs) -> int:
        """How long a registered process may yet acknowledge what it leads; 0: no longer. One that
        was not seen gone may do so for a lease from now on.
        """
        gone = self._gone.get(incarnation_of(broker))
        return self._lease_ms if gone is None else gone.left_ms(now)

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> bool:
        """A broker has applied the feed up to there; whether a demotion waits for such news."""
        known = self._acknowledged.get(broker_epoch, START_OF_FEED)
        self._acknowledged[broker_epoch] = max(known, position)
        return bool(self._demoted) or known == START_OF_FEED

    def demoted(
        self,
        key: Key,
        partition: PartitionImage,
        position: FeedPosition,
        brokers: Mapping[BrokerId, BrokerImage],
    ) -> None:
        """Nobody leads this one; the feed says so from ``position`` on, if it did not before."""
        known = self._demoted.get(key)
        if known is None or known.leader_epoch != partition.leader_epoch:
            last = brokers.get(partition.last_known_leader)
            incarnation = b"" if last is None else last.incarnation_id
            self._demoted[key] = _Demotion(partition.leader_epoch, position, incarnation)

    def elected(self, key: Key) -> None:
        """It has a leader again."""
        self._demoted.pop(key, None)

    def is_released(
        self,
        key: Key,
        partition: PartitionImage,
        brokers: Mapping[BrokerId, BrokerImage],
        gone: frozenset[BrokerId],
    ) -> bool:
        """Whether the last leader of a partition without one acknowledges nothing any more."""
        last = partition.last_known_leader
        broker = brokers.get(last)
        if last == NO_BROKER or last in gone or broker is None:
            return True
        demotion = self._demoted.get(key)
        needed = self._term_start if demotion is None else demotion.position
        if demotion is not None and demotion.incarnation_id != broker.incarnation_id:
            return True  # another process is registered: the one that led no longer holds a lease
        return self._acknowledged.get(broker.broker_epoch, START_OF_FEED) >= needed

    # Streams.

    def stream_lost(self, broker_epoch: BrokerEpoch, now: InstantMs) -> None:
        """A broker's feed connection broke."""
        self._streams.discard(broker_epoch)
        self._streams_lost.setdefault(broker_epoch, now)
        if not self._streams:
            self._deserted_at = now

    def stream_regained(self, broker_epoch: BrokerEpoch) -> None:
        """It is back, or there for the first time."""
        self._streams_lost.pop(broker_epoch, None)
        self._streams.add(broker_epoch)
        self._deserted_at = None

    @property
    def is_heard(self) -> bool:
        """Whether any broker listens to us: where none does it is we who may be cut off."""
        return bool(self._streams)

    def hears(self, brokers: Iterable[BrokerImage]) -> bool:
        """Whether one of them listens to us."""
        return any(broker.broker_epoch in self._streams for broker in brokers)

    def to_fence(
        self, brokers: Mapping[BrokerId, BrokerImage], now: InstantMs
    ) -> list[BrokerImage]:
        """Brokers whose stream has been lost for so long that they are as good as dead; once. Where
        nobody listens it is we who are cut off: nobody is fenced then.
        """
        if not self._streams:
            return []
        due = {one for one, since in self._streams_lost.items() if now - since >= self._fence_ms}
        for one in due:
            del self._streams_lost[one]
        return [
            broker
            for broker in brokers.values()
            if broker.broker_epoch in due and incarnation_of(broker) not in self._gone
        ]

    def is_deserted(self, brokers: Mapping[BrokerId, BrokerImage], now: InstantMs) -> bool:
        """Whether brokers live, and none has listened for so long that another controller should
        try: for a lease since the last stream broke, or since the term began for ``deserted_ms``.
        """
        lives = any(incarnation_of(one) not in self._gone for one in brokers.values())
        due = self._deserted_due()
        return lives and due is not None and now >= due

    def _deserted_due(self) -> int | None:
        if not self._deserted_ms or self._streams:
            return None
        if self._deserted_at is None:
            return self._begun_at + self._deserted_ms
        return self._deserted_at + self._lease_ms

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """When somebody is released or to be fenced next, or we have been alone for too long; never
        what is past already and waits for something else.
        """
        dues = [
            gone.since + gone.lease_ms for one, gone in self._gone.items() if one not in self._told
        ]
        if self._streams:
            dues += [since + self._fence_ms for since in self._streams_lost.values()]
        deserted = self._deserted_due()
        if deserted is not None and deserted > now:
            dues.append(deserted)
        return InstantMs(min(dues)) if dues else None
