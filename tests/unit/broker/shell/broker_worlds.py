"""Parts of a broker over disks in memory, hosted by an image: no loop, no sockets, a clock that
stands still.
"""

from collections.abc import Callable, Mapping
from typing import Any

from broker.config import BrokerConfig
from broker.shell.broker_server import no_lease_needed
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.hosting import Following, Hosting
from broker.shell.partitions.offset_lookup import OffsetLookup
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.reader import PartitionReader
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.replica_reports import ReplicaReports
from broker.shell.settings import BrokerSettings
from broker.shell.share.state import ShareState
from broker.shell.upkeep.maintenance import Maintenance
from broker.storage.log_manager import LogManager
from manual_clock import ManualClock
from tidemark.codec.records import build_batch
from tidemark.model.ids import (
    BrokerId,
    ControllerEpoch,
    ControllerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    ClusterDelta,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_parts import BrokerParts

ME = BrokerId(1)
OTHER = BrokerId(2)


def topic(
    name: str = "orders",
    *,
    number: int = 1,
    partitions: int = 1,
    leader: BrokerId = ME,
    epoch: int = 0,
    configs: Mapping[str, str] | None = None,
) -> TopicImage:
    """A topic of id ``number`` on one broker."""
    return TopicImage(
        name,
        TopicId(bytes([number]) * 16),
        dict(configs or {}),
        tuple(
            PartitionImage(
                index, (leader,), (leader,), leader, LeaderEpoch(epoch), PartitionEpoch(0)
            )
            for index in range(partitions)
        ),
    )


def hosting_of(
    parts: BrokerParts,
    following: Following | None = None,
    on_new_log: Callable[[LogManager, TopicPartition], None] = lambda *_: None,
) -> Hosting:
    """Hosts what the metadata of ``parts`` shows."""
    return Hosting(
        parts.facts,
        following,
        metadata=parts.metadata,
        table=parts.partitions.table,
        disks=parts.partitions.disks,
        parked=parts.partitions.parked,
        group_commits=parts.partitions.group_commits,
        counters=parts.counters,
        moves=parts.replication.moves,
        on_new_log=on_new_log,
        on_retried=parts.groups.coordinator.sync,
    )


class World:
    """One broker and what it is told."""

    def __init__(
        self,
        *disks: MemDisk,
        following: Following | None = None,
        has_lease: Callable[[], bool] = no_lease_needed,
        on_new_log: Callable[[LogManager, TopicPartition], None] = lambda *_: None,
        clock: Clock | None = None,
        share_state: ShareState | None = None,
        **settings: Any,
    ) -> None:
        self.disks = disks or (MemDisk(),)
        self.clock = ManualClock()
        self.parts = BrokerParts(
            BrokerConfig(broker_id=int(ME), **settings),
            [self.open(disk) for disk in self.disks],
            clock=clock or self.clock,
            has_lease=has_lease,
            share_state=share_state,
        )
        self.hosting = hosting_of(self.parts, following, on_new_log)
        self._image = ClusterImage()

    @property
    def table(self) -> PartitionTable:
        return self.parts.partitions.table

    @property
    def appender(self) -> PartitionAppender:
        return self.parts.partitions.appender

    @property
    def reader(self) -> PartitionReader:
        return self.parts.partitions.reader

    @property
    def parked(self) -> ParkingLot:
        return self.parts.partitions.parked

    @property
    def lookup(self) -> OffsetLookup:
        return self.parts.partitions.lookup

    def open(self, disk: MemDisk) -> LogManager:
        return LogManager.open(
            disk,
            cluster_id="cluster",
            broker_id=int(ME),
            directory_id="d",
            boot_id="boot",
            now_ms=self.clock.wall_ms(),
        )

    def show(self, *topics: TopicImage) -> None:
        """A snapshot."""
        self._image = ClusterImage(
            position=FeedPosition(ControllerEpoch(1), self._image.position.version + 1),
            topics={one.name: one for one in topics},
            topics_by_id={one.topic_id: one for one in topics},
        )
        self.parts.metadata.take(self._image)

    def change(self, **delta: Any) -> None:
        """A delta."""
        changes = ClusterDelta(**delta)
        position = FeedPosition(ControllerEpoch(1), self._image.position.version + 1)
        self._image = self._image.apply(changes, position, ControllerId(1))
        self.parts.metadata.take(self._image, changes)

    def hosted(self, name: str = "orders", partition: int = 0) -> HostedPartition:
        return self.table.by_name[name, partition]

    def append(
        self, value: bytes = b"x", *, acks: int = 1, partition: int = 0, **fields: Any
    ) -> Any:
        batch = build_batch([(self.clock.wall_ms(), None, value, ())], **fields)
        return self.appender.append(
            self.hosted(partition=partition),
            memoryview(bytearray(batch)),
            acks=acks,
            now_ms=self.clock.wall_ms(),
        )

    def read(self, offset: int = 0) -> Any:
        return self.reader.read(self.hosted(), offset, bytes_max=1 << 20)


def reports_of(world: World) -> ReplicaReports:
    """Reports of unsound replicas to the controller of ``world``."""
    parts = world.parts
    return ReplicaReports(
        parts.facts,
        parts.cluster.registration,
        parts.cluster.controller,
        metadata=parts.metadata,
        live=parts.cluster.live,
        table=parts.partitions.table,
        disks=parts.partitions.disks,
        suspects=parts.replication.suspects,
        hosting=world.hosting,
    )


def maintenance(world: World, settings: BrokerSettings | None = None) -> Maintenance:
    """The loops over the disks of ``world``."""
    parts = world.parts
    return Maintenance(
        parts.facts,
        world.hosting,
        reports_of(world),
        settings or BrokerSettings(parts.facts, parts.metadata),
        table=parts.partitions.table,
        disks=parts.partitions.disks,
        log_moves=parts.partitions.log_moves,
        counters=parts.counters,
        group_commits=parts.partitions.group_commits,
        on_replica_synced=lambda _: None,
    )
