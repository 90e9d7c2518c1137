"""InitProducerId (22): a producer id for an idempotent producer (KIP-98), or a session of a
transactional id, which fences all sessions before it and ends what they left open (KIP-360).
"""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, ResourceType
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_PRODUCER
from tidemark.model.topics import TRANSACTION_STATE
from tidemark.runtime.producer_ids import ProducerIds

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.txn_calls import error_for_version, may, producer_of
from broker.shell.request_context import RequestContext
from broker.shell.transactions.txn_relay import Granted, TxnRelay

NO_PRODUCER_EPOCH: Final = -1
FIRST_PRODUCER_EPOCH: Final = 0
FENCED_KNOWN_FROM: Final = 4


async def handle(
    facts: BrokerFacts,
    internal_topics: InternalTopics,
    txn: TxnRelay,
    producer_ids: ProducerIds,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return a producer id. Without a transactional id the producer's previous id does not
    matter.
    """
    refused = _refusal(facts, request, context)
    if refused is not None:
        granted = Granted(refused)
    elif request.transactional_id is None:
        granted = await _next_producer(producer_ids)
    else:
        granted = await _next_session(internal_topics, txn, request, context)
    return {
        "error_code": int(
            error_for_version(context.api_version, granted.error_code, FENCED_KNOWN_FROM)
        ),
        "producer_id": granted.producer_id,
        "producer_epoch": granted.producer_epoch,
    }


def _refusal(facts: BrokerFacts, request: Struct, context: RequestContext) -> ErrorCode | None:
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST  # both or neither (KIP-360)
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        if not may(facts, context, Operation.WRITE, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not facts.authorizer.authorize(
        context.requester, Operation.IDEMPOTENT_WRITE, CLUSTER
    ) and not facts.authorizer.authorize_any(
        context.requester, Operation.WRITE, ResourceType.TOPIC
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


async def _next_producer(producer_ids: ProducerIds) -> Granted:
    try:
        producer_id = await producer_ids.next()
    except TidemarkError as failure:
        return Granted(failure.code)
    return Granted(ErrorCode.NONE, producer_id, FIRST_PRODUCER_EPOCH)


async def _next_session(
    internal_topics: InternalTopics, txn: TxnRelay, request: Struct, context: RequestContext
) -> Granted:
    missing = await internal_topics.ensure(context, TRANSACTION_STATE)
    if missing is not None:
        return Granted(missing.code)
    return await txn.init(caller_of(context), producer_of(request), request.transaction_timeout)
