"""OffsetForLeaderEpoch (23), versions 2 to 4: the end of an epoch, for clients that detect
truncation (KIP-320), and for Kafka's followers (KIP-101).
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID

from broker.core.epoch_end import EpochEnd, epoch_end
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, table: PartitionTable, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one answer for each partition."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _answer(facts, table, topic.topic, asked, context) for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _answer(
    facts: BrokerFacts, table: PartitionTable, topic: str, asked: Struct, context: RequestContext
) -> dict[str, object]:
    if not _allowed(facts, topic, context):
        return _refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    hosted = table.find(topic, NO_TOPIC_ID, asked.partition)
    if isinstance(hosted, ErrorCode):
        return _refused(asked, hosted)
    found = epoch_end(hosted.partition, asked.current_leader_epoch, asked.leader_epoch)
    return _answered(asked, found)


def _allowed(facts: BrokerFacts, topic: str, context: RequestContext) -> bool:
    """True if the caller may describe the topic, or act on the cluster as replicas do."""
    requester, authorize = context.requester, facts.authorizer.authorize
    return authorize(requester, Operation.DESCRIBE, topic_resource(topic)) or authorize(
        requester, Operation.CLUSTER_ACTION, CLUSTER
    )


def _refused(asked: Struct, code: ErrorCode) -> dict[str, object]:
    return _answered(asked, EpochEnd(code))


def _answered(asked: Struct, found: EpochEnd) -> dict[str, object]:
    return {
        "error_code": int(found.error_code),
        "partition": asked.partition,
        "leader_epoch": found.leader_epoch,
        "end_offset": found.end_offset,
    }
