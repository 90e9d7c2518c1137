"""DiskHealth: the broker's log directories, and immediate effects of a failed directory or a
damaged log. Reports to the controller and repair follow from ``trouble``.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError, DiskFullError, ExhaustedError, File

from broker.core.partition import Role
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot
from broker.storage.directory import LogDamagedError
from broker.storage.index_repairs import IndexMissingError
from broker.storage.log_manager import LogManager

log: Final = logging.getLogger(__name__)


class DiskHealth:
    """The log directories of one broker."""

    def __init__(
        self,
        log_managers: Sequence[LogManager],
        failed_directories: Sequence[str],
        *,
        hosted: Mapping[tuple[str, int], HostedPartition],
        parked: ParkingLot,
        counters: BrokerCounters,
    ) -> None:
        """``failed_directories``: directories of log.dirs that did not open."""
        self.log_managers = tuple(log_managers)
        self.failed_directories = tuple(failed_directories)
        self.failed_before = sum(one.distrusted is not None for one in self.log_managers)
        """Number of directories that are in use although they had failed before this start."""
        self._hosted = hosted
        self._parked = parked
        self._counters = counters
        self.trouble = asyncio.Event()
        """Set when a directory failed or damage was found: the replicas concerned are looked up."""

    def fence_directory(self, manager: LogManager, failure: DiskError) -> None:
        """Take a log directory out of service: for writes if it is full, otherwise for
        everything.
        """
        if isinstance(failure, IndexMissingError):
            return
        manager.fence(failure)
        self._counters.calls_refused += isinstance(failure, ExhaustedError)
        if isinstance(failure, DiskFullError | ExhaustedError):
            return
        for hosted in self._hosted.values():
            if hosted.manager is manager and hosted.partition.role is not Role.FAILED:
                hosted.partition.become_failed()
                self._parked.gone(hosted)
                self.trouble.set()

    def read_failed(self, file: File, failure: DiskError) -> None:
        """Handle a file of a log that could not be read while it was sent."""
        for manager in self.log_managers:
            if manager.disk is file.disk:
                self.fence_directory(manager, failure)

    def note_damage(self, hosted: HostedPartition, damage: LogDamagedError) -> None:
        """Note that bytes of one partition are damaged, once for each request; other partitions
        continue to serve.
        """
        self._counters.damaged_reads += 1
        self.trouble.set()
        log.error(
            "log damaged",
            extra=fields(
                partition=str(hosted.topic_partition),
                path=damage.path,
                position=damage.position,
                reason=damage.reason,
            ),
        )

    def found_damage(self, hosted: HostedPartition, what: str, offset: int) -> None:
        """Note a damaged batch that a reread of the log found, which begins at or after
        ``offset``.
        """
        hosted.log.health.report(what, offset)
        self._counters.damage_found += 1
        self.trouble.set()
        log.error(
            "damage found",
            extra=fields(partition=str(hosted.topic_partition), offset=offset, what=what),
        )

    @property
    def offline_directories(self) -> int:
        """Number of log directories that serve nothing, or only reads."""
        fenced = sum(1 for manager in self.log_managers if manager.fenced is not None)
        return fenced + len(self.failed_directories)

    @property
    def lacks_directory(self) -> bool:
        """True if a log directory is out of service: partitions without a log may be in it."""
        failed = any(manager.failure is not None for manager in self.log_managers)
        return failed or bool(self.failed_directories)
