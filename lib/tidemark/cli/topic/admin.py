"""Calls of ``tidemark topic create|list|describe|alter|delete``, and rows of their results."""

from collections.abc import Mapping, Sequence

from tidemark.cli.admin_client import open_cluster_admin
from tidemark.cli.config.admin import look_before_unset
from tidemark.cli.output import Row
from tidemark.client.admin.types import AlterConfig, ConfigEntry, ConfigResource, NewTopic
from tidemark.client.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from tidemark.client.wire.metadata_cache import PartitionView
from tidemark.model.topics import topic_id_text

_SET_HERE = "topic"


async def create(
    bootstrap: str,
    topics: Sequence[NewTopic],
    rows: list[Row],
    *,
    validate_only: bool,
    if_not_exists: bool,
) -> None:
    """Create topics one by one, with a row for each that is created. Raises ClientError."""
    async with open_cluster_admin(bootstrap) as admin:
        for topic in topics:
            try:
                created = await admin.create_topics([topic], validate_only=validate_only)
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise
                rows.append({"topic": topic.name, "outcome": "exists"})
                continue
            rows += [
                {
                    "topic": each.topic,
                    "outcome": "valid" if validate_only else "created",
                    "partitions": each.partitions,
                    "replication_factor": each.replication_factor,
                    "topic_id": topic_id_text(each.topic_id),
                }
                for each in created.values()
            ]


async def list_all(bootstrap: str, *, internal: bool) -> list[Row]:
    """Return name, partitions, replicas and leaderless partitions of every topic."""
    async with open_cluster_admin(bootstrap) as admin:
        topics = await admin.describe_topics()
    return [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
            "leaderless": sum(each.leader < 0 for each in topic.partitions),
        }
        for name, topic in sorted(topics.items())
        if internal or not topic.is_internal
    ]


async def describe(bootstrap: str, names: Sequence[str], *, all_configs: bool) -> list[Row]:
    """Return a row for each topic, with its partitions and configuration. Raises
    UnknownTopicOrPartitionError.
    """
    resources = [ConfigResource("topic", name) for name in names]
    async with open_cluster_admin(bootstrap) as admin:
        topics = await admin.describe_topics(names)
        configs = await admin.describe_configs(resources)
    return [
        {
            "topic": name,
            "topic_id": topic_id_text(topics[name].topic_id),
            "internal": topics[name].is_internal,
            "configs": _configs(configs[ConfigResource("topic", name)], all_configs=all_configs),
            "partitions": [_partition(each) for each in topics[name].partitions],
        }
        for name in names
    ]


def _configs(entries: Mapping[str, ConfigEntry], *, all_configs: bool) -> dict[str, str | None]:
    """Return the values set on the topic itself, or all effective ones."""
    return {
        name: entry.value
        for name, entry in sorted(entries.items())
        if all_configs or entry.source == _SET_HERE
    }


def _partition(view: PartitionView) -> Row:
    return {
        "partition": view.partition,
        "leader": view.leader if view.leader >= 0 else None,
        "leader_epoch": view.leader_epoch,
        "replicas": list(view.replicas),
        "isr": list(view.isr),
    }


async def alter(
    bootstrap: str,
    name: str,
    *,
    partitions: int | None,
    changes: Sequence[AlterConfig],
    validate_only: bool,
) -> None:
    """Change the configuration, then the partitions: a failure of the first changes nothing."""
    async with open_cluster_admin(bootstrap) as admin:
        if changes:
            resource = ConfigResource("topic", name)
            await look_before_unset(admin, resource, changes)
            await admin.alter_configs({resource: changes}, validate_only=validate_only)
        if partitions is not None:
            await admin.create_partitions({name: partitions}, validate_only=validate_only)


async def delete(bootstrap: str, names: Sequence[str], rows: list[Row], *, if_exists: bool) -> None:
    """Delete topics one by one, with a row for each that is deleted. Raises
    UnknownTopicOrPartitionError unless ``if_exists``.
    """
    async with open_cluster_admin(bootstrap) as admin:
        for name in names:
            try:
                await admin.delete_topics([name])
            except UnknownTopicOrPartitionError:
                if not if_exists:
                    raise
                rows.append({"topic": name, "outcome": "not there"})
            else:
                rows.append({"topic": name, "outcome": "deleted"})
