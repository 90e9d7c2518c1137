"""Common parts of ShareFetch and ShareAcknowledge: acknowledgements, authorization, leaders."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.kafka.primitives import NodeEndpoint
from tidemark.kafka.share_requests import ShareTopicRequest
from tidemark.kafka.share_responses import NO_LEADER
from tidemark.model.authorization import Operation, group_resource, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.share.acknowledgement import AcknowledgementBatch, Answer
from broker.core.share.request_rules import refused_count, refused_ids, refused_types
from broker.core.share.sessions import PartitionKey, SessionRefusal, ShareSession
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.kafka import leader_hints
from broker.shell.listener.connection import Connection
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.share.answers import PendingAnswers
from broker.shell.share.reading import ShareReader
from broker.shell.share.share_partitions import SharePartitions


@dataclass(frozen=True, slots=True)
class ShareParts:
    """Parts of the broker that requests of share groups use."""

    facts: BrokerFacts
    metadata: MetadataCache
    shares: SharePartitions
    reader: ShareReader
    parked: ParkingLot
    counters: BrokerCounters


def refused_request(
    parts: ShareParts, connection: Connection, group_id: str | None, member_id: str | None
) -> SessionRefusal | None:
    """Return the error of a whole request whose ids are wrong, or whose sender may not read in the
    group, else None.
    """
    refused = refused_ids(group_id, member_id)
    if refused is not None:
        return refused
    assert group_id is not None, "it was checked"
    if not parts.facts.authorizer.authorize(
        connection.requester, Operation.READ, group_resource(group_id)
    ):
        return SessionRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no READ on the group")
    return None


def topic_refused(parts: ShareParts, connection: Connection, topic_id: bytes) -> ErrorCode | None:
    """Return TOPIC_AUTHORIZATION_FAILED for a topic that the sender may not read, else None."""
    topic = parts.metadata.image.topics_by_id.get(TopicId(topic_id))
    if topic is None or parts.facts.authorizer.authorize(
        connection.requester, Operation.READ, topic_resource(topic.name)
    ):
        return None
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def acknowledge(
    parts: ShareParts,
    connection: Connection,
    version: int,
    session: ShareSession,
    topics: Sequence[ShareTopicRequest],
    *,
    renews: bool,
) -> PendingAnswers:
    """Apply the acknowledgements of a request: those of one partition as a whole. ``renews``: its
    ``IsRenewAck``.
    """
    answers = PendingAnswers()
    applied = 0
    for key, batches in _by_partition(topics).items():
        refused = topic_refused(parts, connection, key[0])
        count = sum([max(1, len(one.types)) for one in batches])
        wrong = Answer(refused) if refused is not None else refused_count(count, applied)
        wrong = wrong or refused_types(batches, version, renews=renews)
        if wrong is not None:
            answers.answers[key] = wrong
        else:
            applied += count
            parts.shares.acknowledge(session.key, key, batches, answers)
    return answers


def _by_partition(
    topics: Sequence[ShareTopicRequest],
) -> dict[PartitionKey, list[AcknowledgementBatch]]:
    found: dict[PartitionKey, list[AcknowledgementBatch]] = {}
    for topic_id, partitions in topics:
        for partition, batches in partitions:
            if batches:
                same = found.setdefault((TopicId(topic_id), partition), [])
                for first, last, types, delay_ms, is_unseen in batches:
                    span = Offset(first), Offset(last)
                    same.append(AcknowledgementBatch(*span, types, delay_ms, is_unseen))
    return found


def leader_of(parts: ShareParts, key: PartitionKey, *codes: ErrorCode) -> tuple[int, int]:
    """Return leader and epoch of a partition where one of these errors concerns them."""
    if not any(codes) or not leader_hints.HINTED.intersection(codes):
        return NO_LEADER
    return leader_hints.current_leader(parts.metadata, "", *key) or NO_LEADER


def endpoints_of(
    parts: ShareParts, connection: Connection, leaders: set[int]
) -> Sequence[NodeEndpoint]:
    """Return the addresses of these leaders on the client's listener."""
    if not leaders:
        return ()
    return leader_hints.endpoints(parts.metadata, connection.listener.name, leaders)
