"""AddOffsetsToTxn (25): a group's offsets become part of a transaction (KIP-98)."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.topics import CONSUMER_OFFSETS

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import refuse_unless
from broker.shell.kafka.txn_calls import error_for_version, producer_of, refuse_unless_writer
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import TxnRelay

FENCED_KNOWN_FROM: Final = 2


async def handle(
    facts: BrokerFacts,
    internal_topics: InternalTopics,
    txn: TxnRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Add the partition of the group's offsets, which is created first if it does not exist."""
    refuse_unless_writer(facts, context, request.transactional_id)
    refuse_unless(facts, context, Operation.READ, request.group_id)
    missing = await internal_topics.ensure(context, CONSUMER_OFFSETS)
    if missing is not None:
        code = missing.code
    else:
        code = await txn.add_offsets(caller_of(context), producer_of(request), request.group_id)
    return {"error_code": int(error_for_version(context.api_version, code, FENCED_KNOWN_FROM))}
