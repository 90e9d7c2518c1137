"""Starts and ends of replicas' own logs, and which replicas have all records of their leader."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.client.admin.types import ReplicaBounds
from tidemark.client.errors import ClientError
from tidemark.model.topics import TopicPartition

LOOKS: Final = 10
LOOK_S: Final = 0.1
"""Pause between two looks at replicas that lack records."""

Bounds = Mapping[TopicPartition, ReplicaBounds]
Ask = Callable[[int, Sequence[TopicPartition]], Awaitable[Bounds]]
"""Call that returns the bounds of replicas at a broker, without those that it does not report."""


async def bounds_of(
    admin: ClusterAdmin, broker: int, partitions: Sequence[TopicPartition]
) -> Bounds:
    """Return the bounds that a broker reports; {} if it does not respond."""
    try:
        return await admin.replica_bounds(broker, partitions)
    except ClientError:
        return {}


async def with_all_records(
    ask: Ask, leader: int, followers: Mapping[TopicPartition, Collection[int]]
) -> dict[TopicPartition, frozenset[int]]:
    """Return the followers that have all records which the leader had at the call. Partitions that
    the leader does not report are left out.

    Records are written meanwhile, so that a follower in sync may lack the latest ones at any time.
    Those that report so are asked again for a second, until one of each partition has them all.
    """
    reported = await ask(leader, list(followers)) if followers else {}
    behind = {name: set(followers[name]) for name in reported}
    found: dict[TopicPartition, frozenset[int]] = {}
    for look in range(LOOKS):
        asked: dict[int, list[TopicPartition]] = defaultdict(list)
        for name, left in behind.items():
            for follower in () if name in found else sorted(left):
                asked[follower].append(name)
        if look and asked:
            await asyncio.sleep(LOOK_S)
        for follower, names in asked.items():
            bounds = await ask(follower, names)
            for name in names:
                own = bounds.get(name)
                if own is None:
                    behind[name].discard(follower)
                elif own.log_end >= reported[name].log_end:
                    found[name] = found.get(name, frozenset()) | {follower}
    return {name: found.get(name, frozenset()) for name in reported}
