"""DirectoryMoves: replicas of this broker that move between its log directories (KIP-113).

Requests begin and cancel moves here. ``Moving`` (upkeep) copies the logs and lets the copies take
their places.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.model.topics import TopicPartition
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError

from broker.core.directory_move import NEVER_CUT, Place, Verdict, Wanted, common_end, judge
from broker.core.partition import Role
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.replica_move import ReplicaMove
from broker.shell.partitions.table import PartitionTable
from broker.storage.directory import LogDamagedError
from broker.storage.directory_names import DIRECTORY_NAME_MAX, future_name
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

log: Final = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 10_000
"""Directories that are remembered for partitions that are not here yet; the oldest give way."""


class DirectoryMoves:
    """Moves of one broker, and directories chosen for partitions that are not here yet."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        *,
        table: PartitionTable,
        disks: DiskHealth,
        log_moves: LogMoves,
        on_replica_synced: Callable[[HostedPartition], None],
    ) -> None:
        """``on_replica_synced`` is called when more of a followed log counts as synced."""
        self._config = facts.config
        self._clock = facts.clock
        self._metadata = metadata
        self._table = table
        self._disks = disks
        self._log_moves = log_moves
        self._on_replica_synced = on_replica_synced
        self._preferred: dict[TopicPartition, LogManager] = {}
        self._due: dict[ReplicaMove, HostedPartition] = {}
        """Moves that no worker is at, the one that waits longest first."""
        self._news = asyncio.Event()

    # -- requests

    def alter(self, path: str, topic: str, partition: int) -> ErrorCode:
        """Let a replica be in the directory at ``path``, an absolute path, from now on."""
        topic_partition = TopicPartition(topic, partition)
        target = self._directories().get(path)
        hosted = self._table.by_name.get(topic_partition)
        verdict = judge(self._wanted(path, target, topic_partition, hosted))
        if verdict.remembers:
            assert target is not None, "an unknown directory is refused first"
            self._remember(topic_partition, target)
        if hosted is None or target is None:
            return verdict.error_code
        return self._carry_out(hosted, target, verdict)

    def _carry_out(
        self, hosted: HostedPartition, target: LogManager, verdict: Verdict
    ) -> ErrorCode:
        if verdict.cancels:
            self.cancel(hosted)
        if verdict.begins:
            try:
                self._begin(hosted, target)
            except DiskError as failure:
                self._disks.fence_directory(target, failure)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return verdict.error_code

    def _directories(self) -> Mapping[str, LogManager | None]:
        """Return the directories of log.dirs by absolute path; None for one that did not open."""
        managers = iter(self._disks.log_managers)
        return {
            os.path.abspath(path): None
            if path in self._disks.failed_directories
            else next(managers, None)
            for path in self._config.log_dirs
        }

    def _wanted(
        self,
        path: str,
        target: LogManager | None,
        topic_partition: TopicPartition,
        hosted: HostedPartition | None,
    ) -> Wanted:
        topic = self._metadata.image.topics.get(topic_partition.topic)
        moving = None if hosted is None else hosted.move
        if hosted is not None:
            is_failed = hosted.partition.role is Role.FAILED
            place, topic_id = Place.FAILED if is_failed else Place.HERE, hosted.topic_id
        else:
            is_known = topic is not None and 0 <= topic_partition.partition < len(topic.partitions)
            place, topic_id = Place.NOT_YET if is_known else Place.UNKNOWN, NO_TOPIC_ID
        name = future_name(topic_partition, topic_id)
        return Wanted(
            place,
            name_fits=len(name) <= DIRECTORY_NAME_MAX,
            is_listed=path in self._directories(),
            is_online=target is not None and target.fenced is None,
            all_online=not self._disks.lacks_directory,
            is_current=hosted is not None and hosted.manager is target,
            is_future=moving is not None and moving.manager is target,
            moves=moving is not None,
        )

    def _begin(self, hosted: HostedPartition, target: LogManager) -> None:
        """Create the future log. Raises DiskError."""
        source, one = hosted.manager, hosted.topic_partition
        sources = {source.stamp.directory_id, *source.futures.moved_from.get(one, ())}
        future = target.futures.create(
            one,
            hosted.topic_id,
            hosted.log.config,
            sources - {target.stamp.directory_id},
            self._clock.wall_ms(),
        )
        self._started(hosted, target, future)

    def _started(self, hosted: HostedPartition, target: LogManager, future: Log) -> None:
        hosted.log.cut_to = NEVER_CUT
        hosted.move = ReplicaMove(target, future)
        self.put_off(hosted, hosted.move)
        log.info(
            "move to another log directory begun",
            extra=fields(
                partition=str(hosted.topic_partition),
                directory=target.stamp.directory_id,
                bytes=hosted.log.size_bytes,
            ),
        )

    def begin_again(self, hosted: HostedPartition) -> None:
        """Make a copy again from the start: what there is of it is damaged."""
        move = hosted.move
        if move is not None:
            self._carry_out(
                hosted, move.manager, Verdict(ErrorCode.NONE, cancels=True, begins=True)
            )

    def cancel(self, hosted: HostedPartition) -> None:
        """Give up the move of a partition, if it has one, and remove its future log."""
        move = hosted.move
        if move is None:
            return
        self._due.pop(move, None)
        self.ended(hosted)
        if move.manager.failure is None:
            self._discard(move.manager, hosted.topic_partition)
        else:
            move.manager.futures.forget(hosted.topic_partition)
        log.info("move given up", extra=fields(partition=str(hosted.topic_partition)))

    def ended(self, hosted: HostedPartition) -> None:
        """Note that a partition moves no longer."""
        hosted.move = None
        self.tell_synced(hosted)

    def tell_synced(self, hosted: HostedPartition) -> None:
        """Note that more of a log may count as synced."""
        self._log_moves.synced(hosted, hosted.log.synced_end)
        if hosted.partition.role is Role.FOLLOWER:
            self._on_replica_synced(hosted)

    # -- partitions that are not here yet

    def _remember(self, topic_partition: TopicPartition, target: LogManager) -> None:
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = target
        if len(self._preferred) > REMEMBERED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def directory_for_new(self, topic_partition: TopicPartition) -> LogManager | None:
        """Return the directory that was chosen for a log which is now created, or None. What an
        earlier replica left of a move is removed.
        """
        for manager in self._disks.log_managers:
            if topic_partition in manager.futures.logs and manager.fenced is None:
                self._discard(manager, topic_partition)
        return self._preferred.pop(topic_partition, None)

    def _discard(self, manager: LogManager, topic_partition: TopicPartition) -> None:
        try:
            manager.futures.discard(topic_partition)
        except DiskError as failure:
            self._disks.fence_directory(manager, failure)

    # -- after a start

    def resume(self, hosted: HostedPartition) -> None:
        """Go on with the move that the last process had begun, if any."""
        one = hosted.topic_partition
        for manager in self._disks.log_managers:
            future = manager.futures.logs.get(one)
            if future is None:
                continue
            try:
                if not self._resumed(hosted, manager, future):
                    manager.futures.discard(one)
            except DiskError as failure:
                self._disks.fence_directory(manager, failure)

    def _resumed(self, hosted: HostedPartition, target: LogManager, future: Log) -> bool:
        """Go on with a future log; return False if it is of no use. Raises DiskError."""
        is_failed = hosted.partition.role is Role.FAILED
        if hosted.move is not None or is_failed or future.topic_id != hosted.topic_id:
            return False
        epochs, end = hosted.log.epochs, hosted.log.log_end
        try:
            future.truncate_to(common_end(epochs, end, future.epochs, future.log_end))
        except LogDamagedError:
            return False
        future.update_config(hosted.log.config)
        self._started(hosted, target, future)
        return True

    def discard_unknown(self) -> None:
        """Remove future logs of partitions that are not here, after the first image."""
        for manager in self._disks.log_managers:
            for one in [one for one in manager.futures.logs if one not in self._table.by_name]:
                self._discard(manager, one)

    # -- for those who copy

    async def next_due(self) -> tuple[HostedPartition, ReplicaMove]:
        """Wait for a move to go on with."""
        while not self._due:
            self._news.clear()
            await self._news.wait()
        move = next(iter(self._due))
        return self._due.pop(move), move

    def put_off(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """Go on with a move behind the others, unless it was given up."""
        if hosted.move is move:
            self._due[move] = hosted
            self._news.set()
