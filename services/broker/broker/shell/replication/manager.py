"""ReplicationManager: one fetcher for each leader and flush kind, over everything that this broker
follows.

Partitions with flush=group have a connection of their own. It waits for their group-commit round
before it fetches again, since only synced records count (ADR 0013).
"""

import asyncio
from typing import NamedTuple

from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage

from broker.core.partition import Role
from broker.core.replica_fetcher import PartitionKey
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.replication.fetcher import FetcherParts, LeaderFetcher
from broker.shell.replication.leader_connection import Connect
from broker.shell.replication.leader_stream import LeaderStream


class FetcherKey(NamedTuple):
    """Key of a connection."""

    leader: BrokerId
    flush_group: bool


class ReplicationManager:
    """Everything this broker follows. Called on the loop."""

    def __init__(self, parts: FetcherParts, connect: Connect = LeaderStream.open) -> None:
        self._parts = parts
        self._connect = connect
        self._fetchers: dict[FetcherKey, LeaderFetcher] = {}
        self._of: dict[PartitionKey, FetcherKey] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[FetcherKey, asyncio.Task[None]] = {}

    def apply(self, hosted: HostedPartition) -> None:
        """Follow the partition's leader from the present end; stop where there is none to
        follow.
        """
        partition = hosted.partition
        if partition.role is not Role.FOLLOWER:
            self.remove(hosted)
            return
        key = FetcherKey(partition.leader, partition.limits.flush_group)
        if self._of.get(_key(hosted)) not in (None, key):
            self.remove(hosted)
        self._of[_key(hosted)] = key
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = LeaderFetcher(
                self._parts, key.leader, flush_group=key.flush_group, connect=self._connect
            )
            self._start(key, fetcher)
        fetcher.add(hosted)

    def remove(self, hosted: HostedPartition) -> None:
        """Stop following a partition."""
        key = self._of.pop(_key(hosted), None)
        if key is not None:
            self._fetchers[key].remove(_key(hosted))

    def synced(self, hosted: HostedPartition) -> None:
        """Note that a flush round reached more of a partition: the next fetch reports it to the
        leader.
        """
        key = self._of.get(_key(hosted))
        if key is not None:
            self._fetchers[key].synced(hosted)

    def brokers_changed(self, image: ClusterImage) -> None:
        """Note that a leader may have another address, or be back."""
        for fetcher in self._fetchers.values():
            fetcher.leader_moved(image.brokers.get(fetcher.leader))

    async def run(self, stop: asyncio.Event) -> None:
        """Fetch until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for key, fetcher in self._fetchers.items():
                self._start(key, fetcher)
            await stop.wait()
            self._tasks = None
            for task in self._running.values():
                task.cancel()

    def _start(self, key: FetcherKey, fetcher: LeaderFetcher) -> None:
        if self._tasks is not None:
            name = f"replicate-from-{key.leader}" + ("-group" if key.flush_group else "")
            self._running[key] = self._tasks.create_task(fetcher.run(), name=name)


def _key(hosted: HostedPartition) -> PartitionKey:
    return hosted.topic_id, hosted.topic_partition.partition
