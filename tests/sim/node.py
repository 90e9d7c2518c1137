"""One life of one broker process: the real cores over the real storage, on a simulated disk.

The steps that the shell takes between them (``broker.shell.node``, ``hosting``, ``maintenance``,
``cleaning``) are repeated here without sockets, tasks and threads: the simulator never imports a
shell.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from broker.core.fetch_sessions import FetchSessions
from broker.core.parked import Parked
from broker.core.partition import (
    AppendPlan,
    LogState,
    Partition,
    PartitionLimits,
    Refusal,
    Repeated,
    Role,
)
from broker.storage import checkpoint
from broker.storage.compaction import (
    CHECKPOINT_NAME,
    CleaningJob,
    CleaningResult,
    clean_segments,
    is_current,
    job_for,
    last_data_offsets,
    plan_cleaning,
)
from broker.storage.directory import LogDamagedError
from broker.storage.flush import FlushRound
from broker.storage.log import AppendInfo, Log, LogRead, OffsetOutOfRangeError
from broker.storage.log_manager import LogManager
from broker.storage.segment_files import remove_cleaned
from crc32c import crc32c
from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    read_header,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    BrokerId,
    InstantMs,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import PartitionImage
from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError, DiskFullError
from tidemark.storage.mem_disk import MemDisk

from sim.dice import Dice
from sim.history import Bounds

BROKER: Final = BrokerId(1)
CLUSTER: Final = "sim"
PRODUCE_WAIT_MS: Final = 2_000
ANY_OFFSET: Final = -1


@dataclass
class TopicState:
    """State of one partition as the controller gives it."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: TopicConfig
    leader_epoch: int = 0


class Hosted:
    """One partition that this node has. Requests wait for this object, so its identity counts."""

    def __init__(self, partition: Partition, log: Log) -> None:
        self.partition = partition
        self.log = log

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    def bounds(self) -> Bounds:
        """Return the bounds from the partition, and the synced end from the log."""
        one = self.partition
        return Bounds(
            one.log_start, one.last_stable, one.high_watermark, one.log_end, self.log.synced_end
        )


class ProduceAnswer(NamedTuple):
    """Response to a produce request; ``base_offset`` is -1 with an error."""

    error_code: ErrorCode
    base_offset: int = -1


class FetchAnswer(NamedTuple):
    """Response to a fetch; ``read`` is None with an error, and if nothing is readable."""

    error_code: ErrorCode
    read: LogRead | None
    high_watermark: int
    log_start: int


class Watcher(Protocol):
    """Keeper of the plain history of the node's actions."""

    def on_written(self, hosted: Hosted, batch: bytes) -> None:
        """Record that a batch is in the log."""

    def on_synced(self, hosted: Hosted, end: int) -> None:
        """Record that a flush round ended: the log is on disk up to ``end``."""


