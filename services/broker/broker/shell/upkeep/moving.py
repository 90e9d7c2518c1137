"""Moving: copies logs to other log directories, and lets the copies take their places (KIP-113).

Reads and syncs run in threads. Appends to a future log run on the loop, a chunk at a time, as those
of a follower do. Places change within one callback: no append comes in between.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final

from tidemark.model.topics import TopicPartition
from tidemark.runtime.telemetry import fields
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError

from broker.core.directory_move import (
    NEVER_CUT,
    Advance,
    Copy,
    Cut,
    FutureView,
    LogView,
    Phase,
    Restart,
    Step,
    Swap,
    Sync,
)
from broker.core.live_settings import LiveSettings
from broker.core.partition import Role
from broker.core.replication_throttle import ReplicationThrottle
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.directory_moves import DirectoryMoves
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.replica_move import ReplicaMove
from broker.shell.settings import BrokerSettings
from broker.storage.directory import LogDamagedError
from broker.storage.log import Log
from broker.storage.log_copy import Chunk, append_chunk, begin_at, is_void, read_chunk
from broker.storage.log_manager import LogManager
from broker.storage.moved_logs import change_places
from broker.storage.segment_map import LogRead

log: Final = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1024 * 1024
"""Bytes that are read in a thread and appended on the loop at a time."""
RETRY_MS: Final = 1_000
"""Pause of a move that cannot go on: for want of space, or of a log without damage."""

OnMoved = Callable[[TopicPartition, LogManager, LogManager], None]


class _PutOffError(Exception):
    """The move cannot go on now. What is at fault was noted."""


class Moving:
    """Workers, each of which copies one log at a time."""

    def __init__(
        self,
        facts: BrokerFacts,
        settings: BrokerSettings,
        moves: DirectoryMoves,
        *,
        disks: DiskHealth,
        group_commits: GroupCommits,
        on_moved: OnMoved,
    ) -> None:
        """``on_moved`` is called when a log has moved from one directory to another."""
        self._clock = facts.clock
        self._moves = moves
        self._disks = disks
        self._group_commits = group_commits
        self._on_moved = on_moved
        wanted = facts.config.num_replica_alter_log_dirs_threads
        self._workers = len(disks.log_managers) if wanted is None else wanted
        self._throttle = ReplicationThrottle(
            settings.now.replica_alter_log_dirs_io_max_bytes_per_second
        )
        settings.follow(self._configure)

    def _configure(self, now: LiveSettings) -> None:
        self._throttle.set_rate(now.replica_alter_log_dirs_io_max_bytes_per_second)

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the workers; the caller cancels them."""
        return [tasks.create_task(self._work(), name="move") for _ in range(self._workers)]

    async def _work(self) -> None:
        while True:
            hosted, move = await self._moves.next_due()
            try:
                await self._move(hosted, move)
            except _PutOffError:
                move.plan.put_off()
                self._count_synced(hosted, move)
                await asyncio.sleep(RETRY_MS / 1_000)
                self._moves.put_off(hosted, move)

    async def _move(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """Go on until the replica has moved, or the move was given up."""
        while hosted.move is move:
            if hosted.partition.role is Role.FAILED or move.manager.failure is not None:
                self._moves.cancel(hosted)
                return
            self._expect_writable(hosted, move)
            step = move.plan.next_step(*_views(hosted, move))
            self._count_synced(hosted, move)
            if isinstance(step, Swap):
                await self._swap(hosted, move)
            elif isinstance(step, Sync):
                await self._sync(hosted, move)
            elif isinstance(step, Copy):
                await self._copy(hosted, move, step)
            elif isinstance(step, Cut):
                await self._cut(hosted, move, step)
            else:
                self._follow(hosted, move, step)

    def _count_synced(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """Let records count as synced that waited for a copy which does not close any longer."""
        is_closing = hosted.move is not move or move.plan.phase is Phase.CLOSING
        if not is_closing and hosted.partition.synced_end < hosted.log.synced_end:
            self._moves.tell_synced(hosted)

    def _expect_writable(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        """Raise _PutOffError while the move must wait. The last space of a directory is left to the
        partitions that are in it.
        """
        target = move.manager
        if target.fenced is not None or hosted.manager.fenced is not None or hosted.is_unsound:
            raise _PutOffError
        with self._writing(hosted, move):
            free_bytes = target.disk.free_bytes()
        if free_bytes < target.heal_free_bytes + CHUNK_BYTES:
            if not move.lacks_space:
                log.warning(
                    "move waits for space in its directory",
                    extra=fields(partition=str(hosted.topic_partition), free_bytes=free_bytes),
                )
            move.lacks_space = True
            raise _PutOffError
        move.lacks_space = False

    @contextlib.contextmanager
    def _writing(self, hosted: HostedPartition, move: ReplicaMove) -> Iterator[None]:
        """Handle errors of the future log. A damaged copy is made again."""
        try:
            yield
        except LogDamagedError as damage:
            self._moves.begin_again(hosted)
            raise _PutOffError from damage
        except DiskError as failure:
            self._disks.fence_directory(move.manager, failure)
            raise _PutOffError from failure

    # -- steps

    async def _cut(self, hosted: HostedPartition, move: ReplicaMove, step: Cut) -> None:
        """Cut the future log, as the log was."""
        source, future = hosted.log, move.future
        with self._writing(hosted, move):
            replay = future.history.begin_replay(step.end, future.log_end)
        if replay.is_long:
            await asyncio.to_thread(replay.run)
            if hosted.move is not move:
                return
        with self._writing(hosted, move), future.history.replayed(replay, future.log_end):
            future.truncate_to(step.end)
        if source.cut_to >= step.end:  # otherwise the log was cut again meanwhile
            source.cut_to = NEVER_CUT

    def _follow(self, hosted: HostedPartition, move: ReplicaMove, step: Step) -> None:
        """Let the future log start later, as the log does."""
        future = move.future
        with self._writing(hosted, move):
            if isinstance(step, Restart):
                begin_at(future, hosted.log, step.start)
            elif isinstance(step, Advance):
                future.advance_log_start(step.start)
                future.apply_retention(self._clock.wall_ms(), high_watermark=future.log_start)

    async def _copy(self, hosted: HostedPartition, move: ReplicaMove, step: Copy) -> None:
        rest_ms = 0 if step.at_once else self._throttle.rest_ms(self._clock.now_ms())
        if rest_ms:
            await asyncio.sleep(rest_ms / 1_000)
            return
        source = hosted.log
        source.cut_to = NEVER_CUT  # nothing that was cut is in the copy: later cuts count
        read = self._read(hosted, step.offset)
        chunk = await self._chunk(hosted, read, step)
        if hosted.move is not move or is_void(read) or source.cut_to <= chunk.infos[-1].last:
            return  # the next step sees what became of it
        with self._writing(hosted, move):
            append_chunk(move.future, chunk, self._clock.wall_ms())
        move.plan.copied(len(chunk.records))
        self._throttle.transferred(len(chunk.records), self._clock.now_ms())

    def _read(self, hosted: HostedPartition, offset: int) -> LogRead:
        try:
            return hosted.log.read(offset, CHUNK_BYTES, end=hosted.log.log_end)
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
            raise _PutOffError from damage
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            raise _PutOffError from failure

    async def _chunk(self, hosted: HostedPartition, read: LogRead, step: Copy) -> Chunk:
        """Return the batches of a read. Does not suspend if the step is ``at_once``."""
        source = hosted.log
        try:
            chunk = read_chunk(read) if step.at_once else await asyncio.to_thread(read_chunk, read)
        except FrameError as problem:
            if not is_void(read) and hosted.log is source:
                self._disks.found_damage(hosted, str(problem), step.offset)
            raise _PutOffError from problem
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            raise _PutOffError from failure
        if not chunk.infos:
            raise _PutOffError
        return chunk

    async def _sync(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        futures = move.manager.futures
        with self._writing(hosted, move):
            begun = futures.begin_sync(move.future)
        await asyncio.to_thread(begun.run)
        failure = futures.finish_sync(move.future)
        if failure is not None:
            self._disks.fence_directory(move.manager, failure)
            raise _PutOffError from failure
        if hosted.move is move:
            move.plan.synced()
            self._moves.tell_synced(hosted)

    # -- the change of places

    async def _swap(self, hosted: HostedPartition, move: ReplicaMove) -> None:
        source, old = hosted.manager, hosted.log
        try:
            future = change_places(source, move.manager, old, hosted.partition.high_watermark)
        except DiskError as failure:
            self._disks.fence_directory(move.manager, failure)
            self._moves.cancel(hosted)
            return
        hosted.log, hosted.manager = future, move.manager
        future.update_config(old.config)
        self._moves.ended(hosted)
        self._on_moved(hosted.topic_partition, source, move.manager)
        if hosted.partition.limits.flush_group:
            self._group_commits.request()
        log.info(
            "moved to another log directory",
            extra=fields(
                partition=str(hosted.topic_partition), directory=move.manager.stamp.directory_id
            ),
        )
        await self._remove_old(source, move.manager, old)

    async def _remove_old(self, source: LogManager, target: LogManager, old: Log) -> None:
        """Remove the old log once its replacement has its name on disk."""
        if not await self._names_synced(target):
            return
        one = old.topic_partition
        try:
            if one not in source.logs and source.disk.exists(old.directory):
                source.remove_files(old, self._clock.wall_ms())
        except DiskError as failure:
            self._disks.fence_directory(source, failure)
            return
        if await self._names_synced(source):
            try:
                target.futures.forget_sources(one)
            except DiskError as failure:
                self._disks.fence_directory(target, failure)

    async def _names_synced(self, manager: LogManager) -> bool:
        try:
            await asyncio.to_thread(manager.disk.sync_directory, "")
        except DiskError as failure:
            self._disks.fence_directory(manager, failure)
            return False
        return True


def _views(hosted: HostedPartition, move: ReplicaMove) -> tuple[LogView, FutureView]:
    source, future = hosted.log, move.future
    return (
        LogView(source.log_start, source.log_end, hosted.partition.synced_end, source.cut_to),
        FutureView(future.log_start, future.log_end, future.synced_end),
    )
