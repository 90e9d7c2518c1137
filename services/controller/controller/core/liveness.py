"""Liveness: a broker, or a coordinator, is alive while the live znode of its registered process
exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, CoordinatorImage


class Incarnation(NamedTuple):
    """One process of a broker."""

    broker_id: BrokerId
    incarnation_id: bytes


@dataclass(frozen=True, slots=True)
class LiveListing:
    """Broker processes with a session, as of ZooKeeper transaction ``zxid`` (higher is newer)."""

    zxid: int
    live: frozenset[Incarnation] = field(default_factory=frozenset)
    ended: frozenset[Incarnation] = field(default_factory=frozenset)
    """Processes that have ended: their supervisors waited for it. At least as new as ``live``."""


NOBODY: Final = LiveListing(-1)


@dataclass(frozen=True, slots=True)
class CoordinatorListing:
    """All coordinator processes of one kind with a session, by id and incarnation id, as of
    ZooKeeper transaction ``zxid``.
    """

    kind: str
    zxid: int
    live: frozenset[tuple[int, bytes]] = field(default_factory=frozenset)

    def has(self, coordinator: CoordinatorImage) -> bool:
        """True if this process has a session."""
        return (coordinator.coordinator_id, coordinator.incarnation_id) in self.live


def incarnation_of(broker: BrokerImage) -> Incarnation:
    """Return the process whose session keeps this registration alive."""
    return Incarnation(broker.broker_id, broker.incarnation_id)


def newer(one: LiveListing, other: LiveListing) -> LiveListing:
    """Return the newer listing. Several tasks read listings, in any order."""
    return one if one.zxid >= other.zxid else other


def vanished(
    brokers: Mapping[BrokerId, BrokerImage], listing: LiveListing
) -> tuple[BrokerImage, ...]:
    """Return the brokers that count as alive and have no session."""
    return tuple(
        broker
        for broker in brokers.values()
        if not broker.fenced and incarnation_of(broker) not in listing.live
    )


def is_active(broker: BrokerImage) -> bool:
    """True if the broker is neither fenced nor shutting down: it may lead, and be in sync."""
    return not broker.fenced and not broker.shutting_down


def active(brokers: Mapping[BrokerId, BrokerImage]) -> frozenset[BrokerId]:
    """Return the active brokers."""
    return frozenset(broker.broker_id for broker in brokers.values() if is_active(broker))