class Node:
    """Node opened on a disk, with the partitions that the controller assigns. It dies when it is
    dropped.
    """

    def __init__(
        self,
        disk: MemDisk,
        topics: Mapping[TopicPartition, TopicState],
        *,
        now: int,
        boot_id: str,
        dice: Dice,
        watcher: Watcher,
    ) -> None:
        """Open the disk. Raises StampError, DiskError."""
        self.now = now
        self.disk = disk
        self.life = disk.life
        self._watcher = watcher
        self.manager = LogManager.open(
            disk,
            cluster_id=CLUSTER,
            broker_id=int(BROKER),
            directory_id="dir-1",
            boot_id=boot_id,
            now_ms=now,
            config_of=lambda one: topics[one].config if one in topics else topic_config({}),
            jitter=lambda most: dice.between(0, most),
            open_files_max=dice.pick((2, 4, 1_024)),
        )
        self.manager.join_cluster(CLUSTER)
        self.manager.heal_free_bytes = 1
        self.manager.flush_interval_ms = 400
        self.parked = Parked()
        self.sessions: FetchSessions[int] = FetchSessions(
            lambda: dice.between(1, 2**31 - 1), sessions_max=2, eviction_ms=100
        )
        self.hosted: dict[TopicPartition, Hosted] = {}
        self._cleaned_to = checkpoint.read_offsets(disk, CHECKPOINT_NAME)
        for state in topics.values():
            self.host(state)
        for stray in [one for one in self.manager.logs if one not in self.hosted]:
            self.manager.mark_stray(stray)

    # -- hosting

    def host(self, state: TopicState) -> Hosted:
        """Start to host a partition: with its log if one has its topic id, otherwise with a new
        one.
        """
        log = self.manager.logs.get(state.topic_partition)
        if log is not None and log.topic_id != state.topic_id:
            self.manager.mark_stray(state.topic_partition)
            log = None
        if log is None:
            self._cleaned_to.pop(state.topic_partition, None)
            log = self.manager.create(state.topic_partition, state.topic_id, state.config, self.now)
        log.update_config(state.config)
        partition = Partition(
            state.topic_partition,
            state.topic_id,
            BROKER,
            limits=PartitionLimits.of(state.config),
            state=LogState(
                log.log_start,
                log.log_end,
                log.synced_end,
                self.manager.high_watermarks.get(state.topic_partition, -1),
            ),
            epochs=log.epochs,
            producers=log.producers,
        )
        leads = PartitionImage(
            partition=state.topic_partition.partition,
            replicas=(BROKER,),
            isr=(BROKER,),
            leader=BROKER,
            leader_epoch=LeaderEpoch(state.leader_epoch),
            partition_epoch=PartitionEpoch(state.leader_epoch),
        )
        partition.lead(leads, InstantMs(0))
        hosted = self.hosted[state.topic_partition] = Hosted(partition, log)
        return hosted

    def configure(self, state: TopicState) -> None:
        """Apply the topic's changed configuration."""
        hosted = self.hosted[state.topic_partition]
        hosted.log.update_config(state.config)
        before = hosted.partition.high_watermark
        hosted.partition.configure(PartitionLimits.of(state.config))
        gained = hosted.partition.high_watermark - before
        if gained:
            self.parked.advanced(hosted, hosted.partition.high_watermark, gained)

    def unhost(self, topic_partition: TopicPartition) -> None:
        """Remove the partition of a deleted topic."""
        hosted = self.hosted.pop(topic_partition)
        hosted.partition.become_offline(BrokerId(-1), hosted.partition.leader_epoch)
        self.parked.released(hosted)
        self.manager.delete(topic_partition, self.now)

    # -- produce

    def produce(
        self,
        topic_partition: TopicPartition,
        batch: bytearray,
        acks: int,
        reply: Callable[[ProduceAnswer], None],
    ) -> None:
        """Append one batch; ``reply`` is called at once, or when the batch is committed."""
        hosted = self.hosted.get(topic_partition)
        if hosted is None:
            reply(ProduceAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        outcome = self._append(hosted, batch, acks)
        if isinstance(outcome, Refusal):
            reply(ProduceAnswer(outcome.error_code))
            return
        first, end = outcome
        if acks == 0 or hosted.partition.commitment.acknowledgeable(end, acks):
            reply(ProduceAnswer(ErrorCode.NONE, first))
            return

        def wake(fulfilled: bool) -> None:
            late = ErrorCode.NONE if fulfilled else ErrorCode.REQUEST_TIMED_OUT
            reply(ProduceAnswer(late, first))

        parked = self.parked.park_produce(
            [(hosted, end)], now=InstantMs(self.now), wait_ms=PRODUCE_WAIT_MS, wake=wake
        )
        if parked is None:
            wake(False)

    def _append(self, hosted: Hosted, batch: bytearray, acks: int) -> tuple[int, int] | Refusal:
        """Return (first offset, end) after admit, write and append."""
        view, partition = memoryview(batch), hosted.partition
        if len(view) < HEADER_BYTES:
            return Refusal(ErrorCode.INVALID_RECORD, "no batch")
        header = read_header(view)
        whole = header.batch_length + LENGTH_PREFIX_BYTES == len(view)
        if whole and crc32c(view[CRC_START:]) != header.crc:
            return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
        plan = partition.admit(header, len(view), acks=acks, now_ms=self.now)
        if isinstance(plan, Refusal):
            return plan
        if isinstance(plan, Repeated):
            return plan.first, plan.last + 1
        if plan.log_append_time_ms >= 0:
            set_log_append_time(view, plan.log_append_time_ms)
        set_base_offset_and_epoch(view, 0, Offset(plan.first), LeaderEpoch(plan.leader_epoch))
        try:
            hosted.log.append((view,), AppendInfo._make(plan[:5]), self.now)
        except DiskError as failure:
            return self._append_failed(hosted, plan, failure)
        except LogDamagedError:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the log is damaged")
        self._watcher.on_written(hosted, bytes(view))
        gained = partition.appended(plan, self.now)
        if gained and self.parked.is_watched(hosted):
            self.parked.advanced(hosted, partition.high_watermark, gained)
        return plan.first, plan.last + 1

    def _append_failed(self, hosted: Hosted, plan: AppendPlan, failure: DiskError) -> Refusal:
        full = isinstance(failure, DiskFullError)
        self.manager.fence(failure)
        refusal = hosted.partition.append_failed(plan, fenced=not full)
        self.settle_fence()
        return refusal

    # -- fetch

    def fetch(self, topic_partition: TopicPartition, offset: int, bytes_max: int) -> FetchAnswer:
        """Read from an offset as far as it is readable."""
        hosted = self.hosted.get(topic_partition)
        if hosted is None:
            return FetchAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, -1, -1)
        partition = hosted.partition
        if partition.role is not Role.LEADER:
            return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, -1, -1)
        watermark, start = partition.high_watermark, partition.log_start
        if offset >= watermark:
            beyond = offset > partition.log_end
            code = ErrorCode.OFFSET_OUT_OF_RANGE if beyond else ErrorCode.NONE
            return FetchAnswer(code, None, watermark, start)
        try:
            read = hosted.log.read(offset, bytes_max, end=watermark)
        except OffsetOutOfRangeError:
            return FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, None, watermark, start)
        except LogDamagedError:
            return FetchAnswer(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1)
        return FetchAnswer(ErrorCode.NONE, read, watermark, start)

    # -- administration

    def delete_records(self, topic_partition: TopicPartition, offset: int) -> ErrorCode:
        """Move the log start to ``offset``."""
        hosted = self.hosted.get(topic_partition)
        if hosted is None or hosted.partition.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not 0 <= offset <= hosted.partition.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if self.manager.fenced is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            hosted.log.advance_log_start(offset)
        except DiskError as failure:
            self.manager.fence(failure)
            self.settle_fence()
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._log_start_moved(hosted)
        return ErrorCode.NONE

    def roll(self, topic_partition: TopicPartition) -> None:
        """Begin a new segment."""
        if self.manager.fenced is None and topic_partition in self.hosted:
            try:
                self.hosted[topic_partition].log.roll(self.now)
            except DiskError as failure:
                self.manager.fence(failure)
        self.settle_fence()

    # -- maintenance

    def begin_flush(self, *, only_group: bool) -> FlushRound | None:
        """Return the flush round that is due; ``end_flush`` ends it."""
        begun = self.manager.begin_flush(only_group=only_group, now_ms=self.now)
        self.settle_fence()
        return begun

    def end_flush(self, begun: FlushRound) -> None:
        """Sync, and advance the watermarks."""
        begun.run()
        for log, end in self.manager.finish_flush(begun):
            hosted = self.hosted.get(log.topic_partition)
            if hosted is not None and hosted.log is log:
                self._watcher.on_synced(hosted, end)
                gained = hosted.partition.synced(end)
                if gained:
                    self.parked.advanced(hosted, hosted.partition.high_watermark, gained)
        self.settle_fence()

    def save(self) -> None:
        """Write recovery points, watermarks and log starts to their checkpoints."""
        if self.manager.fenced is None:
            self.manager.checkpoint(self._watermarks())
        self.settle_fence()

    def tick(self) -> None:
        """Run retention, rolls by time and removals."""
        if self.manager.fenced is None:
            self._remove_due()
            self._upkeep()
            for hosted in self.hosted.values():
                self._log_start_moved(hosted)
        self.settle_fence()

    def heal(self) -> bool:
        """Return True if a full disk has space again."""
        if self.manager.fenced is None:
            return False
        self._remove_due()
        healed = self.manager.try_heal()
        if not healed:
            self._upkeep()  # retention makes room
        for hosted in self.hosted.values():
            self._log_start_moved(hosted)
        return healed

    def _remove_due(self) -> None:
        begun = self.manager.begin_removals(self.now)
        if begun is not None:
            begun.run()
            try:
                self.manager.finish_removals(begun)
            except DiskError as failure:
                self.manager.fence(failure)

    def _upkeep(self) -> None:
        marks = self._watermarks()
        for _ in self.manager.upkeep(self.now, lambda log: marks.get(log.topic_partition, 0)):
            pass

    def settle_fence(self) -> None:
        """Apply a fence: a failed directory serves no partition; a full one takes no writes."""
        if self.manager.fenced is None or self.manager.is_full:
            return
        for hosted in self.hosted.values():
            if hosted.partition.role is Role.LEADER:
                hosted.partition.become_offline(BrokerId(-1), hosted.partition.leader_epoch)
                self.parked.released(hosted)

    def _log_start_moved(self, hosted: Hosted) -> None:
        if hosted.log.log_start > hosted.partition.log_start:
            hosted.partition.log_start_moved(hosted.log.log_start)

    def _watermarks(self) -> dict[TopicPartition, int]:
        return {one: hosted.partition.high_watermark for one, hosted in self.hosted.items()}

    # -- compaction

    def plan_compaction(self, topic_partition: TopicPartition) -> CleaningJob | None:
        """Return a job for the worker if one is due."""
        hosted = self.hosted.get(topic_partition)
        if hosted is None or not hosted.log.config.is_compacted or self.manager.fenced is not None:
            return None
        config = hosted.log.config
        plan = plan_cleaning(
            hosted.log.segments(),
            log_start=hosted.partition.log_start,
            last_stable=min(hosted.partition.last_stable, hosted.log.synced_end),
            checkpoint=self._cleaned_to.get(topic_partition),
            config=config,
            now_ms=self.now,
        )
        if plan is None or not plan.is_due(config):
            return None
        return job_for(
            plan,
            topic_partition,
            config,
            now_ms=self.now,
            last_data_offsets=last_data_offsets(
                hosted.log.producers.entries(), synced_end=hosted.log.synced_end
            ),
        )

    def run_compaction(self, job: CleaningJob) -> CleaningResult | None:
        """Run the job as the worker process does; None if the disk failed."""
        try:
            return clean_segments(lambda: self.disk, job)
        except FileNotFoundError:
            return None  # retention took a segment meanwhile
        except DiskError as failure:
            self.manager.fence(failure)
            self.settle_fence()
            return None

    def swap_in(self, hosted: Hosted, result: CleaningResult) -> bool:
        """Replace the compacted segments, unless the log changed meanwhile."""
        sizes = {one.base_offset: one.size_bytes for one in hosted.log.segments()}
        current = self.hosted.get(hosted.topic_partition) is hosted
        if result.damage is not None or not current or not is_current(result, sizes):
            for group in result.groups:
                remove_cleaned(self.disk, group.path)
            return False
        try:
            swapped = [
                hosted.log.swap_segments(group.old_base_offsets, group.path)
                for group in result.groups
            ]
            if all(swapped):
                self._cleaned_to[hosted.topic_partition] = result.clean_end
                save = partial(checkpoint.write_offsets, self.disk, CHECKPOINT_NAME, sync=False)
                save(self._cleaned_to)
        except DiskError as failure:
            self.manager.fence(failure)
            self.settle_fence()
            return False
        return all(swapped)

    def check(self) -> None:
        """Check the invariants that the cores state themselves."""
        for hosted in self.hosted.values():
            hosted.partition.check()
            hosted.log.epochs.check()
        self.parked.check()
        self.sessions.check()
