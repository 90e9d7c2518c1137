"""Compaction and scrubbing: background loops that reread logs, one partition at a time, at a
bounded rate.

Compaction walks records in a niced process of its own, apart from the workers that produce requests
wait for; the loop only plans and swaps the result in. Scrubbing reads whole batches in a thread and
compares CRCs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from tidemark.model.config_values import LONG_MAX
from tidemark.model.topics import TopicPartition
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import JobTooLargeError, WorkerDiedError, WorkerPool
from tidemark.storage.batch_walk import Damage
from tidemark.storage.disk import Disk, DiskError

from broker.core.cleaning_turns import CleaningTurns, Due
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.table import PartitionTable
from broker.shell.settings import BrokerSettings
from broker.storage import checkpoint
from broker.storage.checkpoint import CheckpointError
from broker.storage.compaction import (
    CHECKPOINT_NAME,
    CleaningPlan,
    CleaningResult,
    clean_segments,
    first_timestamps_of,
    is_current,
    job_for,
    last_data_offsets,
    plan_cleaning,
)
from broker.storage.directory import LogDamagedError
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.scrubber import Scrubber, ScrubSegment, ScrubTask, scrub_range
from broker.storage.segment import SegmentView
from broker.storage.segment_files import remove_cleaned

log = logging.getLogger(__name__)

SCRUB_AGAIN_MS: Final = 1_000
"""Pause after a segment that could not be read."""


class Cleaning:
    """Loops that reread logs."""

    def __init__(
        self,
        facts: BrokerFacts,
        settings: BrokerSettings,
        worker: WorkerPool,
        opener: Callable[[Disk], Callable[[], Disk]],
        *,
        table: PartitionTable,
        disks: DiskHealth,
    ) -> None:
        """``opener`` makes the function with which ``worker`` opens a disk of this broker."""
        self._config = facts.config
        self._clock = facts.clock
        self._settings = settings
        self._table = table
        self._disks = disks
        self._worker = worker
        self._opener = opener
        self._cleaned_to: dict[LogManager, dict[TopicPartition, int]] = {}
        self._known_first: WeakKeyDictionary[HostedPartition, dict[int, int]] = WeakKeyDictionary()
        self.turns = CleaningTurns()

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the configured loops; the caller cancels them."""
        config = self._config
        loops = []
        if config.log_cleaner_enable:
            loops.append(tasks.create_task(self._clean(), name="compaction"))
        if config.log_scrub_bytes_per_s:
            loops.append(tasks.create_task(self._scrub(), name="scrub"))
        return loops

    async def close(self) -> None:
        """End the compaction process."""
        await self._worker.close()

    # -- compaction

    async def _clean(self) -> None:
        """Clean one partition after the other; pause when none is due, or a round was cut short."""
        while True:
            due = await self._dirtiest()
            if due is None or not await self._is_cleaned(*due):
                await self._settings.rest(lambda now: now.log_cleaner_backoff_ms)

    async def _is_cleaned(self, hosted: HostedPartition, plan: CleaningPlan) -> bool:
        """Clean one partition. Returns True if the round was completed. No error in it ends the
        broker: of one that is unexpected only the partition is left out from then on.
        """
        try:
            await self._clean_one(hosted, plan)
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
        except (DiskError, OSError, WorkerDiedError, JobTooLargeError) as failure:
            # An OSError that is no DiskError: no process could be started, or a file is gone.
            # A partition that was removed meanwhile took its files along: the disk is not at fault.
            if isinstance(failure, DiskError) and self._is_hosted(hosted):
                self._disks.fence_directory(hosted.manager, failure)
            self.turns.cut_short(hosted.topic_partition)
            log.warning(
                "compaction interrupted",
                extra=fields(partition=str(hosted.topic_partition), reason=str(failure)),
            )
        except Exception as bug:  # noqa: BLE001 - only this partition suffers
            self._give_up(hosted, bug)
        else:
            self.turns.completed(hosted.topic_partition)
            return True
        return False

    def _give_up(self, hosted: HostedPartition, bug: Exception) -> None:
        """Leave a partition out until the broker starts again."""
        if self._is_hosted(hosted):
            self.turns.failed(hosted.topic_partition)
        log.error(
            "compaction failed, the partition is left out until the next start",
            exc_info=bug,
            extra=fields(partition=str(hosted.topic_partition)),
        )

    def _is_hosted(self, hosted: HostedPartition) -> bool:
        return self._table.by_name.get(hosted.topic_partition) is hosted

    async def _dirtiest(self) -> tuple[HostedPartition, CleaningPlan] | None:
        """Return the partition whose turn it is, with its plan. Logs are looked at one by one: the
        segments of all of them take long.
        """
        self.turns.retain(self._table.by_name.keys())
        found: list[Due] = []
        for hosted in tuple(self._table.by_name.values()):
            if not hosted.log.config.is_compacted or not self._is_hosted(hosted):
                continue
            plan = self._plan_if_possible(hosted)
            if plan is not None:
                found.append(Due(hosted.topic_partition, plan.dirty_ratio))
            await asyncio.sleep(0)
        due = self.turns.next_of(found)
        chosen = None if due is None else self._table.by_name.get(due.topic_partition)
        plan = None if chosen is None else self._plan_if_possible(chosen)  # as the log is now
        return None if chosen is None or plan is None else (chosen, plan)

    def _plan_if_possible(self, hosted: HostedPartition) -> CleaningPlan | None:
        try:
            return self._plan(hosted)
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
        except Exception as bug:  # noqa: BLE001 - only this partition suffers
            self._give_up(hosted, bug)
        return None

    def _plan(self, hosted: HostedPartition) -> CleaningPlan | None:
        config = hosted.log.config
        if not config.is_compacted or hosted.log.damage is not None:
            return None
        if not self.turns.takes(hosted.topic_partition):
            return None
        if hosted.manager.fenced is not None or hosted.move is not None:
            return None  # a copy would keep what is removed meanwhile, but not the tombstones
        segments = hosted.log.segments()
        plan = plan_cleaning(
            segments,
            log_start=hosted.partition.log_start,
            last_stable=min(hosted.partition.last_stable, hosted.log.synced_end),
            checkpoint=self._checkpoints(hosted.manager).get(hosted.topic_partition),
            config=config,
            now_ms=self._clock.wall_ms(),
            first_timestamps=self._first_timestamps(hosted, segments),
        )
        return plan if plan is not None and plan.is_due(config) else None

    def _first_timestamps(
        self, hosted: HostedPartition, segments: Sequence[SegmentView]
    ) -> Mapping[int, int]:
        """Return first timestamps of segments. Only max.compaction.lag.ms needs them; each is read
        from its file once.
        """
        if hosted.log.config.max_compaction_lag_ms == LONG_MAX:
            return {}
        known = self._known_first.setdefault(hosted, {})
        missing = [one for one in segments if not one.active and one.base_offset not in known]
        known |= first_timestamps_of(hosted.manager.disk, missing)
        return known

    def _checkpoints(self, manager: LogManager) -> dict[TopicPartition, int]:
        known = self._cleaned_to.get(manager)
        if known is None:
            try:
                known = checkpoint.read_offsets(manager.disk, CHECKPOINT_NAME)
            except CheckpointError as unreadable:
                log.warning("checkpoint ignored", extra=fields(reason=str(unreadable)))
                known = {}  # every log counts as dirty
            self._cleaned_to[manager] = known
        return known

    def forget(self, manager: LogManager, topic_partition: TopicPartition) -> None:
        """Forget how far a log was cleaned. Called before a log is created: a topic of that name
        may have been deleted.
        """
        self.turns.forget(topic_partition)
        checkpoints = self._checkpoints(manager)
        if checkpoints.pop(topic_partition, None) is not None:
            checkpoint.write_offsets(manager.disk, CHECKPOINT_NAME, checkpoints, sync=False)

    def moved(
        self, topic_partition: TopicPartition, source: LogManager, target: LogManager
    ) -> None:
        """Take along how far a log was cleaned, now that it is in another directory. Without that
        it is cleaned from its start.
        """
        self.turns.forget(topic_partition)
        try:
            cleaned_to = self._checkpoints(source).get(topic_partition)
            self.forget(source, topic_partition)
        except DiskError as failure:
            self._disks.fence_directory(source, failure)
            return
        if cleaned_to is None:
            return
        try:
            checkpoints = self._checkpoints(target)
            checkpoints[topic_partition] = cleaned_to
            checkpoint.write_offsets(target.disk, CHECKPOINT_NAME, checkpoints, sync=False)
        except DiskError as failure:
            self._disks.fence_directory(target, failure)

    async def _clean_one(self, hosted: HostedPartition, plan: CleaningPlan) -> None:
        manager, cleaned = hosted.manager, hosted.log
        disk = manager.disk
        job = job_for(
            plan,
            hosted.topic_partition,
            hosted.log.config,
            now_ms=self._clock.wall_ms(),
            last_data_offsets=last_data_offsets(
                hosted.log.producers.entries(), synced_end=hosted.log.synced_end
            ),
            aborted=tuple(hosted.log.history.aborted_between(0, plan.first_uncleanable)),
            producers={
                one.producer_id: (one.producer_epoch, one.updated_at)
                for one in hosted.log.producers.entries()
            },
        )
        began = self._clock.now_ms()
        result = await self._worker.run(clean_segments, self._opener(disk), job)
        if result.damage is not None:
            if self._is_hosted(hosted) and hosted.log is cleaned:
                self._found(hosted, result.damage)
            return
        if self._swap_in(hosted, manager, cleaned, result):
            checkpoints = self._checkpoints(manager)
            checkpoints[hosted.topic_partition] = result.clean_end
            checkpoint.write_offsets(disk, CHECKPOINT_NAME, checkpoints, sync=False)
            log.info(
                "compacted",
                extra=fields(
                    partition=str(hosted.topic_partition),
                    read=result.records_read,
                    kept=result.records_kept,
                    batches_unreadable=result.batches_unreadable,
                    bytes_before=result.bytes_read,
                    bytes_after=result.bytes_written,
                ),
            )
        moved = result.bytes_read + result.bytes_written
        await self._settings.rest(
            lambda now: 1_000 * moved / now.log_cleaner_io_max_bytes_per_second, since=began
        )

    def _swap_in(
        self, hosted: HostedPartition, manager: LogManager, cleaned: Log, result: CleaningResult
    ) -> bool:
        """Swap in the result. Returns False if the partition was removed or began to move, or its
        segments changed, while it was compacted.
        """
        sizes = {one.base_offset: one.size_bytes for one in cleaned.segments()}
        stays = self._is_hosted(hosted) and hosted.log is cleaned and hosted.move is None
        if not stays or not is_current(result, sizes):
            for group in result.groups:
                remove_cleaned(manager.disk, group.path)
            return False
        for number, group in enumerate(result.groups):
            if not cleaned.swap_segments(group.old_base_offsets, group.path):
                for left in result.groups[number + 1 :]:
                    remove_cleaned(manager.disk, left.path)
                return False
        return True

    # -- scrubbing

    async def _scrub(self) -> None:
        scrubber = Scrubber(bytes_per_second=self._config.log_scrub_bytes_per_s)
        while True:
            now = self._clock.now_ms()
            task = scrubber.next_task(self, now)
            if task is None:
                await asyncio.sleep(scrubber.pause_ms(now) / 1_000)
                continue
            await self._scrub_one(scrubber, task)

    async def _scrub_one(self, scrubber: Scrubber, task: ScrubTask) -> None:
        hosted = self._table.by_name.get(task.segment.topic_partition)
        if hosted is None:
            await asyncio.sleep(0)
            return
        try:
            file = hosted.manager.disk.open(task.segment.path)
            outcome = await asyncio.to_thread(scrub_range, file, task)
        except FileNotFoundError:
            await asyncio.sleep(SCRUB_AGAIN_MS / 1_000)  # retention or compaction took it
            return
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            await asyncio.sleep(SCRUB_AGAIN_MS / 1_000)
            return
        damage = scrubber.finished(task, outcome, self._clock.now_ms())
        segments = self.segments_of(task.segment.topic_partition)
        if damage is not None and task.segment in segments:  # otherwise it was truncated meanwhile
            self._found(hosted, damage)

    def partitions(self) -> Iterator[TopicPartition]:
        """Return the partitions that are scrubbed."""
        return (TopicPartition(*one) for one in self._table.by_name)

    def segments_of(self, topic_partition: TopicPartition) -> Iterator[ScrubSegment]:
        """Return rolled segments, whole; nothing of a log whose time indexes cannot be read. The
        active segment is checked once it is rolled.
        """
        hosted = self._table.by_name.get(topic_partition)
        if hosted is None or hosted.log.is_one_segment:  # nearly all
            return
        if hosted.manager.fenced is not None or hosted.log.damage is not None:
            return
        try:
            segments = hosted.log.segments()
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            return
        for one in segments:
            if not one.active:
                yield ScrubSegment.of(topic_partition, one)

    def _found(self, hosted: HostedPartition, damage: Damage) -> None:
        self._disks.found_damage(hosted, str(damage), damage.offset)
