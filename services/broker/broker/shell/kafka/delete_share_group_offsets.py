"""DeleteShareGroupOffsets (92, KIP-932): delete the state of whole topics from a share group that
has no members.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_groups import DeletedOffsets, Outcome, ShareTopic
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import NamedTopic
from broker.shell.kafka.share_calls import (
    MISSING,
    group_refusal,
    response,
    topic_id_of,
    topics_by_name,
)
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ShareRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return an outcome for each topic, in the order of the request."""
    refused = group_refusal(facts, context, Operation.DELETE, request.group_id)
    if refused is not None:
        return response(refused)
    chosen = topics_by_name(facts, metadata, context, request.topics)
    wanted = [
        ShareTopic(found.topic_id, found.topic)
        for found in chosen.values()
        if isinstance(found, NamedTopic)
    ]
    deleted = DeletedOffsets(Outcome(ErrorCode.NONE), {})
    if wanted:
        deleted = await relay.delete_offsets(caller_of(context), request.group_id, wanted)
    if deleted.outcome.error_code is not ErrorCode.NONE:
        return response(deleted.outcome)
    return response(deleted.outcome, [_row(name, found, deleted) for name, found in chosen.items()])


def _row(name: str, found: NamedTopic | Outcome, deleted: DeletedOffsets) -> dict[str, object]:
    outcome = found if isinstance(found, Outcome) else deleted.topics.get(name, MISSING)
    return {
        "topic_name": name,
        "topic_id": topic_id_of(found),
        "error_code": int(outcome.error_code),
        "error_message": outcome.error_message,
    }
