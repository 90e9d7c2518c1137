"""Opening the log directories: stamps are checked and logs recovered before anything else."""

import hashlib
import logging
import os
import random
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidemark.model.topic_configs import topic_config
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import OsDisk, kernel_boot_id
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import Disk

from broker.config import BrokerConfig
from broker.storage.checkpoint import NewerVersionError
from broker.storage.log_manager import LogManager
from broker.storage.stamp import StampError

log = logging.getLogger(__name__)


class OpenedDirectories(NamedTuple):
    """The log directories of one broker, locked and loaded."""

    managers: tuple[LogManager, ...]
    """In the order of log.dirs."""
    boot_id: str
    """Of the machine's kernel: unsynced bytes are still there while it is the same."""
    locked: Sequence[OsDisk] = ()

    @property
    def cluster_id(self) -> str:
        """As the stamps have it; '' where every directory is new."""
        return next((one.stamp.cluster_id for one in self.managers if one.stamp.cluster_id), "")

    @property
    def directory_ids(self) -> list[bytes]:
        """Sixteen bytes each."""
        return [directory_id(one.stamp.directory_id) for one in self.managers]

    @property
    def clean_stop(self) -> bool:
        """Whether the last process closed every log in order."""
        return all(manager.clean_start for manager in self.managers)

    @property
    def previous_broker_epoch(self) -> int:
        """Of the last process, when it closed every log in order; else -1."""
        return min(manager.previous_broker_epoch for manager in self.managers)

    def stamp(self, cluster_id: str) -> None:
        """The broker has joined: new directories are the cluster's from now on. Raises
        ServiceError.
        """
        try:
            for manager in self.managers:
                manager.join_cluster(cluster_id)
        except StampError as refused:
            raise ServiceError(str(refused), ExitCode.IO) from refused

    def unlock(self) -> None:
        """Let another process have them."""
        for disk in self.locked:
            disk.unlock()


def directory_id(text: str) -> bytes:
    """The stamp's text as sixteen bytes; one that is no UUID (a copied Kafka directory) by its
    digest.
    """
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return hashlib.sha256(text.encode()).digest()[:16]


def open_directories(config: BrokerConfig) -> OpenedDirectories:
    """Lock and load every directory. Raises ServiceError for one that must not be used, DiskError
    for a failing one.
    """
    managers: list[LogManager] = []
    locked: list[OsDisk] = []
    boot_id = kernel_boot_id()
    dice = random.Random(os.urandom(8))
    for path in config.log_dirs:
        disk = OsDisk(path)
        disk.lock()
        try:
            manager = open_manager(
                config,
                disk,
                boot_id=boot_id,
                clock=Clock(),
                jitter=lambda maximum: dice.randint(0, maximum),
            )
        except (StampError, NewerVersionError) as refused:
            raise ServiceError(f"{disk.root}: {refused}", ExitCode.IO) from refused
        managers.append(manager)
        locked.append(disk)
        log.info(
            "log directory open",
            extra=fields(path=disk.root, logs=len(manager.logs), clean=manager.clean_start),
        )
    directories = OpenedDirectories(tuple(managers), boot_id, locked)
    for manager in managers:
        if manager.stamp.cluster_id not in ("", directories.cluster_id):
            raise ServiceError("log.dirs belong to different clusters; check log.dirs", ExitCode.IO)
    return directories


def open_manager(
    config: BrokerConfig,
    disk: Disk,
    *,
    boot_id: str,
    clock: Clock,
    jitter: Callable[[int], int],
    new_directory_id: str = "",
) -> LogManager:
    """One directory, with this broker's settings. ``new_directory_id`` is for an empty one; '': as
    is drawn. Raises StampError, NewerVersionError, DiskError.
    """
    defaults = topic_config({}, config.topic_defaults())
    manager = LogManager.open(
        disk,
        cluster_id=None,
        broker_id=config.broker_id,
        directory_id=new_directory_id or str(uuid.uuid4()),
        boot_id=boot_id,
        now_ms=clock.wall_ms(),
        config_of=lambda _: defaults,
        jitter=jitter,
    )
    manager.flush_interval_ms = config.log_flush_interval_ms
    return manager
