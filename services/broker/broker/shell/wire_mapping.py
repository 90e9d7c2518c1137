"""Mapping between wire and model: with ``rpc/``, the only place of the broker that reads and writes
protobuf fields.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark.model.metadata import FeedPosition
from tidemark.runtime.metadata_wire import read_position
from tidemark.runtime.producer_ids import ProducerIdBlock
from tidemark_wire.v1 import common_pb2, controller_pb2, partition_store_pb2


class Caller(NamedTuple):
    """Client on whose behalf a request is relayed."""

    requester: Requester
    client_id: str
    request_id: str


class PlannedPartition(NamedTuple):
    """Replicas that one partition is to have; the preferred leader first."""

    partition: int
    replicas: tuple[int, ...]


class NewTopic(NamedTuple):
    """A topic to create. Counts of -1 ask for the cluster's defaults."""

    name: str
    partition_count: int
    replication_factor: int
    assignments: tuple[PlannedPartition, ...]
    configs: Mapping[str, str]


class TopicRef(NamedTuple):
    """A topic by name or, where the name is empty, by id."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID


class WiderTopic(NamedTuple):
    """A topic to give more partitions: ``partition_count`` is the new total."""

    name: str
    partition_count: int
    assignments: tuple[PlannedPartition, ...]


class ConfigChange(NamedTuple):
    """One key of one resource. ``operation`` is Kafka's: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str
    operation: int
    value: str


class ConfigAlteration(NamedTuple):
    """Changes of one resource; with ``replace_all``, keys that are not named return to their
    defaults.
    """

    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]
    replace_all: bool


class TopicResult(NamedTuple):
    """Outcome of one topic of a change. ``configs`` holds only what is set on the topic."""

    name: str
    topic_id: TopicId
    error_code: ErrorCode
    error_message: str | None = None
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class AlterationResult(NamedTuple):
    """Outcome of one resource of a change of configuration."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode
    error_message: str | None = None


Result = TypeVar("Result")


class Relayed(NamedTuple, Generic[Result]):
    """Answer of the controller: the error of the whole call, and the feed position that shows the
    change.
    """

    error_code: ErrorCode
    position: FeedPosition
    results: tuple[Result, ...]


def write_caller(caller: Caller) -> common_pb2.Caller:
    """Return the client of a relayed request for the wire."""
    return common_pb2.Caller(
        principal=caller.requester.principal,
        host=caller.requester.host,
        client_id=caller.client_id,
        request_id=caller.request_id,
    )


def _write_assignments(
    assignments: Sequence[PlannedPartition],
) -> list[controller_pb2.CreateTopicsRequest.Assignment]:
    return [
        controller_pb2.CreateTopicsRequest.Assignment(
            partition=planned.partition, replicas=planned.replicas
        )
        for planned in assignments
    ]


def write_create_topics(
    caller: Caller, topics: Sequence[NewTopic], *, validate_only: bool, timeout_ms: int
) -> controller_pb2.CreateTopicsRequest:
    """Return CreateTopics for the controller."""
    return controller_pb2.CreateTopicsRequest(
        caller=write_caller(caller),
        topics=[
            controller_pb2.CreateTopicsRequest.Topic(
                name=topic.name,
                partition_count=topic.partition_count,
                replication_factor=topic.replication_factor,
                assignments=_write_assignments(topic.assignments),
                configs=dict(topic.configs),
            )
            for topic in topics
        ],
        validate_only=validate_only,
        timeout_ms=timeout_ms,
    )


def write_delete_topics(
    caller: Caller, topics: Sequence[TopicRef], *, timeout_ms: int
) -> controller_pb2.DeleteTopicsRequest:
    """Return DeleteTopics for the controller; a topic is named by its name or by its id, never by
    both.
    """
    return controller_pb2.DeleteTopicsRequest(
        caller=write_caller(caller),
        topics=[
            controller_pb2.DeleteTopicsRequest.Topic(
                name=topic.name,
                topic_id=b"" if topic.topic_id == NO_TOPIC_ID else topic.topic_id,
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
    )


def write_create_partitions(
    caller: Caller, topics: Sequence[WiderTopic], *, validate_only: bool, timeout_ms: int
) -> controller_pb2.CreatePartitionsRequest:
    """Return CreatePartitions for the controller."""
    return controller_pb2.CreatePartitionsRequest(
        caller=write_caller(caller),
        topics=[
            controller_pb2.CreatePartitionsRequest.Topic(
                name=topic.name,
                partition_count=topic.partition_count,
                assignments=_write_assignments(topic.assignments),
            )
            for topic in topics
        ],
        validate_only=validate_only,
        timeout_ms=timeout_ms,
    )


def write_alter_configs(
    caller: Caller,
    alterations: Sequence[ConfigAlteration],
    *,
    validate_only: bool,
    timeout_ms: int,
) -> controller_pb2.AlterConfigsRequest:
    """Return AlterConfigs and IncrementalAlterConfigs for the controller."""
    message = controller_pb2.AlterConfigsRequest(
        caller=write_caller(caller), validate_only=validate_only, timeout_ms=timeout_ms
    )
    for alteration in alterations:
        resource = message.resources.add(
            resource_type=alteration.resource_type,
            resource_name=alteration.resource_name,
            replace_all=alteration.replace_all,
        )
        for change in alteration.changes:
            resource.changes.add(
                name=change.name,
                operation=controller_pb2.AlterConfigsRequest.Operation.Name(change.operation),
                value=change.value,
            )
    return message


def write_allocate_producer_ids(
    broker_id: int, broker_epoch: int
) -> controller_pb2.AllocateProducerIdsRequest:
    """Return the request for a block of producer ids that no other broker gets."""
    return controller_pb2.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)


def read_topic_results(
    response: controller_pb2.CreateTopicsResponse
    | controller_pb2.DeleteTopicsResponse
    | controller_pb2.CreatePartitionsResponse,
) -> Relayed[TopicResult]:
    """Read the controller's answer to a change of topics."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            TopicResult(
                result.name,
                TopicId(result.topic_id or NO_TOPIC_ID),
                ErrorCode(result.error_code),
                result.error_message or None,
                result.partition_count,
                result.replication_factor,
                dict(result.configs),
            )
            for result in response.topics
        ),
    )


