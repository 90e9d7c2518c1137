"""Calls of ``tidemark cluster``."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tidemark.cli.admin_client import open_cluster_admin
from tidemark.cli.cluster.replica_bounds import bounds_of, with_all_records
from tidemark.cli.failure import CommandError
from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.client.admin.types import ConfigResource
from tidemark.client.wire.metadata_cache import PartitionView
from tidemark.model.errors import ErrorCode
from tidemark.model.restart_risks import PartitionState, restart_risks
from tidemark.model.topics import TopicPartition

Row = dict[str, Any]
_MIN_ISR: Final = "min.insync.replicas"


async def brokers(bootstrap: str) -> list[Row]:
    """Return a row for each live broker, with the numbers of its leaderships and replicas."""
    async with open_cluster_admin(bootstrap) as admin:
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
    """Return what is wrong: brokers that are not alive, partitions without a leader, below their
    min.insync.replicas, or with replicas that are not in sync.
    """
    async with open_cluster_admin(bootstrap) as admin:
        cluster = await admin.describe_cluster()
        states = await partition_states(admin)
    alive = [broker.broker_id for broker in cluster.brokers]
    used = {broker_id for each in states for broker_id in each.replicas}
    led = [each for each in states if each.leader is not None]
    found = {
        "missing_brokers": sorted(used.difference(alive)),
        "leaderless": [str(each.partition) for each in states if each.leader is None],
        "below_min_isr": [str(each.partition) for each in led if len(each.isr) < each.min_isr],
        "under_replicated": [
            str(each.partition) for each in led if len(each.isr) < len(each.replicas)
        ],
    }
    return {
        "cluster_id": cluster.cluster_id,
        "brokers": alive,
        "partitions": len(states),
        **found,
        "healthy": not any(found.values()),
    }


async def partition_states(admin: ClusterAdmin) -> list[PartitionState]:
    """Return the state of every partition, with the min.insync.replicas of its topic."""
    topics = await admin.describe_topics()
    resources = [ConfigResource("topic", name) for name in topics]
    configs = await admin.describe_configs(resources) if resources else {}
    states = []
    for name in sorted(topics):
        entry = configs[ConfigResource("topic", name)].get(_MIN_ISR)
        for each in topics[name].partitions:
            least = int(entry.value) if entry is not None and entry.value else 1
            states.append(
                PartitionState(
                    TopicPartition(name, each.partition),
                    each.leader if each.leader >= 0 else None,
                    each.replicas,
                    each.isr,
                    # A topic with fewer replicas than its minimum can never have more in sync.
                    min(least, len(each.replicas)),
                )
            )
    return states


async def can_restart(bootstrap: str, broker_id: int) -> Row:
    """Return the risks of a restart of one broker. Raises CommandError for an unknown one."""
    async with open_cluster_admin(bootstrap) as admin:
        alive = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
        states = await partition_states(admin)
        used = {each for state in states for each in state.replicas}
        if broker_id not in {*alive, *used}:
            raise CommandError(
                f"there is no broker {broker_id}",
                hint=f"the brokers are {', '.join(map(str, sorted({*alive, *used})))}",
            )
        followers = {
            state.partition: [one for one in state.isr if one != broker_id]
            for state in states
            if state.leader == broker_id
        }
        caught_up = await with_all_records(partial(bounds_of, admin), broker_id, followers)
    known = [replace(state, caught_up=caught_up.get(state.partition)) for state in states]
    risks = restart_risks(broker_id, known)
    return {
        "broker": broker_id,
        "can_restart": not risks,
        "partitions": sum(broker_id in state.replicas for state in states),
        "risks": [
            {
                "risk": risk.kind.value,
                "topic": risk.partition.topic,
                "partition": risk.partition.partition,
                "meaning": risk.meaning,
            }
            for risk in risks
        ],
    }


async def log_dirs(bootstrap: str, broker_ids: Sequence[int]) -> list[Row]:
    """Return a row for each log directory, with the sizes of its replicas."""
    async with open_cluster_admin(bootstrap) as admin:
        directories = await admin.describe_log_dirs(broker_ids or None)
    return [
        {
            "broker": each.broker_id,
            "path": each.path,
            "state": "online" if not each.error_code else ErrorCode(each.error_code).name,
            "total_bytes": each.total_bytes if each.total_bytes >= 0 else None,
            "usable_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
            "replicas": len(each.replicas),
            "log_bytes": sum(replica.size_bytes for replica in each.replicas.values()),
            "logs": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "bytes": replica.size_bytes,
                    "behind": replica.offset_lag,
                    "future": replica.is_future,
                }
                for partition, replica in sorted(each.replicas.items())
            ],
        }
        for each in directories
    ]


async def unregister(bootstrap: str, broker_id: int) -> None:
    """Remove the registration of a broker."""
    async with open_cluster_admin(bootstrap) as admin:
        await admin.unregister_broker(broker_id)


async def elect_leaders(
    bootstrap: str, partitions: Sequence[TopicPartition] | None, *, unclean: bool
) -> list[Row]:
    """Return a row for each of ``partitions``; with None, for all that needed an election."""
    async with open_cluster_admin(bootstrap) as admin:
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
