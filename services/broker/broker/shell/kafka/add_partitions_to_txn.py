"""AddPartitionsToTxn (24): partitions become part of a transaction before they are written.

Versions 0 to 3 are sent by clients, about one transactional id. From version 4 on brokers send the
request, about several (KIP-890): to verify that partitions are part of a transaction or, for
transactions v2, to add them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import INTERNAL_TOPICS, TopicPartition

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.txn_calls import error_for_version, may
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import Producer, TxnRelay

BETWEEN_BROKERS_FROM: Final = 4
ABORTABLE_KNOWN_FROM: Final = 5
FENCED_KNOWN_FROM: Final = 2

Outcomes = Mapping[TopicPartition, ErrorCode]


async def handle(
    facts: BrokerFacts, txn: TxnRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Add all partitions to a transaction, or none of them."""
    if context.api_version >= BETWEEN_BROKERS_FROM:
        return await _handle_batched(facts, txn, request, context)
    producer = Producer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    topics = request.v3_and_below_topics
    partitions = _partitions(topics)
    outcomes = _refusals(facts, context, producer.transactional_id, partitions)
    if not outcomes:
        outcomes = await txn.add_partitions(caller_of(context), producer, partitions)
    return {"results_by_topic_v3_and_below": _rows(topics, outcomes, context.api_version)}


def _partitions(topics: Iterable[Struct]) -> list[TopicPartition]:
    """Return each named partition once."""
    named = (TopicPartition(topic.name, one) for topic in topics for one in topic.partitions)
    return list(dict.fromkeys(named))


def _refusals(
    facts: BrokerFacts,
    context: RequestContext,
    transactional_id: str,
    partitions: list[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition if one of them may not be written; {} if all may."""
    if not may(facts, context, Operation.WRITE, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {
        topic
        for topic in {one.topic for one in partitions}
        if topic in INTERNAL_TOPICS
        or not facts.authorizer.authorize(context.requester, Operation.WRITE, topic_resource(topic))
    }
    if not refused:
        return {}
    return {
        one: (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if one.topic in refused
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
        for one in partitions
    }


def _rows(topics: Iterable[Struct], outcomes: Outcomes, version: int) -> list[dict[str, object]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": one,
                    "partition_error_code": int(
                        error_for_version(
                            version, outcomes[TopicPartition(topic.name, one)], FENCED_KNOWN_FROM
                        )
                    ),
                }
                for one in topic.partitions
            ],
        }
        for topic in topics
    ]


async def _handle_batched(
    facts: BrokerFacts, txn: TxnRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    if not facts.authorizer.authorize(context.requester, Operation.CLUSTER_ACTION, CLUSTER):
        return {"error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
    transactions = request.transactions
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_add(txn, context, one)) for one in transactions]
    return {
        "error_code": int(ErrorCode.NONE),
        "results_by_transaction": [
            {
                "transactional_id": one.transactional_id,
                "topic_results": _rows(one.topics, task.result(), context.api_version),
            }
            for one, task in zip(transactions, asked, strict=True)
        ],
    }


async def _add(txn: TxnRelay, context: RequestContext, transaction: Struct) -> Outcomes:
    """Add or verify the partitions of one transaction. From version 4 on additions are for
    producers of transactions v2; for verifications the version shows whether the producer supports
    TRANSACTION_ABORTABLE.
    """
    verify_only = transaction.verify_only
    return await txn.add_partitions(
        caller_of(context),
        Producer(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch),
        _partitions(transaction.topics),
        verify_only=verify_only,
        transactions_v2=not verify_only or context.api_version >= ABORTABLE_KNOWN_FROM,
    )
