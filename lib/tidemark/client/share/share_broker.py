"""ShareBroker: what one share consumer has with one broker."""

import asyncio
from collections.abc import Mapping

from tidemark.client.share.ack_batches import AcknowledgeType, Decision, Decisions
from tidemark.client.share.deliveries import PartitionDeliveries
from tidemark.client.share.share_session import SharePartition, ShareSession
from tidemark.client.wire.connection import BrokerConnection
from tidemark.model.topics import TopicPartition

Taken = dict[TopicPartition, tuple[PartitionDeliveries, dict[int, Decision]]]
"""Acknowledgements of one request."""


class ShareBroker:
    """Session with one broker, its requests, and the acknowledgements that wait for one."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.session = ShareSession()
        self.turn = asyncio.Lock()
        self.acquired: dict[TopicPartition, PartitionDeliveries] = {}
        """Partitions with deliveries in the present session."""
        self.outbox: Taken = {}
        """Acknowledgements that a poll has released, for the next request to take along."""
        self.connection: BrokerConnection | None = None
        """Connection of the present session."""
        self.lost_count = 0
        """Number of sessions that were lost."""
        self.fetching = False
        self.acknowledging = False
        """True while a task sends the outbox."""
        self.failures = 0
        self.resume_at = 0.0

    @property
    def fetch_takes_outbox(self) -> bool:
        """True if a fetch is about to be sent, with all acknowledgements."""
        return self.fetching and not self.turn.locked()

    def gather(self) -> None:
        """Move what is decided to the outbox."""
        for at, one in self.acquired.items():
            if one.has_decided:
                self.outbox.setdefault(at, (one, {}))[1].update(one.take())

    def take_outbox(self) -> Taken:
        """Return the acknowledgements that polls have released."""
        taken, self.outbox = self.outbox, {}
        return taken

    def take(self) -> Taken:
        """Return all acknowledgements that are decided."""
        self.gather()
        return self.take_outbox()

    def drop(self, at: TopicPartition) -> tuple[PartitionDeliveries | None, bool]:
        """Forget the deliveries of a partition, and return them. True if some were decided."""
        dropped = self.acquired.pop(at, None)
        was_decided = self.outbox.pop(at, None) is not None
        return dropped, was_decided or (dropped is not None and dropped.has_decided)

    def affected(self) -> list[TopicPartition]:
        """Return the partitions whose acknowledgements fail with the session."""
        held = [at for at, one in self.acquired.items() if one.has_decided or one.held]
        return [*held, *self.outbox]

    def lose(self) -> None:
        """Forget the session, and all that was acquired in it."""
        self.session.on_lost()
        self.lost_count += 1
        self.connection = None
        for one in self.acquired.values():
            one.lose()
        self.acquired.clear()
        self.outbox.clear()


def decisions_of(taken: Taken) -> dict[SharePartition, Decisions]:
    """Return acknowledgements by the partitions of the session."""
    return {
        (deliveries.topic_id, at.partition): decisions
        for at, (deliveries, decisions) in taken.items()
    }


def has_renewals(taken: Mapping[TopicPartition, tuple[PartitionDeliveries, Decisions]]) -> bool:
    """True if renewals are among them, for which a request must not fetch."""
    return any(
        one.kind == AcknowledgeType.RENEW
        for _, decisions in taken.values()
        for one in decisions.values()
    )
