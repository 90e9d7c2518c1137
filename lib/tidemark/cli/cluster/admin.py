"""Calls of ``tidemark cluster``."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.cli.admin_client import open_admin
from tidemark.client.wire.metadata_cache import PartitionView
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

Row = dict[str, Any]


async def brokers(bootstrap: str) -> list[Row]:
    """Return a row for each live broker, with the numbers of its leaderships and replicas."""
    async with open_admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        partitions = [one for _, one in _partitions(await admin.describe_topics())]
    return [
        {
            "broker": broker.broker_id,
            "address": str(broker.address),
            "rack": broker.rack,
            "leads": sum(one.leader == broker.broker_id for one in partitions),
            "replicas": sum(broker.broker_id in one.replicas for one in partitions),
            "in_sync": sum(broker.broker_id in one.isr for one in partitions),
        }
        for broker in cluster.brokers
    ]


async def health(bootstrap: str) -> Row:
    """Return the partitions without a leader, and those with replicas that are not in sync."""
    async with open_admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        partitions = list(_partitions(await admin.describe_topics()))
    leaderless = [name for name, one in partitions if one.leader < 0]
    under_replicated = [
        name for name, one in partitions if one.leader >= 0 and len(one.isr) < len(one.replicas)
    ]
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": [broker.broker_id for broker in cluster.brokers],
        "partitions": len(partitions),
        "leaderless": leaderless,
        "under_replicated": under_replicated,
        "healthy": not leaderless and not under_replicated,
    }


async def elect_leaders(
    bootstrap: str, partitions: Sequence[TopicPartition] | None, *, unclean: bool
) -> list[Row]:
    """Return a row for each of ``partitions``; with None, for all that needed an election."""
    async with open_admin(bootstrap) as admin:
        results = await admin.elect_leaders(partitions, unclean=unclean)
    return [
        {"topic": topic, "partition": partition, "result": _word(code), "error": code.name}
        for (topic, partition), code in sorted(results.items())
    ]


def _word(code: ErrorCode) -> str:
    if code is ErrorCode.NONE:
        return "elected"
    return "not needed" if code is ErrorCode.ELECTION_NOT_NEEDED else "failed"


def _partitions(topics: dict[str, Any]) -> Iterator[tuple[str, PartitionView]]:
    for name in sorted(topics):
        for one in topics[name].partitions:
            yield f"{name}-{one.partition}", one
