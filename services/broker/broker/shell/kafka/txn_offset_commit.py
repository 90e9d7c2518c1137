"""TxnOffsetCommit (28): offsets that a producer's transaction has consumed, effective when it
commits.
"""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.requests import TopicOffsets, TxnOffsetCommit
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, refuse_error, refuse_unless
from broker.shell.kafka.offset_commit import by_name, choose_topics, committed, topic_rows
from broker.shell.request_context import RequestContext

LOADING_KNOWN_FROM: Final = 2
"""Older clients treat COORDINATOR_LOAD_IN_PROGRESS as fatal."""
_KNOWN_WITHOUT_LOADING: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE
}
TRANSACTIONS_V2_FROM: Final = 5
"""From this version on the request itself adds the partition of the offsets to the transaction
(KIP-890).
"""
ABORTABLE_KNOWN_FROM: Final = 4
"""From this version on clients support TRANSACTION_ABORTABLE (KIP-890)."""


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Commit offsets; topics that are refused here do not hold up the others."""
    transaction = transactional_id_resource(request.transactional_id)
    if not facts.authorizer.authorize(context.requester, Operation.WRITE, transaction):
        refuse_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refuse_unless(facts, context, Operation.READ, request.group_id)
    if not request.group_id:
        refuse_error(ErrorCode.INVALID_GROUP_ID)
    chosen = choose_topics(facts, metadata, request.topics, context, by_id=False)
    asked = TxnOffsetCommit(
        group_id=request.group_id,
        topics=tuple(one for one in chosen if isinstance(one, TopicOffsets)),
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
        transactions_v2=context.api_version >= TRANSACTIONS_V2_FROM,
        abortable_known=context.api_version >= ABORTABLE_KNOWN_FROM,
    )
    loading_known = context.api_version >= LOADING_KNOWN_FROM
    known_as = {} if loading_known else _KNOWN_WITHOUT_LOADING
    answers = await committed(groups, asked, known_as) if asked.topics else ()
    return {"topics": topic_rows(request.topics, chosen, map(by_name, answers))}
