"""Metadata (3), versions 0 to 13: brokers as advertised on the client's listener, topics and their
leaders.

Any broker answers, from its own image. An unknown topic is created if both the client and this
broker allow it.
"""

from typing import Final

from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.metadata import (
    AUTHORIZED_OPERATIONS_OMITTED,
    MetadataPartition,
    MetadataQuery,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    read_metadata_request,
    write_metadata_response,
)
from tidemark.kafka.primitives import NodeEndpoint
from tidemark.model.authorization import CLUSTER, Operation, Requester, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId, TopicId
from tidemark.model.metadata import PartitionImage, TopicImage
from tidemark.model.topics import INTERNAL_TOPICS, topic_name_problem
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.auto_creation import AutoCreation, Missing
from broker.shell.facts import BrokerFacts
from broker.shell.listener.connection import Connection
from broker.shell.listener.request_router import context_of

LISTENER_ERROR_FROM: Final = 6
"""First version whose clients know LISTENER_NOT_FOUND."""


def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    auto_creation: AutoCreation,
    connection: Connection,
    header: RequestHeader,
    body: memoryview,
) -> None:
    """Answer from the image; through the controller first if topics are to be created."""
    request = read_metadata_request(body, header.api_version)
    missing = Missing([], {})
    if request.topics and request.allow_auto_topic_creation:
        names = [query.topic for query in request.topics]
        missing = auto_creation.missing(connection.requester, names)
    if not missing.to_create:
        answer = _answer(facts, metadata, connection, header, request, missing.refused)
        connection.answer(header, answer)
        return
    reply = connection.later(header)
    context = context_of(connection, header)

    async def create_first() -> None:
        refused = missing.refused | await auto_creation.create(context, missing.to_create)
        reply.send([_answer(facts, metadata, connection, header, request, refused)])

    connection.start(create_first())


def _answer(
    facts: BrokerFacts,
    metadata: MetadataCache,
    connection: Connection,
    header: RequestHeader,
    request: MetadataRequest,
    refused: dict[str, ErrorCode],
) -> bytes:
    image, listener = metadata.image, connection.listener.name
    brokers = []
    for broker in image.brokers.values():
        endpoint = broker.endpoint(listener)
        if endpoint is not None and not broker.fenced:
            brokers.append(
                NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack or None)
            )
    reachable = {broker.node_id for broker in brokers}
    describe = _Describer(
        facts, metadata, connection.requester, request, reachable, header.api_version
    )
    if request.topics is None:
        topics = [
            describe.topic(topic) for topic in image.topics.values() if describe.sees(topic.name)
        ]
    else:
        # As in Kafka, a topic is answered once: a request may name one with many partitions often.
        named = dict.fromkeys(request.topics)
        topics = [describe.query(query, refused) for query in named]
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations:
        operations = facts.authorizer.authorized_operations(connection.requester, CLUSTER)
    return write_metadata_response(
        header.api_version,
        MetadataResponse(
            brokers=brokers,
            cluster_id=image.cluster_id or None,
            # Any live broker relays to the controller, this one as well as another.
            controller_id=facts.broker_id if facts.broker_id in reachable else -1,
            topics=topics,
            throttle_time_ms=facts.quotas.request_ms(
                connection.requester.principal, header.client_id
            ),
            cluster_authorized_operations=operations,
        ),
    )


class _Describer:
    """Turns topics of the image into topics of the answer."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        requester: Requester,
        request: MetadataRequest,
        reachable: set[int],
        version: int,
    ) -> None:
        self._authorizer = facts.authorizer
        self._image = metadata.image
        self._requester = requester
        self._with_operations = request.include_topic_authorized_operations
        self._reachable = reachable
        self._lacks_listener = (
            ErrorCode.LISTENER_NOT_FOUND
            if version >= LISTENER_ERROR_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def sees(self, name: str) -> bool:
        return self._authorizer.sees(self._requester, Operation.DESCRIBE, topic_resource(name))

    def allowed(self, name: str) -> bool:
        return self._authorizer.authorize(self._requester, Operation.DESCRIBE, topic_resource(name))

    def query(self, query: MetadataQuery, refused: dict[str, ErrorCode]) -> MetadataTopic:
        """Describe one topic that was named, by name or by id."""
        image = self._image
        if query.topic is None or (not query.topic and query.topic_id != NO_TOPIC_ID):
            found = image.topics_by_id.get(TopicId(query.topic_id))
            if found is None:
                return _absent(None, query.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            if not self.allowed(found.name):  # its id is no secret, its name is
                return _absent(None, query.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return self.topic(found)
        name = query.topic
        if topic_name_problem(name) is not None:
            return _absent(name, NO_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not self.allowed(name):
            return _absent(name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        found = image.topics.get(name)
        if found is None:
            code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return _absent(name, NO_TOPIC_ID, code)
        return self.topic(found)

    def topic(self, topic: TopicImage) -> MetadataTopic:
        """Describe one topic that exists."""
        operations = AUTHORIZED_OPERATIONS_OMITTED
        if self._with_operations:
            operations = self._authorizer.authorized_operations(
                self._requester, topic_resource(topic.name)
            )
        return MetadataTopic(
            int(ErrorCode.NONE),
            topic.name,
            topic.topic_id,
            topic.name in INTERNAL_TOPICS,
            [self._partition(partition) for partition in topic.partitions],
            operations,
        )

    def _partition(self, state: PartitionImage) -> MetadataPartition:
        reachable = self._reachable
        error, leader = ErrorCode.NONE, state.leader
        if leader not in reachable:
            known = self._image.brokers.get(BrokerId(leader))
            lacks_listener = known is not None and not known.fenced
            error = self._lacks_listener if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
            leader = BrokerId(-1)
        return MetadataPartition(
            int(error),
            state.partition,
            leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            tuple(replica for replica in state.replicas if replica not in reachable),
        )


def _absent(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataTopic:
    return MetadataTopic(int(code), name, topic_id, is_internal=False, partitions=[])
