"""Wire to inputs, replies to wire. Protobuf fields are read in the ``*_mapping`` modules only."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from tidemark.model.authorization import (
    ANONYMOUS,
    CLUSTER,
    Requester,
    Resource,
    group_resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerEpoch, BrokerId, ControllerId, TopicId
from tidemark.model.metadata import FeedPosition
from tidemark.runtime.metadata_wire import read_position, write_position
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.configs import GROUP_RESOURCE, TOPIC_RESOURCE
from controller.core.effects import ConfigResult, ProducerIds, Registered, Reply, TopicResult
from controller.core.inputs import (
    AlterConfigs,
    Assignment,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    RequestHeader,
    TopicRef,
)
from controller.shell.metadata_feed import MetadataFeed

TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 300_000


def read_timeout_ms(timeout_ms: int) -> int:
    """Milliseconds that a request may take: its own timeout, within bounds."""
    return min(timeout_ms, TIMEOUT_MS_MAX) if timeout_ms > 0 else TIMEOUT_MS_DEFAULT


class FromClient(Protocol):
    """Request that a broker relays for a client."""

    timeout_ms: int

    @property
    def caller(self) -> common_pb2.Caller:
        """Principal and client of the request."""
        ...


class HasCaller(Protocol):
    """Request that names its client."""

    @property
    def caller(self) -> common_pb2.Caller:
        """Principal and client of the request."""
        ...


def read_requester(request: HasCaller) -> Requester:
    """The client on whose behalf the request is sent."""
    return Requester(request.caller.principal or ANONYMOUS, request.caller.host)


def timeout_asked(request: FromClient) -> int:
    """Milliseconds that the client allows; 0: the default."""
    return request.timeout_ms


class NamesTopic(Protocol):
    """Part of a request about one topic."""

    name: str


class NamesTopics(Protocol):
    """Request about topics by their names."""

    @property
    def topics(self) -> Iterable[NamesTopic]:
        """One for each topic."""
        ...


def topics_named(request: NamesTopics) -> list[Resource]:
    """Resources of a request about topics."""
    return [topic_resource(topic.name) for topic in request.topics]


def topics_to_delete(request: pb.DeleteTopicsRequest) -> list[Resource]:
    """Resources of a request that names topics, or their ids."""
    topics = read_topic_refs(request)
    return [topic_resource(topic.name or topic.topic_id.hex()) for topic in topics]


def configs_named(request: pb.AlterConfigsRequest) -> list[Resource]:
    """Resources of a request about configuration."""
    return [_config_resource(item.resource_type, item.resource_name) for item in request.resources]


def _config_resource(resource_type: int, name: str) -> Resource:
    if resource_type == TOPIC_RESOURCE:
        return topic_resource(name)
    return group_resource(name) if resource_type == GROUP_RESOURCE else CLUSTER


def _replicas(wire: pb.CreateTopicsRequest.Assignment) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, wire.replicas))


def read_new_topics(
    request: pb.CreateTopicsRequest, topic_ids: Iterable[TopicId]
) -> tuple[NewTopic, ...]:
    """Topics to create. ``topic_ids`` has one id for each."""
    return tuple(
        NewTopic(
            name=topic.name,
            topic_id=topic_id,
            partition_count=topic.partition_count,
            replication_factor=topic.replication_factor,
            assignments=tuple(_assignment(item) for item in topic.assignments),
            configs=dict(topic.configs),
        )
        for topic, topic_id in zip(request.topics, topic_ids, strict=True)
    )


def read_creation(
    request: pb.CreateTopicsRequest, topic_ids: Iterable[TopicId], dice: int
) -> Callable[[RequestHeader], CreateTopics]:
    """Request to create topics. ``topic_ids`` has one id for each."""
    topics, validate_only = read_new_topics(request, topic_ids), request.validate_only
    return lambda header: CreateTopics(header, topics, dice, validate_only)


def read_growth(
    request: pb.CreatePartitionsRequest, dice: int
) -> Callable[[RequestHeader], CreatePartitions]:
    """Topics whose partition counts are to be raised."""
    topics, validate_only = read_more_partitions(request), request.validate_only
    return lambda header: CreatePartitions(header, topics, dice, validate_only)


def _assignment(wire: pb.CreateTopicsRequest.Assignment) -> Assignment:
    return wire.partition, _replicas(wire)


def read_topic_refs(request: pb.DeleteTopicsRequest) -> tuple[TopicRef, ...]:
    """Topics to delete, by name or by id."""
    return tuple(
        TopicRef(topic.name, TopicId(topic.topic_id or NO_TOPIC_ID)) for topic in request.topics
    )


def read_more_partitions(request: pb.CreatePartitionsRequest) -> tuple[MorePartitions, ...]:
    """New partition counts of topics."""
    return tuple(
        MorePartitions(topic.name, topic.partition_count, tuple(map(_replicas, topic.assignments)))
        for topic in request.topics
    )


def read_deletion(request: pb.DeleteTopicsRequest) -> Callable[[RequestHeader], DeleteTopics]:
    """Request to delete topics."""
    topics = read_topic_refs(request)
    return lambda header: DeleteTopics(header, topics)


def read_config_changes(
    request: pb.AlterConfigsRequest,
) -> Callable[[RequestHeader], AlterConfigs] | None:
    """Changes of dynamic configuration; None when one has an unknown operation."""
    resources = read_config_resources(request)
    if resources is None:
        return None
    validate_only = request.validate_only
    return lambda header: AlterConfigs(header, resources, validate_only)


def read_config_resources(request: pb.AlterConfigsRequest) -> tuple[ConfigResource, ...] | None:
    """Changes by resource; None when one has an unknown operation."""
    defined = {int(operation) for operation in ConfigOperation}
    operations = {change.operation for item in request.resources for change in item.changes}
    if not operations <= defined:
        return None
    return tuple(
        ConfigResource(
            item.resource_type,
            item.resource_name,
            tuple(
                ConfigChange(change.name, ConfigOperation(change.operation), change.value)
                for change in item.changes
            ),
            item.replace_all,
        )
        for item in request.resources
    )


class Subscriber(NamedTuple):
    """First message of a subscriber to the metadata."""

    name: str
    broker_epoch: BrokerEpoch
    answers_heartbeats: bool
    takes_partitions: bool


def read_subscriber(first: pb.WatchMetadataRequest) -> Subscriber:
    """Wire to model."""
    return Subscriber(
        first.subscriber,
        BrokerEpoch(first.broker_epoch),
        first.answers_heartbeats,
        first.takes_partitions,
    )


def read_applied(request: pb.WatchMetadataRequest) -> FeedPosition:
    """Position that the subscriber acknowledges."""
    return read_position(request.applied)


def write_last_update(update: pb.MetadataUpdate, hint: str) -> pb.MetadataUpdate | None:
    """Update that ends the feed, with the error and the controller to ask; None: it goes on."""
    if not update.error_code:
        return None
    code = ErrorCode(update.error_code)
    return pb.MetadataUpdate(
        error_code=code, controller_hint=update.controller_hint or hint_for(code, hint)
    )


# -- responses; without a result (an error of the whole request) its fields are empty


def _topics(reply: Reply) -> list[pb.TopicResult]:
    results = reply.result if isinstance(reply.result, tuple) else ()
    return [_topic(result) for result in results if isinstance(result, TopicResult)]


def _topic(result: TopicResult) -> pb.TopicResult:
    return pb.TopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error,
        error_message=result.message,
        partition_count=result.partition_count,
        replication_factor=result.replication_factor,
        configs=result.configs,
    )


def write_created_topics(reply: Reply, hint: str) -> pb.CreateTopicsResponse:
    """Response of CreateTopics."""
    return pb.CreateTopicsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_deleted_topics(reply: Reply, hint: str) -> pb.DeleteTopicsResponse:
    """Response of DeleteTopics."""
    return pb.DeleteTopicsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_created_partitions(reply: Reply, hint: str) -> pb.CreatePartitionsResponse:
    """Response of CreatePartitions."""
    return pb.CreatePartitionsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_altered_configs(reply: Reply, hint: str) -> pb.AlterConfigsResponse:
    """Response of AlterConfigs."""
    results = reply.result if isinstance(reply.result, tuple) else ()
    return pb.AlterConfigsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        results=[
            pb.AlterConfigsResponse.Result(
                resource_type=result.resource_type,
                resource_name=result.resource_name,
                error_code=result.error,
                error_message=result.message,
            )
            for result in results
            if isinstance(result, ConfigResult)
        ],
    )


def write_producer_ids(reply: Reply, hint: str) -> pb.AllocateProducerIdsResponse:
    """Response of AllocateProducerIds."""
    block = reply.result if isinstance(reply.result, ProducerIds) else ProducerIds(-1, 0)
    return pb.AllocateProducerIdsResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        first_producer_id=block.first,
        count=block.count,
    )


def write_registered(reply: Reply, hint: str) -> pb.RegisterBrokerResponse:
    """Response of RegisterBroker."""
    registered = reply.result if isinstance(reply.result, Registered) else None
    return pb.RegisterBrokerResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        broker_epoch=-1 if registered is None else registered.broker_epoch,
        cluster_id="" if registered is None else registered.cluster_id,
    )


def write_unregistered(reply: Reply, hint: str) -> pb.UnregisterBrokerResponse:
    """Response of UnregisterBroker."""
    return pb.UnregisterBrokerResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        position=write_position(reply.position),
    )


def write_feed(
    controller_id: ControllerId, grpc_endpoint: str, feed: MetadataFeed
) -> pb.DescribeFeedResponse:
    """Response of DescribeFeed at the active controller."""
    return pb.DescribeFeedResponse(
        controller_id=controller_id,
        grpc_endpoint=grpc_endpoint,
        position=write_position(feed.image.position),
        subscribers=[
            pb.DescribeFeedResponse.Subscriber(
                name=one.name, applied=write_position(one.acknowledged)
            )
            for one in feed.subscriptions
            if not one.over
        ],
    )


def write_no_feed(reply: Reply, hint: str) -> pb.DescribeFeedResponse:
    """Response of DescribeFeed with an error."""
    return pb.DescribeFeedResponse(error_code=reply.error, controller_hint=hint)


def hint_for(code: ErrorCode, hint: str) -> str:
    """Endpoint of the active controller, for requests that went to another one; otherwise ''."""
    return hint if code is ErrorCode.NOT_CONTROLLER else ""
