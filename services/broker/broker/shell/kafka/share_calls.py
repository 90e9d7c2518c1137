"""Common parts of the handlers that change the start offsets of a share group."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_groups import Outcome
from broker.shell.kafka.group_calls import NamedTopic, TopicChoice, may
from broker.shell.request_context import RequestContext

MISSING = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the share-coordinator left this part out")


def group_refusal(
    facts: BrokerFacts, context: RequestContext, operation: Operation, group_id: str
) -> Outcome | None:
    """Return the reason why the caller may not do this to the group, or None."""
    if not may(facts, context, operation, group_id):
        return Outcome(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")
    if not group_id:
        return Outcome(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
    return None


def topics_by_name(
    facts: BrokerFacts, metadata: MetadataCache, context: RequestContext, topics: Iterable[Struct]
) -> dict[str, NamedTopic | Outcome]:
    """Return each topic that exists and that the caller may read, and the errors of others."""
    choice = TopicChoice(facts, metadata, context, Operation.READ)
    found = {one.topic_name: choice.by_name(one.topic_name) for one in topics}
    return {
        name: topic if isinstance(topic, NamedTopic) else Outcome(topic, topic.name)
        for name, topic in found.items()
    }


def topic_id_of(found: NamedTopic | Outcome) -> TopicId:
    """Return the id for the response; zero for a topic that is refused."""
    return found.topic_id if isinstance(found, NamedTopic) else NO_TOPIC_ID


def response(outcome: Outcome, rows: Iterable[dict[str, object]] = ()) -> dict[str, object]:
    """Return a whole response; ``rows`` are its topics."""
    return {
        "error_code": int(outcome.error_code),
        "error_message": outcome.error_message,
        "responses": list(rows),
    }
