"""A broker's node over disks in memory, hosted by an image: no loop, no sockets, a clock that
stands still.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from broker.config import BrokerConfig
from broker.shell.node import BrokerNode, no_lease_needed
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.hosting import Following, Hosting
from broker.shell.replication.replica_reports import ReplicaReports
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
from tidemark.storage.mem_disk import MemDisk

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
    node: BrokerNode,
    following: Following | None = None,
    on_new_log: Callable[[LogManager, TopicPartition], None] = lambda *_: None,
) -> Hosting:
    """Hosts what the metadata of ``node`` shows."""
    return Hosting(
        node.facts,
        following,
        metadata=node.metadata,
        table=node.table,
        disks=node.disks,
        parked=node.parked,
        group_commits=node.group_commits,
        counters=node.counters,
        on_new_log=on_new_log,
    )


class World:
    """One broker and what it is told."""

    def __init__(
        self,
        *disks: MemDisk,
        following: Following | None = None,
        has_lease: Callable[[], bool] = no_lease_needed,
        on_new_log: Callable[[LogManager, TopicPartition], None] = lambda *_: None,
        **settings: Any,
    ) -> None:
        self.disks = disks or (MemDisk(),)
        self.clock = ManualClock()
        nobody = cast("Any", None)
        self.node = BrokerNode(
            BrokerConfig(broker_id=int(ME), **settings),
            [self.open(disk) for disk in self.disks],
            clock=self.clock,
            controller=nobody,
            producer_ids=nobody,
            workers=nobody,
            draw_session_id=lambda: 1,
            has_lease=has_lease,
        )
        self.hosting = hosting_of(self.node, following, on_new_log)
        self._image = ClusterImage()

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
        self.node.metadata.take(self._image)

    def change(self, **delta: Any) -> None:
        """A delta."""
        changes = ClusterDelta(**delta)
        position = FeedPosition(ControllerEpoch(1), self._image.position.version + 1)
        self._image = self._image.apply(changes, position, ControllerId(1))
        self.node.metadata.take(self._image, changes)

    def hosted(self, name: str = "orders", partition: int = 0) -> HostedPartition:
        return self.node.table.by_name[name, partition]

    def append(
        self, value: bytes = b"x", *, acks: int = 1, partition: int = 0, **fields: Any
    ) -> Any:
        batch = build_batch([(self.clock.wall_ms(), None, value, ())], **fields)
        return self.node.appender.append(
            self.hosted(partition=partition),
            memoryview(bytearray(batch)),
            acks=acks,
            now_ms=self.clock.wall_ms(),
        )

    def read(self, offset: int = 0) -> Any:
        return self.node.reader.read(self.hosted(), offset, bytes_max=1 << 20)


def reports_of(world: World) -> ReplicaReports:
    """Reports of unsound replicas to the controller of ``world``."""
    node = world.node
    return ReplicaReports(
        node.facts,
        node.registration,
        node.controller,
        metadata=node.metadata,
        live=node.live,
        table=node.table,
        disks=node.disks,
        suspects=node.suspects,
        hosting=world.hosting,
    )


def maintenance(world: World) -> Maintenance:
    """The loops over the disks of ``world``."""
    node = world.node
    return Maintenance(
        node.facts,
        world.hosting,
        reports_of(world),
        table=node.table,
        disks=node.disks,
        log_moves=node.log_moves,
        group_commits=node.group_commits,
        on_replica_synced=lambda _: None,
    )
