"""Opening the log directories: stamps are checked and logs recovered before anything else."""

import hashlib
import logging
import os
import random
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from tidemark.model.topic_configs import topic_config
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import OsDisk, kernel_boot_id
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig
from broker.storage.checkpoint import NewerVersionError
from broker.storage.log_manager import LogManager
from broker.storage.stamp import StampError

log = logging.getLogger(__name__)


class OpenedDirectories(NamedTuple):
    """The log directories of one broker, locked and loaded."""

    disks: Mapping[LogManager, OsDisk]

    @property
    def managers(self) -> tuple[LogManager, ...]:
        """In the order of log.dirs."""
        return tuple(self.disks)

    @property
    def cluster_id(self) -> str:
        """As the stamps have it; '' where every directory is new."""
        return next((one.stamp.cluster_id for one in self.disks if one.stamp.cluster_id), "")

    @property
    def directory_ids(self) -> list[bytes]:
        """Sixteen bytes each."""
        return [directory_id(one.stamp.directory_id) for one in self.disks]

    @property
    def clean_stop(self) -> bool:
        """Whether the last process closed every log in order."""
        return all(manager.clean_start for manager in self.disks)

    @property
    def previous_broker_epoch(self) -> int:
        """Of the last process, when it closed every log in order; else -1."""
        return min(manager.previous_broker_epoch for manager in self.disks)

    def stamp(self, cluster_id: str) -> None:
        """The broker has joined: new directories are the cluster's from now on. Raises
        ServiceError.
        """
        try:
            for manager in self.disks:
                manager.join_cluster(cluster_id)
        except StampError as refused:
            raise ServiceError(str(refused), ExitCode.IO) from refused

    def unlock(self) -> None:
        """Let another process have them."""
        for disk in self.disks.values():
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
    opened: dict[LogManager, OsDisk] = {}
    for path in config.log_dirs:
        disk = OsDisk(path)
        disk.lock()
        try:
            manager = open_manager(config, disk)
        except (StampError, NewerVersionError) as refused:
            raise ServiceError(f"{disk.root}: {refused}", ExitCode.IO) from refused
        opened[manager] = disk
        log.info(
            "log directory open",
            extra=fields(path=disk.root, logs=len(manager.logs), clean=manager.clean_start),
        )
    directories = OpenedDirectories(opened)
    for manager in opened:
        if manager.stamp.cluster_id not in ("", directories.cluster_id):
            raise ServiceError("log.dirs belong to different clusters; check log.dirs", ExitCode.IO)
    return directories


def open_manager(config: BrokerConfig, disk: OsDisk) -> LogManager:
    """One directory, with this broker's settings."""
    defaults = topic_config({}, config.topic_defaults())
    dice = random.Random(os.urandom(8))
    manager = LogManager.open(
        disk,
        cluster_id=None,
        broker_id=config.broker_id,
        directory_id=str(uuid.uuid4()),
        boot_id=kernel_boot_id(),
        now_ms=Clock().wall_ms(),
        config_of=lambda _: defaults,
        jitter=lambda maximum: dice.randint(0, maximum),
    )
    manager.flush_interval_ms = config.log_flush_interval_ms
    return manager
