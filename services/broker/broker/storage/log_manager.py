"""LogManager: the logs of one log directory: load, create, delete, flush, fence, checkpoint."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk, DiskError, DiskFullError, ExhaustedError

from broker.storage import checkpoint
from broker.storage.checkpoint import CheckpointError, NewerVersionError
from broker.storage.directory import OPEN_FILES_MAX, LogDamagedError, LogDirectory
from broker.storage.directory_names import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    future_of,
    has_records,
    partition_of,
    rename_away,
    was_deleted,
)
from broker.storage.disk_failures import DiskFailures
from broker.storage.flush import FlushRound, begin_syncs, is_due
from broker.storage.future_logs import FutureLogs
from broker.storage.log import Log
from broker.storage.log_making import LastStop, make_files, make_log, recover_log
from broker.storage.offset_checkpoints import OffsetCheckpoints
from broker.storage.recovery_reports import RecoveryReport
from broker.storage.removals import RemovalRound
from broker.storage.stamp import DiskStamp, check_stamp, settle_stamp, write_stamp

_log: Final = logging.getLogger(__name__)
FLUSH_INTERVAL_MS: Final = 60_000
HEAL_FREE_BYTES: Final = 8 * 1024 * 1024


def _no_jitter(_maximum_ms: int) -> int:
    return 0


class LogManager:
    """One log directory. Synchronous; time is an argument, randomness comes from ``jitter``."""

    def __init__(self, shared: LogDirectory, stamp: DiskStamp, failures: DiskFailures) -> None:
        self._shared = shared
        self.stamp = stamp
        self.logs: dict[TopicPartition, Log] = {}
        self.clean_start = False
        """True if the last process stopped cleanly."""
        self.same_boot = False
        """True if the kernel has not restarted since the directory was last used."""
        self.distrusted: str | None = None
        """Disk failure because of which no replica here counts yet, or None."""
        self.missing: set[TopicPartition] = set()
        """Partitions in a checkpoint of which the start found no log."""
        self._is_rewritten = False
        self.previous_broker_epoch = -1
        """Broker epoch of the last process, if it stopped cleanly."""
        self.reports: list[RecoveryReport] = []
        self.strays: list[str] = []
        """Directories that belong to no topic; never served, kept for inspection."""
        self.flush_interval_ms = FLUSH_INTERVAL_MS
        self.heal_free_bytes = HEAL_FREE_BYTES
        futures: dict[TopicPartition, Log] = {}
        self._offsets = OffsetCheckpoints(shared.disk, self.logs, futures)
        self.futures = FutureLogs(
            shared,
            self._offsets,
            current=self.logs,
            logs=futures,
            note_failure=self._note_failure,
        )
        """Copies of logs that move here from other directories."""
        self.index_repairs = shared.index_repairs
        self.failures = failures
        self._round: FlushRound | None = None
        shared.save_log_starts = self._offsets.save_log_starts
        shared.save_recovery_points = partial(self._offsets.save_recovery_points, sync=True)
        shared.logs_end = self._offsets.logs_end
        shared.note_failure = self._note_failure

    # -- start

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        cluster_id: str | None,
        broker_id: int,
        directory_id: str,
        boot_id: str,
        now_ms: int,
        config_of: Callable[[TopicPartition], TopicConfig] | None = None,
        topic_ids: Callable[[TopicPartition], TopicId | None] | None = None,
        jitter: Callable[[int], int] = _no_jitter,
        open_files_max: int = OPEN_FILES_MAX,
        failures: DiskFailures | None = None,
    ) -> "LogManager":
        """Load a log directory, recovering every log that was not closed cleanly.

        ``failures``: shared by the directories of a broker that has several. ``directory_id`` is
        for an empty directory. ``cluster_id`` None: the stamp's, or unknown until ``join_cluster``.
        ``topic_ids``, if the metadata are known: a partition of another topic id becomes a stray.
        Raises StampError, NewerVersionError, DiskError.
        """
        stamp = settle_stamp(
            disk,
            cluster_id=cluster_id,
            broker_id=broker_id,
            directory_id=directory_id,
        )
        shared = LogDirectory(disk, jitter=jitter, now_ms=now_ms, open_files_max=open_files_max)
        manager = cls(shared, stamp, DiskFailures([disk]) if failures is None else failures)
        manager.same_boot = bool(boot_id) and stamp.boot_id == boot_id
        manager.distrusted = manager.failures.reason(stamp.directory_id)
        try:
            manager._load(config_of or _default_config, topic_ids)
            manager._started(boot_id)
        except DiskError as error:
            shared.fence(error)
            raise
        return manager

    def _load(
        self,
        config_of: Callable[[TopicPartition], TopicConfig],
        topic_ids: Callable[[TopicPartition], TopicId | None] | None,
    ) -> None:
        disk = self._shared.disk
        self._offsets.load()
        gaps = self._offsets.read(checkpoint.GAPS) if self.same_boot else None
        self._shared.gaps_below = gaps or {}
        if self.same_boot and self.distrusted is None and self._offsets.problem is not None:
            # While the kernel keeps running, only the disk can have lost it, and may have lost
            # more.
            self.distrusted = self._offsets.problem
            self._note_failure(DiskError(self.stamp.directory_id, self.distrusted))
        marker = checkpoint.take_clean_shutdown(disk)
        self.clean_start = marker is not None and self.distrusted is None
        self.previous_broker_epoch = marker.broker_epoch if marker else -1
        for name in disk.list(""):
            if name.endswith(DELETE_SUFFIX):
                self._shared.remove_later(name, self._shared.now_ms)
            elif name.endswith(STRAY_SUFFIX):
                self.strays.append(name)
            elif (topic_partition := partition_of(name)) is not None:
                topic_id = self._owner(name, topic_partition, topic_ids)
                if topic_id is not None:
                    config = config_of(topic_partition)
                    self.logs[topic_partition] = self._recover(
                        name, topic_partition, topic_id, config
                    )
                    self.futures.load_sources(topic_partition, name)
        for name in disk.list(""):
            if (topic_partition := future_of(name)) is not None:
                self._load_future(name, topic_partition, config_of(topic_partition))
        self.missing = {
            one
            for one in self._offsets.named()
            if one not in self.logs and one not in self.futures.logs and not was_deleted(disk, one)
        }

    def _load_future(self, name: str, topic_partition: TopicPartition, config: TopicConfig) -> None:
        """Recover a future log, or remove one of which anything is in doubt: it is only a copy."""
        try:
            topic_id = checkpoint.read_topic_id(self._shared.disk, name)
        except NewerVersionError:
            raise
        except CheckpointError:
            topic_id = None
        if topic_id is not None and self.distrusted is None and topic_partition not in self.logs:
            log = self._recover(name, topic_partition, topic_id, config)
            if log.damage is None and not log.health.end_lost:
                self.futures.found(log)
                return
            log.close(clean=False)
        self.futures.discard_files(name)

    def _started(self, boot_id: str) -> None:
        """Store the result of the recovery: boot id, recovery points and log starts."""
        self.stamp = replace(self.stamp, boot_id=boot_id)
        cut_short = next((log for log in self.logs.values() if log.health.end_lost), None)
        if cut_short is not None:
            # The evidence, a checkpoint or the bad bytes, is overwritten before it is reported.
            self._note_failure(DiskError(cut_short.directory, cut_short.damage or "cut short"))
        try:
            if self.distrusted is not None:
                self._sync_all()
            write_stamp(self._shared.disk, self.stamp)
            self._offsets.save_recovery_points(sync=False)
            self._offsets.save_log_starts()
        except DiskFullError as error:
            self._shared.fence(error)

    def _sync_all(self) -> None:
        """Sync the tails that were written again. Raises DiskError."""
        syncs = begin_syncs(tuple(self._shared.dirty))
        self._shared.dirty.clear()
        FlushRound(self._shared.disk, tuple(syncs)).run_or_raise()
        for sync in syncs:
            sync.log.unsynced.finish()
        self._is_rewritten = True

    def _owner(
        self,
        name: str,
        topic_partition: TopicPartition,
        topic_ids: Callable[[TopicPartition], TopicId | None] | None,
    ) -> TopicId | None:
        """Return the topic id of a partition's directory; None if it must not be served."""
        disk = self._shared.disk
        try:
            topic_id = checkpoint.read_topic_id(disk, name)
        except NewerVersionError:
            raise
        except CheckpointError as error:
            _log.warning("partition directory not served: %s", error)
            self._make_stray(name, "")
            return None
        if topic_id is None:
            if has_records(disk, name):
                self._make_stray(name, "")
            else:
                disk.remove(name)
            return None
        if topic_ids is not None and topic_ids(topic_partition) != topic_id:
            self._make_stray(name, topic_id.hex())
            return None
        return topic_id

    def _recover(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
    ) -> Log:
        stop = LastStop(self.clean_start, self.same_boot, self.distrusted is None)
        log, report = recover_log(
            self._shared, self._offsets, stop, directory, topic_partition, topic_id, config
        )
        if report is not None:
            self.reports.append(report)
        return log

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """High watermarks as loaded, then as last checkpointed."""
        return self._offsets.high_watermarks

    def join_cluster(self, cluster_id: str) -> None:
        """Finish the start after the controller has answered a registration: a new directory gets
        its cluster's stamp, and a failed one, now reported, is trusted again. Raises StampError if
        the directory belongs to another cluster.
        """
        check_stamp(self.stamp, cluster_id=cluster_id, broker_id=self.stamp.broker_id)
        try:
            self._registered(cluster_id)
        except DiskError as error:
            self._shared.fence(error)

    def _registered(self, cluster_id: str) -> None:
        if not self.stamp.cluster_id:
            stamp = replace(self.stamp, cluster_id=cluster_id)
            write_stamp(self._shared.disk, stamp)
            self.stamp = stamp
        if (self.distrusted is None or self._is_rewritten) and (
            self.fenced is None or self.is_full
        ):
            self.distrusted = None
            self.missing.clear()
            for log in self.logs.values():
                log.health.end_lost = log.health.end_lost and log.damage is not None
            self._offsets.logs_end({one: log.log_end for one, log in self.logs.items()})
            self.failures.forget(self.stamp.directory_id)

    @property
    def disk(self) -> Disk:
        """The directory itself; each log is in the subdirectory named after its partition."""
        return self._shared.disk

    # -- creation and deletion

    def create(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig, now_ms: int
    ) -> Log:
        """Create an empty log, without data of an older topic of that name. Raises DiskError."""
        assert topic_partition not in self.logs, topic_partition
        self._shared.raise_if_fenced()
        disk, name = self._shared.disk, str(topic_partition)
        self._shared.now_ms = max(self._shared.now_ms, now_ms)
        try:
            self._offsets.forget(topic_partition, self._shared.gaps_below)
            if disk.exists(name):
                self._make_stray(name, "")
            recovered = make_files(disk, name, topic_id, now_ms)
        except DiskError as error:
            self._shared.fence(error)
            raise
        log = make_log(self._shared, topic_partition, topic_id, config, recovered)
        self.logs[topic_partition] = log
        log.files_changed()
        return log

    def delete(self, topic_partition: TopicPartition, now_ms: int | None = None) -> None:
        """Stop serving a partition at once; its directory is removed after file.delete.delay.ms."""
        self.remove_files(self.release(topic_partition), now_ms)

    def release(self, topic_partition: TopicPartition) -> Log:
        """Stop serving a partition at once; its files stay where they are."""
        log = self.logs.pop(topic_partition)
        self.futures.moved_from.pop(topic_partition, None)
        log.close(clean=False)
        return log

    def remove_files(self, log: Log, now_ms: int | None = None) -> None:
        """Remove the directory of a released log after file.delete.delay.ms."""
        now_ms = self._shared.now_ms if now_ms is None else now_ms
        name = rename_away(self._shared.disk, log.directory, log.topic_id.hex(), DELETE_SUFFIX)
        self._shared.remove_later(name, now_ms + log.config.file_delete_delay_ms)

    def mark_stray(self, topic_partition: TopicPartition) -> str:
        """Stop serving a partition that belongs to no topic; keep its directory as
        ``...-stray``.
        """
        log = self.release(topic_partition)
        return self._make_stray(log.directory, log.topic_id.hex())

    def _make_stray(self, directory: str, unique: str) -> str:
        name = rename_away(self._shared.disk, directory, unique, STRAY_SUFFIX)
        self.strays.append(name)
        return name

    # -- fence and recovery from it

    @property
    def fenced(self) -> str | None:
        """Error because of which this directory refuses writes, or None."""
        error = self._shared.fence_error
        return None if error is None else str(error)

    @property
    def is_full(self) -> bool:
        """True if only missing space is the reason for the fence: reads continue."""
        return isinstance(self._shared.fence_error, DiskFullError)

    @property
    def failure(self) -> DiskError | None:
        """Error that took this directory out of service; None if it is in service or only full."""
        return None if self.is_full else self._shared.fence_error

    def fence(self, error: DiskError) -> None:
        """Refuse further writes, until the next start unless the disk is only full."""
        self._shared.fence(error)

    def _note_failure(self, error: DiskError) -> None:
        self.failures.note(self.stamp.directory_id, self._shared.disk, error)

    def try_heal(self) -> bool:
        """Lift the fence of a full disk once there is space again; True if it did."""
        if not self.is_full:
            return False
        try:
            if self._shared.disk.free_bytes() < self.heal_free_bytes:
                return False
        except DiskError as error:
            self._shared.fence(error)
            return False
        self._shared.fence_error = None
        _log.info("log directory has space again")
        return True

    # -- flush

    def begin_flush(self, *, only_group: bool, now_ms: int) -> FlushRound | None:
        """Return the round that is due now, or None if none is or one is in progress.

        Run it in a thread, then call ``finish_flush`` on the loop.
        """
        if self._round is not None or (self._shared.fence_error is not None and not self.is_full):
            return None
        due = [
            log
            for log in self._shared.dirty
            if not log.is_future
            and is_due(
                log, only_group=only_group, now_ms=now_ms, interval_ms=self.flush_interval_ms
            )
        ]
        syncs = []
        for log in due:
            try:
                with contextlib.suppress(LogDamagedError):  # kept in log.damage
                    syncs.append(log.begin_sync())
                del self._shared.dirty[log]
            except (DiskFullError, ExhaustedError):
                continue  # without room for its index; it stays dirty, and the others go on
            except DiskError:
                break  # the log has fenced the directory
        if not syncs:
            return None
        self._round = FlushRound(self._shared.disk, tuple(syncs), self._note_failure)
        return self._round

    def finish_flush(self, flush_round: FlushRound) -> list[tuple[Log, int]]:
        """Return each log with its synced end; after a failed sync none, with a fence."""
        assert flush_round is self._round
        self._round = None
        is_whole = flush_round.error is None
        synced = flush_round.syncs if is_whole else flush_round.failed(self._shared)
        return [(sync.log, sync.log.unsynced.finish()) for sync in synced]

    # -- removals

    def begin_removals(self, now_ms: int) -> RemovalRound | None:
        """Return the round that removes what is due now, or None if nothing is or one is in
        progress. Run it in a thread, then call ``finish_removals`` on the loop.
        """
        self._shared.now_ms = now_ms
        return None if self.failure is not None else self._shared.removals.begin(now_ms)

    def finish_removals(self, finished: RemovalRound) -> None:
        """Forget what was removed. Raises DiskError if some could not be."""
        self._shared.removals.finish(finished)

    # -- checkpoints

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write recovery points, high watermarks and log starts that have changed."""
        try:
            self._offsets.save_recovery_points(sync=False)
            self._offsets.save_high_watermarks(high_watermarks)
            self._offsets.save_log_starts()
        except DiskError as error:
            self._shared.fence(error)

    # -- time

    def upkeep(self, now_ms: int, high_watermark_of: Callable[[Log], int]) -> Iterator[Log]:
        """Roll and retain by wall time, one log at each step: many segments take long. Yield the
        log, whose start may have moved. A full disk only retains, since that frees space.
        """
        self._shared.now_ms = now_ms
        for one, log in tuple(self.logs.items()):
            if self.failure is not None:
                return
            if self.logs.get(one) is log:
                try:
                    self._keep(log, now_ms, high_watermark_of(log))
                except DiskError as error:
                    self._shared.fence(error)
                    return
                yield log

    def _keep(self, log: Log, now_ms: int, high_watermark: int) -> None:
        if self._shared.fence_error is None:
            with contextlib.suppress(LogDamagedError):  # kept in log.damage
                log.maybe_roll_by_time(now_ms)
        with contextlib.suppress(LogDamagedError):
            log.apply_retention(now_ms, high_watermark)

    # -- stop

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Sync and close every log. The clean-shutdown marker is written if all succeeded."""
        if self._round is not None:
            self._round.run()
            self.finish_flush(self._round)
        self.futures.finish_rounds()
        clean = clean and self._shared.fence_error is None
        for log in (*self.logs.values(), *self.futures.logs.values()):
            try:
                log.close(clean=clean)
            except LogDamagedError:
                clean = False
            except DiskError as error:
                self._shared.fence(error)
                clean = False
        if not clean:
            return
        try:
            self.checkpoint(self.high_watermarks)
            self._shared.raise_if_fenced()
            self._shared.disk.sync_directory("")
            checkpoint.write_clean_shutdown(self._shared.disk, broker_epoch)
        except DiskError as error:
            self._shared.fence(error)


def _default_config(_topic_partition: TopicPartition) -> TopicConfig:
    return topic_config({})