def read_alteration_results(
    response: controller_pb2.AlterConfigsResponse,
) -> Relayed[AlterationResult]:
    """Read the controller's answer to a change of configuration."""
    return Relayed(
        ErrorCode(response.error_code),
        read_position(response.position),
        tuple(
            AlterationResult(
                result.resource_type,
                result.resource_name,
                ErrorCode(result.error_code),
                result.error_message or None,
            )
            for result in response.results
        ),
    )


def read_producer_id_block(
    response: controller_pb2.AllocateProducerIdsResponse,
) -> ProducerIdBlock | ErrorCode:
    """Read a block of producer ids; an error code if there is none."""
    error_code = ErrorCode(response.error_code)
    if error_code is not ErrorCode.NONE:
        return error_code
    return ProducerIdBlock(response.first_producer_id, response.count)


class FeedSubscriber(NamedTuple):
    """Subscriber of the metadata feed (``broker-1``), and the position that it has applied."""

    name: str
    applied: FeedPosition


class FeedDescription(NamedTuple):
    """Feed of the active controller."""

    error_code: ErrorCode
    controller_id: int
    grpc_endpoint: str
    position: FeedPosition
    subscribers: tuple[FeedSubscriber, ...]


def write_describe_feed(caller: Caller) -> controller_pb2.DescribeFeedRequest:
    """Model to wire."""
    return controller_pb2.DescribeFeedRequest(caller=write_caller(caller))


def read_feed(response: controller_pb2.DescribeFeedResponse) -> FeedDescription:
    """Wire to model."""
    return FeedDescription(
        ErrorCode(response.error_code),
        response.controller_id,
        response.grpc_endpoint,
        read_position(response.position),
        tuple(FeedSubscriber(one.name, read_position(one.applied)) for one in response.subscribers),
    )


class AppendCommand(NamedTuple):
    """One append over gRPC. ``batches`` is the message's own memory: read only."""

    correlation_id: int
    topic: str
    topic_id: TopicId
    partition: int
    leader_epoch: int
    acks: int
    timeout_ms: int
    batches: bytes
    owner_epoch: int = 0
    """Owner epoch of a coordinator's shard; 0 for any other topic."""
    takes_over: bool = False
    transactional_id: str = ""


class FetchCommand(NamedTuple):
    """One pull over gRPC."""

    correlation_id: int
    topic: str
    topic_id: TopicId
    partition: int
    leader_epoch: int
    fetch_offset: int
    bytes_max: int
    bytes_min: int
    wait_ms_max: int
    read_committed: bool


class OffsetQuery(NamedTuple):
    """Question for an offset: ``timestamp_ms`` is a time, or one of ListOffsets' negative marks."""

    topic: str
    topic_id: TopicId
    partition: int
    leader_epoch: int
    timestamp_ms: int


def read_topic_id(raw: bytes) -> TopicId | None:
    """Read a topic id; empty stands for no id, and None for bytes that are no id."""
    if not raw:
        return NO_TOPIC_ID
    return TopicId(raw) if len(raw) == len(NO_TOPIC_ID) else None


def read_append(request: partition_store_pb2.AppendRequest) -> AppendCommand | ErrorCode:
    """Read an append; an error code if it is malformed."""
    named = request.partition
    topic_id = read_topic_id(named.topic_id)
    if topic_id is None or not request.HasField("partition"):
        return ErrorCode.INVALID_REQUEST
    return AppendCommand(
        request.correlation_id,
        named.topic,
        topic_id,
        named.partition,
        request.current_leader_epoch,
        request.acks,
        request.timeout_ms,
        request.batches,
        request.owner_epoch,
        request.owner_takes_over,
        request.transactional_id,
    )


def read_fetch(request: partition_store_pb2.FetchRequest) -> FetchCommand | ErrorCode:
    """Read a pull; an error code if it is malformed."""
    named = request.partition
    topic_id = read_topic_id(named.topic_id)
    if topic_id is None or not request.HasField("partition"):
        return ErrorCode.INVALID_REQUEST
    return FetchCommand(
        request.correlation_id,
        named.topic,
        topic_id,
        named.partition,
        request.current_leader_epoch,
        request.fetch_offset,
        max(request.bytes_max, 0),
        max(request.bytes_min, 0),
        max(request.wait_ms_max, 0),
        request.read_committed,
    )


def read_offset_query(
    query: partition_store_pb2.ListOffsetsRequest.Query,
) -> OffsetQuery | ErrorCode:
    """Read a question for an offset; an error code if it is malformed."""
    topic_id = read_topic_id(query.partition.topic_id)
    if topic_id is None:
        return ErrorCode.INVALID_REQUEST
    return OffsetQuery(
        query.partition.topic,
        topic_id,
        query.partition.partition,
        query.current_leader_epoch,
        query.timestamp_ms,
    )
