"""Opening of the log directories: stamps are checked and logs recovered before anything else."""

import hashlib
import logging
import os
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tidemark.model.topic_configs import TopicConfig, topic_config
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import DirectoryInUseError, OsDisk, kernel_boot_id
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import Disk, DiskError, DiskFullError, ExhaustedError

from broker.config import BrokerConfig
from broker.storage.checkpoint import NewerVersionError
from broker.storage.directory import OPEN_FILES_MAX
from broker.storage.disk_failures import DiskFailures
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.moved_logs import settle_moves
from broker.storage.recovery_progress import DirectoryProgress, RecoveryProgress
from broker.storage.stamp import StampError

log = logging.getLogger(__name__)


class OpenedDirectories(NamedTuple):
    """The log directories of one broker, locked and loaded."""

    managers: tuple[LogManager, ...]
    """Managers in the order of log.dirs."""
    boot_id: str
    """Boot id of the kernel: unsynced bytes survive while it is the same."""
    locked: Sequence[OsDisk] = ()
    failed: tuple[str, ...] = ()
    """Directories that could not be opened, as log.dirs names them."""

    @property
    def cluster_id(self) -> str:
        """Cluster id of the stamps; '' if every directory is new."""
        return next((one.stamp.cluster_id for one in self.managers if one.stamp.cluster_id), "")

    @property
    def directory_ids(self) -> list[bytes]:
        """Ids of the directories, sixteen bytes each."""
        return [directory_id(one.stamp.directory_id) for one in self.managers]

    @property
    def clean_stop(self) -> bool:
        """True if the last process closed every log in order."""
        return all(manager.clean_start for manager in self.managers)

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last process if it closed every log in order; else -1."""
        return min(manager.previous_broker_epoch for manager in self.managers)

    def stamp(self, cluster_id: str) -> None:
        """Write the cluster id into new directories: the broker has joined. Raises ServiceError."""
        try:
            for manager in self.managers:
                manager.join_cluster(cluster_id)
        except StampError as refused:
            raise ServiceError(str(refused), ExitCode.IO) from refused

    def unlock(self) -> None:
        """Unlock the directories for another process."""
        for disk in self.locked:
            disk.unlock()


def directory_id(text: str) -> bytes:
    """Return a stamp's text as sixteen bytes; text that is no UUID (a copied Kafka directory) is
    digested.
    """
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return hashlib.sha256(text.encode()).digest()[:16]


def open_directories(
    config: BrokerConfig,
    open_files_max: int = OPEN_FILES_MAX,
    progress: RecoveryProgress | None = None,
) -> OpenedDirectories:
    """Lock and load every directory. One of several that fails is left out. Raises ServiceError for
    one that must not be used, and DiskError when none is left. ``progress`` is kept up to date.
    """
    disks: dict[str, OsDisk] = {}
    failed: dict[str, DiskError] = {}
    dice = random.Random(os.urandom(8))
    for path in config.log_dirs:
        try:
            disk = OsDisk(path)
            disk.lock()
        except (DirectoryInUseError, ExhaustedError):
            raise
        except DiskError as failure:
            failed[path] = failure
        else:
            disks[path] = disk
    opened = load_directories(
        config,
        disks,
        memory=_memory(config.runtime_dir),
        boot_id=kernel_boot_id(),
        clock=Clock(),
        jitter=lambda maximum: dice.randint(0, maximum),
        failed=failed,
        open_files_max=open_files_max,
        progress=progress,
    )
    return opened._replace(locked=tuple(disks.values()))


def _memory(runtime_dir: str) -> Disk | None:
    """Place for notes of failed disks; None where it cannot be had."""
    path = f"{runtime_dir}/tidemark-{os.getuid()}/failed-disks"
    try:
        disk, probe = OsDisk(path), f".probe-{uuid.uuid4()}"  # other brokers may start here too
        disk.replace_whole(probe, b"", sync=False)
        disk.remove(probe)
        return disk
    except DiskError as failure:
        words = fields(path=path, reason=str(failure), remedy="set runtime.dir")
        log.warning("disk failures cannot be recorded in memory", extra=words)
        return None


def load_directories(
    config: BrokerConfig,
    disks: Mapping[str, Disk],
    *,
    memory: Disk | None,
    boot_id: str,
    clock: Clock,
    jitter: Callable[[int], int],
    failed: Mapping[str, DiskError] = MappingProxyType({}),
    new_directory_ids: Mapping[str, str] = MappingProxyType({}),
    open_files_max: int = OPEN_FILES_MAX,
    progress: RecoveryProgress | None = None,
) -> OpenedDirectories:
    """Load directories, by path, that are locked already. ``memory`` keeps notes of failed disks
    while the machine runs. ``failed``: directories that could not be locked. ``new_directory_ids``:
    ids for empty directories; a random one is drawn where none is given. Raises as
    ``open_directories`` does.
    """
    managers: list[LogManager] = []
    failures: DiskFailures | None = None
    failed = dict(failed)
    shown = progress or RecoveryProgress(disks)
    shown.leave_out(failed)
    for path, disk in disks.items():
        try:
            failures = failures or DiskFailures(disks.values(), memory)
            manager = open_manager(
                config,
                disk,
                boot_id=boot_id,
                clock=clock,
                jitter=jitter,
                new_directory_id=new_directory_ids.get(path, ""),
                failures=failures,
                open_files_max=open_files_max,
                progress=shown.of(path),
            )
        except (StampError, NewerVersionError) as refused:
            raise ServiceError(f"{path}: {refused}", ExitCode.IO) from refused
        except (DiskFullError, ExhaustedError):
            raise
        except DiskError as failure:
            failed[path] = failure
            continue
        finally:
            shown.of(path).finish()
        managers.append(manager)
        log.info(
            "log directory open",
            extra=fields(path=path, logs=len(manager.logs), clean=manager.clean_start),
        )
    for path, reason in failed.items():
        if not managers:
            raise reason
        log.error("log directory left out", extra=fields(path=path, reason=str(reason)))
    directories = OpenedDirectories(tuple(managers), boot_id, failed=tuple(failed))
    for manager in managers:
        if manager.stamp.cluster_id not in ("", directories.cluster_id):
            raise ServiceError("log.dirs belong to different clusters; check log.dirs", ExitCode.IO)
    for void in settle_moves(managers, all_open=not failed):
        log.info("log removed that was moved", extra=fields(partition=str(void.topic_partition)))
    set_copies_aside(managers)
    return directories


def set_copies_aside(managers: Sequence[LogManager]) -> None:
    """Set aside copies of a log that exists in two directories, which happens when one of them was
    away for a while. The copy that reaches further in the later leader epoch is kept, and counts as
    lost. Raises DiskError.
    """
    kept: dict[tuple[bytes, TopicPartition], tuple[LogManager, Log]] = {}
    for manager in managers:
        for topic_partition, one in tuple(manager.logs.items()):
            key = (one.topic_id, topic_partition)
            known = kept.setdefault(key, (manager, one))
            if known[1] is one:
                continue
            worse, better = sorted((known, (manager, one)), key=_reach)
            kept[key] = better
            better[1].health.end_lost = True
            name = worse[0].mark_stray(topic_partition)
            log.warning(
                "second log of a partition set aside",
                extra=fields(partition=str(topic_partition), name=name),
            )


def _reach(copy: tuple[LogManager, Log]) -> tuple[int, int]:
    return int(copy[1].epochs.latest), copy[1].log_end


def open_manager(
    config: BrokerConfig,
    disk: Disk,
    *,
    boot_id: str,
    clock: Clock,
    jitter: Callable[[int], int],
    new_directory_id: str = "",
    failures: DiskFailures | None = None,
    open_files_max: int = OPEN_FILES_MAX,
    progress: DirectoryProgress | None = None,
) -> LogManager:
    """Open one directory with this broker's settings. ``new_directory_id`` is for an empty
    directory; '' draws a random one. Raises StampError, NewerVersionError, DiskError.
    """
    defaults = topic_config({}, config.topic_defaults())
    shown = progress or DirectoryProgress()
    shown.look(disk.list(""))

    def config_of(topic_partition: TopicPartition) -> TopicConfig:
        """Return the configuration with which a log is recovered, which is about to begin."""
        shown.begin(str(topic_partition))
        return defaults

    manager = LogManager.open(
        disk,
        cluster_id=None,
        broker_id=config.broker_id,
        directory_id=new_directory_id or str(uuid.uuid4()),
        boot_id=boot_id,
        now_ms=clock.wall_ms(),
        config_of=config_of,
        jitter=jitter,
        failures=failures,
        open_files_max=open_files_max,
    )
    manager.flush_interval_ms = config.log_flush_interval_ms
    return manager
