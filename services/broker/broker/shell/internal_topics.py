"""The coordinators' own topics: made by the first broker that is asked for a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE

from broker.shell.relay import caller_of, relay_topics
from broker.shell.wire_mapping import NewTopic, TopicRef, write_create_topics

if TYPE_CHECKING:
    from broker.shell.node import BrokerNode
    from broker.shell.request_router import RequestContext

CREATE_TIMEOUT_MS: Final = 10_000
STATE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one batch: what a large group, or a transaction of many partitions, comes to."""


class _Wanted(NamedTuple):
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


def _wanted(node: BrokerNode, name: str) -> _Wanted:
    config = node.config
    common = {"cleanup.policy": "compact", "max.message.bytes": str(STATE_BYTES_MAX)}
    if name == CONSUMER_OFFSETS:
        segment_bytes = max(config.offsets_topic_segment_bytes, STATE_BYTES_MAX)
        return _Wanted(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {**common, "segment.bytes": str(segment_bytes)},
        )
    segment_bytes = max(config.transaction_state_log_segment_bytes, STATE_BYTES_MAX)
    return _Wanted(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            **common,
            "segment.bytes": str(segment_bytes),
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
        },
    )


async def ensure_internal_topic(node: BrokerNode, context: RequestContext, name: str) -> ErrorCode:
    """NONE once the topic is in this broker's metadata; else why not: ask again."""
    assert name in (CONSUMER_OFFSETS, TRANSACTION_STATE), name
    if name in node.image.topics:
        return ErrorCode.NONE
    wanted = _wanted(node, name)
    live = len(node.live)
    if not live:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    replicas = min(wanted.replication_factor, live)
    configs = dict(wanted.configs)
    if "min.insync.replicas" in configs:
        configs["min.insync.replicas"] = str(min(int(configs["min.insync.replicas"]), replicas))
    message = write_create_topics(
        caller_of(context),
        [NewTopic(name, wanted.partition_count, replicas, (), configs)],
        validate_only=False,
        timeout_ms=CREATE_TIMEOUT_MS,
    )
    (result,) = await relay_topics(
        node, "CreateTopics", message, named=[TopicRef(name)], timeout_ms=CREATE_TIMEOUT_MS
    )
    if name in node.image.topics or result.error_code is ErrorCode.NONE:
        return ErrorCode.NONE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
