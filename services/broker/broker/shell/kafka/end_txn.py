"""EndTxn (26): commit or abort. From version 5 on (transactions v2, KIP-890) the answer has the
producer id and epoch of the next transaction.
"""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.txn_calls import error_for_version, producer_of, refuse_unless_writer
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import TxnRelay

FENCED_KNOWN_FROM: Final = 2
TRANSACTIONS_V2_FROM: Final = 5


async def handle(
    facts: BrokerFacts, txn: TxnRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Answer once the outcome is durable; markers follow."""
    refuse_unless_writer(facts, context, request.transactional_id)
    ended = await txn.end(
        caller_of(context),
        producer_of(request),
        commit=request.committed,
        transactions_v2=context.api_version >= TRANSACTIONS_V2_FROM,
    )
    return {
        "error_code": int(
            error_for_version(context.api_version, ended.error_code, FENCED_KNOWN_FROM)
        ),
        "producer_id": ended.producer_id,
        "producer_epoch": ended.producer_epoch,
    }
