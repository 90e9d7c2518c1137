"""Conversion of admin requests and responses between the client's types and wire fields. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidemark.client.admin.types import (
    CONFIG_SOURCES,
    CONFIG_TYPES,
    OPERATIONS,
    RESOURCE_TYPES,
    AlterConfig,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    LogDir,
    NewTopic,
    ProducerState,
    ReplicaLog,
)
from tidemark.kafka.long_tail import Struct
from tidemark.model.topics import TopicPartition

Fields = dict[str, Any]
_KINDS: Final = {number: kind for kind, number in RESOURCE_TYPES.items()}


def create_topics(topics: Iterable[NewTopic], *, timeout_ms: int, validate_only: bool) -> Fields:
    """Build CreateTopics. Assignments determine partition count and replication factor."""
    return {
        "topics": [
            {
                "name": topic.name,
                "num_partitions": -1 if topic.assignments else topic.partitions,
                "replication_factor": -1 if topic.assignments else topic.replication_factor,
                "assignments": [
                    {"partition_index": partition, "broker_ids": list(replicas)}
                    for partition, replicas in enumerate(topic.assignments)
                ],
                "configs": [
                    {"name": name, "value": value} for name, value in topic.configs.items()
                ],
            }
            for topic in topics
        ],
        "timeout": timeout_ms,
        "validate_only": validate_only,
    }


def delete_topics(topics: Sequence[str], *, timeout_ms: int) -> Fields:
    """Build DeleteTopics by name, in the fields of all versions."""
    return {
        "topics": [{"name": topic} for topic in topics],
        "topic_names": list(topics),
        "timeout": timeout_ms,
    }


def create_partitions(counts: Mapping[str, int], *, timeout_ms: int, validate_only: bool) -> Fields:
    """Build CreatePartitions; ``counts`` are totals."""
    return {
        "topics": [
            {"name": topic, "count": count, "assignments": None} for topic, count in counts.items()
        ],
        "timeout": timeout_ms,
        "validate_only": validate_only,
    }


def describe_configs(resources: Iterable[ConfigResource], *, with_documentation: bool) -> Fields:
    """Build DescribeConfigs for all keys of each resource."""
    return {
        "resources": [
            {
                "resource_type": RESOURCE_TYPES[resource.kind],
                "resource_name": resource.name,
                "configuration_keys": None,
            }
            for resource in resources
        ],
        "include_synonyms": True,
        "include_documentation": with_documentation,
    }


def read_configs(result: Struct) -> dict[str, ConfigEntry]:
    """Return one resource's settings by name."""
    return {
        config.name: ConfigEntry(
            name=config.name,
            value=config.value,
            source=CONFIG_SOURCES.get(config.config_source, "unknown"),
            kind=CONFIG_TYPES.get(config.config_type, "unknown"),
            is_read_only=config.read_only,
            is_sensitive=config.is_sensitive,
            synonyms=tuple(
                ConfigSynonym(each.name, each.value, CONFIG_SOURCES.get(each.source, "unknown"))
                for each in config.synonyms
            ),
            documentation=config.documentation,
        )
        for config in result.configs
    }


def read_resource(result: Struct) -> ConfigResource:
    """Return the resource of a result."""
    return ConfigResource(_KINDS.get(result.resource_type, "topic"), result.resource_name)  # type: ignore[arg-type]


def alter_configs(
    changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool
) -> Fields:
    """Build IncrementalAlterConfigs (KIP-339)."""
    return {
        "resources": [
            {
                "resource_type": RESOURCE_TYPES[resource.kind],
                "resource_name": resource.name,
                "configs": [
                    {
                        "name": change.name,
                        "config_operation": OPERATIONS[change.operation],
                        "value": change.value,
                    }
                    for change in each
                ],
            }
            for resource, each in changes.items()
        ],
        "validate_only": validate_only,
    }


def delete_records(offsets: Mapping[TopicPartition, int], *, timeout_ms: int) -> Fields:
    """Build DeleteRecords below each offset; -1 is the high watermark."""
    by_topic: dict[str, list[Fields]] = defaultdict(list)
    for partition, offset in offsets.items():
        by_topic[partition.topic].append({"partition_index": partition.partition, "offset": offset})
    return {
        "topics": [{"name": topic, "partitions": each} for topic, each in by_topic.items()],
        "timeout": timeout_ms,
    }


def describe_producers(partitions: Iterable[TopicPartition]) -> Fields:
    """Build DescribeProducers."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    return {
        "topics": [{"name": topic, "partition_indexes": each} for topic, each in by_topic.items()]
    }


def read_producers(result: Struct) -> list[ProducerState]:
    """Return the producers of one partition."""
    return [
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in result.active_producers
    ]


def alter_partition_reassignments(
    moves: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool,
    timeout_ms: int,
) -> Fields:
    """Build AlterPartitionReassignments (KIP-455). None as replicas cancels a move."""
    by_topic: dict[str, list[Fields]] = defaultdict(list)
    for (topic, partition), replicas in moves.items():
        wanted = None if replicas is None else list(replicas)
        by_topic[topic].append({"partition_index": partition, "replicas": wanted})
    return {
        "allow_replication_factor_change": allow_replication_factor_change,
        "topics": [{"name": topic, "partitions": each} for topic, each in by_topic.items()],
        "timeout": timeout_ms,
    }


def list_partition_reassignments(
    partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> Fields:
    """Build ListPartitionReassignments; None selects all partitions."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions or ():
        by_topic[topic].append(partition)
    named = [{"name": topic, "partition_indexes": each} for topic, each in by_topic.items()]
    return {"topics": None if partitions is None else named, "timeout": timeout_ms}


def alter_replica_log_dirs(moves: Mapping[TopicPartition, str]) -> Fields:
    """Build AlterReplicaLogDirs (KIP-113), given the directory of each partition."""
    by_path: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), path in moves.items():
        by_path.setdefault(path, {}).setdefault(topic, []).append(partition)
    return {
        "dirs": [
            {
                "path": path,
                "topics": [{"name": topic, "partitions": each} for topic, each in topics.items()],
            }
            for path, topics in by_path.items()
        ]
    }


def read_log_dirs(broker_id: int, answer: Struct) -> list[LogDir]:
    """Return one broker's log directories."""
    return [
        LogDir(
            broker_id,
            result.log_dir,
            result.error_code,
            result.total_bytes,
            result.usable_bytes,
            {
                TopicPartition(topic.name, each.partition_index): ReplicaLog(
                    each.partition_size, each.offset_lag, each.is_future_key
                )
                for topic in result.topics
                for each in topic.partitions
            },
        )
        for result in answer.results
    ]
