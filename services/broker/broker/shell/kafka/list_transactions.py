"""ListTransactions (66, KIP-664): the transactional ids whose FindCoordinator names this broker.

Tools ask every broker and merge the answers, so that each id must be in one of them only.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.cluster.live_brokers import LiveBrokers
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.find_coordinator import broker_of_transactional_id
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import ListingFilter, TxnRelay


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    txn: TxnRelay,
    live: LiveBrokers,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """List transactions; those that the caller may not see are left out."""
    wanted = ListingFilter(
        tuple(request.state_filters),
        tuple(request.producer_id_filters),
        request.duration_filter,
        request.transactional_id_pattern or "",
    )
    listed = await txn.list_all(caller_of(context), wanted)
    return {
        "error_code": int(listed.error_code),
        "unknown_state_filters": list(listed.unknown_states),
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state,
            }
            for one in listed.transactions
            if _is_ours(facts, metadata, live, one.transactional_id)
            and facts.authorizer.sees(
                context.requester,
                Operation.DESCRIBE,
                transactional_id_resource(one.transactional_id),
            )
        ],
    }


def _is_ours(
    facts: BrokerFacts, metadata: MetadataCache, live: LiveBrokers, transactional_id: str
) -> bool:
    broker = broker_of_transactional_id(metadata, live, transactional_id)
    return broker is not None and broker.broker_id == facts.broker_id
