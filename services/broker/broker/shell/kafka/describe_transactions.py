"""DescribeTransactions (65, KIP-664): state of transactional ids, from their coordinators."""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.txn_calls import may
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import Described, TxnRelay


async def handle(
    facts: BrokerFacts, txn: TxnRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each id, in the order of the request. Topics that the caller may not
    see are left out.
    """
    ids = list(dict.fromkeys(request.transactional_ids))
    permitted = [one for one in ids if may(facts, context, Operation.DESCRIBE, one)]
    described = await txn.describe(caller_of(context), permitted) if permitted else []
    found = {one.transactional_id: one for one in described}
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return {
        "transaction_states": [
            _row(facts, context, found.get(one, Described(one, denied))) for one in ids
        ]
    }


def _row(facts: BrokerFacts, context: RequestContext, described: Described) -> dict[str, object]:
    topics: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        topics.setdefault(topic, []).append(partition)
    sees = facts.authorizer.sees
    return {
        "error_code": int(described.error_code),
        "transactional_id": described.transactional_id,
        "transaction_state": described.state,
        "transaction_timeout": described.timeout_ms,
        "transaction_start_time": described.started_ms,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": partitions}
            for topic, partitions in topics.items()
            if sees(context.requester, Operation.DESCRIBE, topic_resource(topic))
        ],
    }
