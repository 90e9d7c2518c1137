"""Maintenance: flush rounds, checkpoints, retention, lost indexes, healing, expiry. Loops of the
broker's TaskGroup.

Decisions and all changes of a log happen on the loop; threads only sync files, walk them for
indexes, and remove those that have left the logs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError, ExhaustedError

from broker.core.failed_directories import have_all_failed, may_end
from broker.core.partition import Role
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.hosting import Hosting
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.replica_reports import ReplicaReports
from broker.shell.settings import BrokerSettings
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

FLUSH_LOOK_MS = 1_000
"""Interval of the look at flush.ms and flush.messages; a look that finds nothing is cheap."""
HEAL_INTERVAL_MS = 1_000
REMOVAL_INTERVAL_MS = 1_000
FAILED_REPORT_MS = 10_000
"""Time for which the end of a broker without a usable directory waits for the controller's
answer.
"""
EXPIRED_AT_ONCE = 5_000
"""Producers that are looked at in one step: some milliseconds."""


class Maintenance:
    """Loops over one broker's log directories."""

    def __init__(
        self,
        facts: BrokerFacts,
        hosting: Hosting,
        reports: ReplicaReports,
        settings: BrokerSettings,
        *,
        table: PartitionTable,
        disks: DiskHealth,
        log_moves: LogMoves,
        group_commits: GroupCommits,
        counters: BrokerCounters,
        on_replica_synced: Callable[[HostedPartition], None],
    ) -> None:
        """``on_replica_synced`` is called when a flush round reached more of a followed log."""
        self._config = facts.config
        self._clock = facts.clock
        self._table = table
        self._disks = disks
        self._log_moves = log_moves
        self._group_commits = group_commits
        self._counters = counters
        self._on_replica_synced = on_replica_synced
        self._hosting = hosting
        self._rounds = {manager: asyncio.Lock() for manager in disks.log_managers}
        """A manager has one flush round at a time; the next one waits for it."""
        self._reports = reports
        self._settings = settings

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start every loop; the caller cancels them."""
        config, managers = self._config, self._disks.log_managers
        flush_ms = min(config.log_flush_interval_ms, FLUSH_LOOK_MS)
        # A disk that hangs, as many do before they fail, holds up only its own rounds.
        flushes = [self._flush_groups(one) for one in managers]
        flushes += [
            self._every(flush_ms, self._flush_all, (one,), also_full=True) for one in managers
        ]
        loops = [
            *(tasks.create_task(one, name="flush") for one in flushes),
            *(tasks.create_task(self._removals(one), name="removals") for one in managers),
            *(tasks.create_task(self._make_indexes(one), name="index-repair") for one in managers),
            tasks.create_task(self._heal(), name="heal"),
            tasks.create_task(self._hosting.repair(), name="repair"),
            tasks.create_task(self._reports.run(), name="replica-reports"),
            tasks.create_task(self._expire_producers(), name="expire-producers"),
            tasks.create_task(
                self._every(
                    config.log_flush_offset_checkpoint_interval_ms, self._checkpoint, managers
                ),
                name="checkpoint",
            ),
            tasks.create_task(
                self._every(config.log_retention_check_interval_ms, self._upkeep, managers),
                name="retention",
            ),
        ]
        return loops

    async def _every(
        self,
        interval_ms: int,
        work: Callable[[LogManager], Awaitable[None]],
        managers: Sequence[LogManager],
        *,
        also_full: bool = False,
    ) -> None:
        """Do it for each directory in service; ``also_full``: it needs no space."""
        while True:
            await asyncio.sleep(interval_ms / 1_000)
            for manager in managers:
                if manager.fenced is not None and not (also_full and manager.is_full):
                    continue
                try:
                    await work(manager)
                except DiskError as failure:
                    self._disks.fence_directory(manager, failure)

    # -- flushing

    async def _flush_groups(self, manager: LogManager) -> None:
        """Run rounds of group commit: each covers everything written since the last one began."""
        pause_s = self._config.log_flush_group_interval_ms / 1_000
        while True:
            await self._group_commits.wait(manager)
            if pause_s:
                await asyncio.sleep(pause_s)
            if manager.fenced is None or manager.is_full:
                await self._flush_round(manager, only_group=True)

    async def _flush_round(self, manager: LogManager, *, only_group: bool) -> None:
        async with self._rounds[manager]:
            await self._flush(manager, only_group=only_group)

    async def _flush(self, manager: LogManager, *, only_group: bool) -> None:
        try:
            begun = manager.begin_flush(only_group=only_group, now_ms=self._clock.wall_ms())
            if begun is None:
                return
            began_s = self._clock.precise_s()
            await asyncio.to_thread(begun.run)
            seconds = self._clock.precise_s() - began_s
            self._counters.flush_seconds.at().observe(seconds)
            self._counters.flush_errors += begun.error is not None
            finished = manager.finish_flush(begun)
            if begun.error is not None:
                self._disks.fence_directory(manager, begun.error)
            for flushed, end in finished:
                hosted = self._table.by_name.get(flushed.topic_partition)
                if hosted is not None and hosted.log is flushed:
                    self._log_moves.synced(hosted, end)
                    if hosted.partition.role is Role.FOLLOWER:
                        self._on_replica_synced(hosted)
        except DiskError as failure:
            self._disks.fence_directory(manager, failure)

    async def _flush_all(self, manager: LogManager) -> None:
        await self._flush_round(manager, only_group=False)

    # -- keeping

    async def _checkpoint(self, manager: LogManager) -> None:
        manager.checkpoint(self._high_watermarks(manager))

    async def _upkeep(self, manager: LogManager) -> None:
        """Apply rolls and retention log by log, and note the partitions whose logs begin later."""
        for kept in manager.upkeep(self._clock.wall_ms(), self._high_watermark):
            hosted = self._hosted(kept)
            if hosted is not None:
                self._log_moves.log_start_moved(hosted)
            await asyncio.sleep(0)

    async def _removals(self, manager: LogManager) -> None:
        """Remove what is due; also in a full directory, which that may heal."""
        while True:
            await asyncio.sleep(REMOVAL_INTERVAL_MS / 1_000)
            try:
                await self._remove(manager)
            except DiskError as failure:
                self._disks.fence_directory(manager, failure)

    async def _remove(self, manager: LogManager) -> None:
        """Remove files and directories that are due, in a thread."""
        begun = manager.begin_removals(self._clock.wall_ms())
        if begun is None:
            return
        try:
            await asyncio.to_thread(begun.run)
        finally:
            begun.stop()  # the broker may stop meanwhile
        manager.finish_removals(begun)

    async def _make_indexes(self, manager: LogManager) -> None:
        """Make indexes again that were lost, one after the other; each is walked in a thread."""
        repairs, is_wanted = manager.index_repairs, asyncio.Event()
        repairs.on_wanted = is_wanted.set
        while True:
            is_wanted.clear()
            try:
                while (begun := repairs.begin()) is not None:
                    await asyncio.to_thread(begun.run)
                    repairs.finish(begun)
            except DiskError as failure:
                self._disks.fence_directory(manager, failure)
                if isinstance(failure, ExhaustedError):
                    await asyncio.sleep(HEAL_INTERVAL_MS / 1_000)
                    continue
            await is_wanted.wait()

    def _hosted(self, kept: Log) -> HostedPartition | None:
        hosted = self._table.by_name.get(kept.topic_partition)
        return hosted if hosted is not None and hosted.log is kept else None

    def _high_watermark(self, kept: Log) -> int:
        """Return the high watermark up to which retention may remove; 0 if it is not known."""
        hosted = self._hosted(kept)
        return 0 if hosted is None else hosted.partition.high_watermark

    def _high_watermarks(self, manager: LogManager) -> dict[TopicPartition, int]:
        return {
            hosted.topic_partition: hosted.partition.high_watermark
            for hosted in self._table.by_name.values()
            if hosted.manager is manager
        }

    # -- healing

    async def _heal(self) -> None:
        """Return a full disk that has space again to service. Raises ServiceError when no disk is
        left.
        """
        while True:
            await asyncio.sleep(HEAL_INTERVAL_MS / 1_000)
            await self._hosting.retry_due()
            for manager in self._disks.log_managers:
                if manager.fenced is None:
                    continue
                if manager.try_heal():
                    log.info("log directory healed", extra=fields(reason="space returned"))
                    await self._hosting.retry()
                elif manager.is_full:
                    await self._upkeep(manager)  # retention may make room
            if have_all_failed([one.failure is not None for one in self._disks.log_managers]):
                await self._tell_of_failure()
                raise ServiceError(
                    "every log directory has failed; see the log above, replace the disks and"
                    " start again",
                    ExitCode.IO,
                )

    async def _tell_of_failure(self) -> None:
        """Return once this broker, which serves nothing, may end."""
        while True:
            is_reported = await self._reports.settle(FAILED_REPORT_MS)
            noted: list[bool] = []
            if not is_reported:
                noted = [
                    await asyncio.to_thread(_is_noted, one) for one in self._disks.log_managers
                ]
            if may_end(is_reported=is_reported, noted=noted):
                return
            log.error(
                "failed log directories neither reported nor recorded: waiting for a controller"
            )

    async def _expire_producers(self) -> None:
        """Forget idempotent producers that were silent for long, some at a time."""
        while True:
            await self._settings.rest(lambda now: now.producer_id_expiration_check_interval_ms)
            await self._expire()

    async def _expire(self) -> None:
        looked_at = 0
        for hosted in list(self._table.by_name.values()):
            producers = hosted.partition.producers
            known = producers.ids()
            for first in range(0, len(known), EXPIRED_AT_ONCE):
                some = known[first : first + EXPIRED_AT_ONCE]
                expiry_ms = self._settings.now.producer_id_expiration_ms
                producers.expire(self._clock.wall_ms(), expiry_ms, some)
                looked_at += len(some)
                if looked_at >= EXPIRED_AT_ONCE:
                    looked_at = 0
                    await asyncio.sleep(0)


def _is_noted(manager: LogManager) -> bool:
    """True if the failure of this directory is recorded for the next start."""
    return manager.failures.is_noted(manager.stamp.directory_id, manager.disk)
