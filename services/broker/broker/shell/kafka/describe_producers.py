"""DescribeProducers (61, KIP-664): the idempotent producers that a partition remembers.

Any replica answers from its own log, as in Kafka: ``kafka-transactions.sh find-hanging
--broker-id`` sends one broker a request about every partition that it hosts.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import topic_name_problem

from broker.core.partition import Role
from broker.core.producers import ProducerEntry
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, table: PartitionTable, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return for each partition the producers of this broker's replica."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _partition(facts, table, topic.name, partition, context)
                    for partition in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _partition(
    facts: BrokerFacts, table: PartitionTable, topic: str, partition: int, context: RequestContext
) -> dict[str, object]:
    found = _producers(facts, table, topic, partition, context)
    if isinstance(found, ErrorCode):
        return {
            "partition_index": partition,
            "error_code": int(found),
            "error_message": found.name,
            "active_producers": [],
        }
    return {
        "partition_index": partition,
        "error_code": int(ErrorCode.NONE),
        "error_message": None,
        "active_producers": [
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.producer_epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.current_txn_first_offset,
            }
            for entry in found
        ],
    }


def _producers(
    facts: BrokerFacts, table: PartitionTable, topic: str, partition: int, context: RequestContext
) -> tuple[ProducerEntry, ...] | ErrorCode:
    if not facts.authorizer.authorize(context.requester, Operation.READ, topic_resource(topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic_name_problem(topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    hosted = table.find(topic, NO_TOPIC_ID, partition)
    if isinstance(hosted, ErrorCode):
        return hosted
    if hosted.partition.role is Role.FAILED:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return hosted.partition.producers.statistics()
