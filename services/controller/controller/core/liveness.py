"""Who is there: a broker lives while the live znode of its registered incarnation does; so does a
coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, CoordinatorImage


class Incarnation(NamedTuple):
    """One start of one broker."""

    broker_id: BrokerId
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class LiveListing:
    """Every incarnation with a session, as of ZooKeeper transaction ``zxid``: higher is newer."""

    zxid: int
    live: frozenset[Incarnation] = field(default_factory=frozenset)


NOBODY: Final = LiveListing(-1)


@dataclass(frozen=True, slots=True)
class CoordinatorListing:
    """Every incarnation of one kind with a session, as of a ZooKeeper transaction: id and
    incarnation id.
    """

    kind: str
    zxid: int
    live: frozenset[tuple[int, bytes]] = field(default_factory=frozenset)

    def has(self, coordinator: CoordinatorImage) -> bool:
        """Whether this very incarnation has one."""
        return (coordinator.coordinator_id, coordinator.incarnation_id) in self.live


def incarnation_of(broker: BrokerImage) -> Incarnation:
    """Whose session keeps this registration alive."""
    return Incarnation(broker.broker_id, broker.incarnation_id)


def newer(one: LiveListing, other: LiveListing) -> LiveListing:
    """Listings are read by different tasks: one that was read earlier must not undo a later one."""
    return one if one.zxid >= other.zxid else other


def vanished(
    brokers: Mapping[BrokerId, BrokerImage], listing: LiveListing
) -> tuple[BrokerImage, ...]:
    """Brokers that count as alive and no longer are."""
    return tuple(
        broker
        for broker in brokers.values()
        if not broker.fenced and incarnation_of(broker) not in listing.live
    )


def alive(brokers: Mapping[BrokerId, BrokerImage]) -> frozenset[BrokerId]:
    """Who may lead."""
    return frozenset(broker.broker_id for broker in brokers.values() if not broker.fenced)
