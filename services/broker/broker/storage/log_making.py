"""Logs of a directory as they are made: empty, or from what a start recovers."""

from typing import NamedTuple

from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk

from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import ProducerTable
from broker.storage import checkpoint
from broker.storage.directory import LogDirectory
from broker.storage.log import Log
from broker.storage.offset_checkpoints import OffsetCheckpoints
from broker.storage.producer_snapshot import ProducerSnapshots
from broker.storage.recovery import OFFSET_MAX, Recovered, RecoveryPlan, recover
from broker.storage.recovery_reports import RecoveryReport, log_recovery
from broker.storage.segment_files import new_segment


def make_files(disk: Disk, directory: str, topic_id: TopicId, now_ms: int) -> Recovered:
    """Make the directory of an empty log. Raises DiskError."""
    disk.make_directory(directory)
    checkpoint.write_topic_id(disk, directory, topic_id)
    return Recovered(
        segments=[new_segment(disk, directory, 0, now_ms)],
        log_end=0,
        log_start=0,
        epochs=LeaderEpochs(),
        epochs_changed=False,
        producers=ProducerTable(),
        snapshots=ProducerSnapshots(disk, directory, ()),
    )


def make_log(
    shared: LogDirectory,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: TopicConfig,
    recovered: Recovered,
    recovery_point: int = 0,
) -> Log:
    """Make a log from its files."""
    return Log(
        shared,
        topic_partition,
        topic_id,
        config=config,
        recovered=recovered,
        recovery_point=recovery_point,
        now_ms=shared.now_ms,
    )


class LastStop(NamedTuple):
    """End of the last process that used a directory."""

    is_clean: bool
    same_boot: bool
    """True if the kernel has not restarted since."""
    is_trusted: bool
    """False if the disk failed, or may have."""


def recover_log(
    shared: LogDirectory,
    offsets: OffsetCheckpoints,
    stop: LastStop,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: TopicConfig,
) -> tuple[Log, RecoveryReport | None]:
    """Recover a log at the start, and report what was found, if anything. Raises DiskError, or
    NewerVersionError for a newer file.
    """
    points = offsets.recovery_points
    recovery_point = points.get(topic_partition, 0) if points else 0
    compacted = (offsets.compacted or {}).get(topic_partition, 0)
    gaps = shared.gaps_below.get(topic_partition, 0)
    is_kept = stop.is_clean or stop.same_boot
    plan = RecoveryPlan(
        directory=directory,
        recovery_point=recovery_point,
        log_start=offsets.log_starts.get(topic_partition, 0),
        gaps_below=OFFSET_MAX if points is None else max(recovery_point, compacted, gaps),
        compacted_below=OFFSET_MAX if offsets.compacted is None else compacted,
        clean=stop.is_clean,
        trust_indexes=stop.same_boot and stop.is_trusted,
        committed=offsets.high_watermarks.get(topic_partition, 0) if is_kept else 0,
        rewrites=stop.same_boot and not stop.is_clean,
        interval_bytes=config.index_interval_bytes,
        now_ms=shared.now_ms,
    )
    recovered = recover(shared.disk, plan)
    report = None
    if recovered.truncated_bytes or recovered.scanned_bytes or recovered.damage:
        report = RecoveryReport.of(topic_partition, recovered)
        log_recovery(report)
    return make_log(shared, topic_partition, topic_id, config, recovered, recovery_point), report
