"""Wire to inputs, replies to wire: nothing else here sees protobuf fields of a request."""

from collections.abc import Iterable

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId, TopicId
from tidemark.runtime.metadata_wire import write_position
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import ConfigResult, ProducerIds, Registered, Reply, TopicResult
from controller.core.inputs import (
    Assignment,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    MorePartitions,
    NewTopic,
    TopicRef,
)

TIMEOUT_MS_DEFAULT = 30_000
TIMEOUT_MS_MAX = 300_000


def read_timeout_ms(timeout_ms: int) -> int:
    """How long a request may take: what it says, within bounds."""
    return min(timeout_ms, TIMEOUT_MS_MAX) if timeout_ms > 0 else TIMEOUT_MS_DEFAULT


def _replicas(wire: pb.CreateTopicsRequest.Assignment) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, wire.replicas))


def read_new_topics(
    request: pb.CreateTopicsRequest, topic_ids: Iterable[TopicId]
) -> tuple[NewTopic, ...]:
    """One topic id for each topic."""
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


def _assignment(wire: pb.CreateTopicsRequest.Assignment) -> Assignment:
    return wire.partition, _replicas(wire)


def read_topic_refs(request: pb.DeleteTopicsRequest) -> tuple[TopicRef, ...]:
    """By name, or by id."""
    return tuple(
        TopicRef(topic.name, TopicId(topic.topic_id or NO_TOPIC_ID)) for topic in request.topics
    )


def read_more_partitions(request: pb.CreatePartitionsRequest) -> tuple[MorePartitions, ...]:
    """New totals."""
    return tuple(
        MorePartitions(topic.name, topic.partition_count, tuple(map(_replicas, topic.assignments)))
        for topic in request.topics
    )


def read_config_resources(request: pb.AlterConfigsRequest) -> tuple[ConfigResource, ...] | None:
    """Changes by resource; None when an operation is not one."""
    known = {int(operation) for operation in ConfigOperation}
    operations = {change.operation for item in request.resources for change in item.changes}
    if not operations <= known:
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


# Answers. A result that is not there (an error of the whole request) leaves its fields empty.


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
    """CreateTopics' answer."""
    return pb.CreateTopicsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_deleted_topics(reply: Reply, hint: str) -> pb.DeleteTopicsResponse:
    """DeleteTopics' answer."""
    return pb.DeleteTopicsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_created_partitions(reply: Reply, hint: str) -> pb.CreatePartitionsResponse:
    """CreatePartitions' answer."""
    return pb.CreatePartitionsResponse(
        error_code=reply.error,
        controller_hint=hint,
        position=write_position(reply.position),
        topics=_topics(reply),
    )


def write_altered_configs(reply: Reply, hint: str) -> pb.AlterConfigsResponse:
    """AlterConfigs' answer."""
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
    """AllocateProducerIds' answer."""
    block = reply.result if isinstance(reply.result, ProducerIds) else ProducerIds(-1, 0)
    return pb.AllocateProducerIdsResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        first_producer_id=block.first,
        count=block.count,
    )


def write_registered(reply: Reply, hint: str) -> pb.RegisterBrokerResponse:
    """RegisterBroker's answer."""
    registered = reply.result if isinstance(reply.result, Registered) else None
    return pb.RegisterBrokerResponse(
        error_code=reply.error,
        error_message=reply.message,
        controller_hint=hint,
        broker_epoch=-1 if registered is None else registered.broker_epoch,
        cluster_id="" if registered is None else registered.cluster_id,
    )


def hint_for(code: ErrorCode, hint: str) -> str:
    """Who to ask instead: named only to those who asked the wrong one."""
    return hint if code is ErrorCode.NOT_CONTROLLER else ""
