"""Moves of replicas between the log directories of a broker (KIP-113)."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.cli.admin_client import open_cluster_admin
from tidemark.cli.failure import CommandError
from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

POLL_S: Final = 0.5
_HINTS: Final = {
    ErrorCode.LOG_DIR_NOT_FOUND: "name a directory as `tidemark cluster log-dirs` shows it",
    ErrorCode.KAFKA_STORAGE_ERROR: "a directory of the broker is out of service:"
    " `tidemark cluster log-dirs` shows which",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user needs Alter on the cluster",
}


async def move(
    bootstrap: str, broker: int, path: str, partitions: Sequence[TopicPartition], *, wait: bool
) -> list[TopicPartition]:
    """Start the moves of a broker's replicas to a directory, and return those whose replica is not
    there yet: it will be created there. With ``wait`` return when the others have moved. Raises
    CommandError.
    """
    async with open_cluster_admin(bootstrap) as admin:
        later = await order(admin, {(one, broker): path for one in partitions})
        moving = {one for one in partitions if (one, broker) not in later}
        while wait and moving:
            moving = await _moving(admin, broker, path, moving)
            await asyncio.sleep(POLL_S if moving else 0)
    return [one for one, _ in later]


async def _moving(
    admin: ClusterAdmin, broker: int, path: str, partitions: set[TopicPartition]
) -> set[TopicPartition]:
    """Return the partitions whose log is not in the directory yet. Raises CommandError if one does
    not move there any longer.
    """
    directories = {each.path: each for each in await admin.describe_log_dirs([broker])}
    there = directories[path].replicas if path in directories else {}
    lost = sorted(partitions - there.keys())
    if lost:
        raise CommandError(
            f"{lost[0]} does not move to {path} of broker {broker}",
            hint="its directory failed, or another command gave the replica another directory",
        )
    return {one for one in partitions if there[one].is_future}


async def order(
    admin: ClusterAdmin, directories: Mapping[tuple[TopicPartition, int], str]
) -> list[tuple[TopicPartition, int]]:
    """Send the moves to their brokers. Return those whose replica is not there yet, and will be
    created in its directory. Raises CommandError for the first one that is refused.
    """
    by_broker: dict[int, dict[TopicPartition, str]] = defaultdict(dict)
    for (partition, broker), path in directories.items():
        by_broker[broker][partition] = path
    later = []
    for broker, moves in by_broker.items():
        for partition, code in (await admin.alter_replica_log_dirs(broker, moves)).items():
            if code is ErrorCode.REPLICA_NOT_AVAILABLE:
                later.append((partition, broker))
            elif code is not ErrorCode.NONE:
                raise CommandError(
                    f"broker {broker} refuses to move {partition} to {moves[partition]}:"
                    f" {code.name}",
                    hint=_HINTS.get(code, "`tidemark topic describe` shows replicas"),
                )
    return later
