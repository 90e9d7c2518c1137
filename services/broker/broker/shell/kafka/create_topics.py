"""CreateTopics (19): relayed to the controller, answered once this broker's own metadata shows the
topics.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.broker_configs import topic_configs_shown
from broker.shell.kafka.topic_changes import TopicChanges, relay_changes
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import (
    NewTopic,
    PlannedPartition,
    TopicResult,
    write_create_topics,
)

STRICT_FROM: Final = 6
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Create topics. Each succeeds or fails alone."""
    mutations = facts.quotas.mutations(context, strict_from=STRICT_FROM)
    changes = TopicChanges(
        "CreateTopics",
        mutations,
        _partition_count,
        refuse=lambda topic: _refusal(facts, topic, context),
        read=_new_topic,
        write=partial(
            write_create_topics,
            caller_of(context),
            validate_only=request.validate_only,
            timeout_ms=request.timeout,
        ),
    )
    results = await relay_changes(relay, changes, request)
    return {
        "throttle_time": mutations.throttle_ms(),
        "topics": [_answer(facts, metadata, result, context) for result in results],
    }


def _partition_count(topic: Struct) -> int:
    """Return the partitions of a new topic. The controller's default counts as one: this broker
    need not have it.
    """
    return len(topic.assignments) or max(1, int(topic.num_partitions))


def _refusal(facts: BrokerFacts, topic: Struct, context: RequestContext) -> TopicResult | None:
    """Return the error if this broker itself refuses the topic; the controller checks everything
    else.
    """

    def refuse(error_code: ErrorCode, message: str) -> TopicResult:
        return TopicResult(topic.name, NO_TOPIC_ID, error_code, message)

    authorize = facts.authorizer.authorize
    if not authorize(context.requester, Operation.CREATE, CLUSTER) and not authorize(
        context.requester, Operation.CREATE, topic_resource(topic.name)
    ):
        return refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    valueless = [config.name for config in topic.configs if config.value is None]
    if valueless:
        return refuse(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(valueless)}",
        )
    return None


def _new_topic(topic: Struct) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple(
            PlannedPartition(planned.partition_index, tuple(planned.broker_ids))
            for planned in topic.assignments
        ),
        {config.name: config.value for config in topic.configs},
    )


def _answer(
    facts: BrokerFacts, metadata: MetadataCache, result: TopicResult, context: RequestContext
) -> dict[str, object]:
    answer: dict[str, object] = {
        "name": result.name,
        "error_code": int(result.error_code),
        "error_message": result.error_message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
    if result.error_code is not ErrorCode.NONE:
        return answer
    answer["topic_id"] = result.topic_id
    if not facts.authorizer.authorize(
        context.requester, Operation.DESCRIBE_CONFIGS, topic_resource(result.name)
    ):
        answer["topic_config_error_code"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer
    return {
        **answer,
        "num_partitions": result.partition_count,
        "replication_factor": result.replication_factor,
        "configs": [
            {
                "name": shown.name,
                "value": shown.value,
                "read_only": shown.read_only,
                "config_source": int(shown.source),
                "is_sensitive": shown.is_sensitive,
            }
            for shown in topic_configs_shown(
                facts.config, metadata.image, facts.broker_id, result.configs
            )
        ],
    }
