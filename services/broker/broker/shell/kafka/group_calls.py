"""Common parts of the handlers of group APIs: calls of the coordinator, authorization, topics."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeVar

from tidemark.model.authorization import Operation, group_resource, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.id_requests import CoordinatorReply
from broker.core.groups.requests import GroupReply, GroupRequest
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

PROTOCOL_IS_DISABLED: Final = (
    "the consumer protocol of groups is disabled: use group.protocol=classic, or add consumer to"
    " group.coordinator.rebalance.protocols of every broker"
)

ReplyT = TypeVar("ReplyT", bound=GroupReply)


class Groups(Protocol):
    """The group coordinator, wherever its shards are."""

    async def ask(self, group_id: str, request: GroupRequest) -> CoordinatorReply:
        """Return the reply of the group's shard. Raises TidemarkError if that is not here, not
        loaded yet, or does not answer.
        """
        ...

    async def ask_all(self, request: GroupRequest) -> list[GroupReply]:
        """Return the replies of every shard here. Raises TidemarkError."""
        ...


class NamedTopic(NamedTuple):
    """Topic for the coordinator; without an id it does not exist."""

    topic: str
    topic_id: TopicId


async def ask(groups: Groups, group_id: str, request: GroupRequest, kind: type[ReplyT]) -> ReplyT:
    """Return the reply of the group's coordinator, of this ``kind``. Raises TidemarkError."""
    reply = await groups.ask(group_id, request)
    assert isinstance(reply, kind), reply
    return reply


def may(facts: BrokerFacts, context: RequestContext, operation: Operation, group_id: str) -> bool:
    """True if the caller may do this to the group."""
    return facts.authorizer.authorize(context.requester, operation, group_resource(group_id))


def refuse_unless(
    facts: BrokerFacts, context: RequestContext, operation: Operation, group_id: str
) -> None:
    """Raise TidemarkError unless the caller may do this to the group."""
    if not may(facts, context, operation, group_id):
        raise TidemarkError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Authorization failed.")


def refuse_error(error_code: ErrorCode) -> None:
    """Raise TidemarkError for an error of a whole request."""
    if error_code is not ErrorCode.NONE:
        raise TidemarkError(error_code, error_code.name)


class TopicChoice:
    """Resolves the topics of one request, by id or by name, as its version has them."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        context: RequestContext,
        operation: Operation,
    ) -> None:
        self._image = metadata.image
        self._authorizer = facts.authorizer
        self._requester = context.requester
        self._operation = operation

    def by_id(self, topic_id: TopicId) -> NamedTopic | ErrorCode:
        """Return a topic that exists and is permitted, or an error."""
        topic = self._image.topics_by_id.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.permitted(topic.name)

    def by_name(self, name: str) -> NamedTopic | ErrorCode:
        """Return a topic that exists and is permitted, or an error."""
        found = self.permitted(name)
        if isinstance(found, NamedTopic) and found.topic_id == NO_TOPIC_ID:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found

    def permitted(self, name: str) -> NamedTopic | ErrorCode:
        """Return a topic that is permitted, whether it exists or not."""
        if not self._authorizer.authorize(self._requester, self._operation, topic_resource(name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._image.topics.get(name)
        return NamedTopic(name, NO_TOPIC_ID if topic is None else topic.topic_id)


def client_host(context: RequestContext) -> str:
    """Return the address of a member in the form of Kafka's tools: ``/10.0.0.7``."""
    return "/" + context.peer.rpartition(":")[0]
