"""A broker that leads (or follows) a partition of three replicas, and what its followers say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from broker.shell.broker_server import no_lease_needed
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.shell.replication.replica_reader import Replica, ReplicaReader
from tidemark.kafka.fetch import FetchPartition
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import BrokerImage, PartitionImage, TopicImage
from tidemark.runtime.clock import Clock
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import ME, World, topic

THREE = (ME, BrokerId(2), BrokerId(3))


def partition(
    *,
    leader: int = 1,
    epoch: int = 0,
    version: int = 0,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[BrokerId, ...] = THREE,
) -> PartitionImage:
    """Its state as the controller says."""
    return PartitionImage(
        0,
        replicas,
        tuple(map(BrokerId, isr)),
        BrokerId(leader),
        LeaderEpoch(epoch),
        PartitionEpoch(version),
    )


def replicated(state: PartitionImage, **configs: str) -> TopicImage:
    """``orders`` with one partition."""
    made = topic(configs={name.replace("_", "."): value for name, value in configs.items()})
    return TopicImage(made.name, made.topic_id, made.configs, (state,))


def broker(number: int, *, fenced: bool = False, shutting_down: bool = False) -> BrokerImage:
    """One of them; its broker epoch is ten times its number."""
    return BrokerImage(
        BrokerId(number),
        BrokerEpoch(number * 10),
        bytes(16),
        (),
        "",
        None,
        "",
        fenced,
        shutting_down=shutting_down,
    )


def replica_reader(
    parts: BrokerParts, on_follower: Callable[[HostedPartition], None]
) -> ReplicaReader:
    """As the broker's own, but for ``on_follower``."""
    return ReplicaReader(
        parts.partitions.reader,
        clock=parts.facts.clock,
        throttle=parts.replication.replica_reader._throttle,
        suspects=parts.replication.suspects,
        parked=parts.partitions.parked,
        on_follower=on_follower,
    )


class LeaderWorld(World):
    """A broker that leads ``orders-0``."""

    def __init__(
        self,
        state: PartitionImage | None = None,
        *,
        has_lease: Callable[[], bool] = no_lease_needed,
        clock: Clock | None = None,
        **configs: str,
    ) -> None:
        super().__init__(has_lease=has_lease, clock=clock)
        self.parked.requests._on_earlier = None  # no loop here: deadlines do not pass
        reader = replica_reader(self.parts, on_follower=lambda _: None)
        self.parts.replication = replace(self.parts.replication, replica_reader=reader)
        self.show(replicated(state or partition(), **configs))
        self.change(brokers_changed=tuple(map(broker, (1, 2, 3))))

    def fetch(self, follower: int, offset: int, **fields: Any) -> ReadOutcome:
        """A follower's fetch arrives and is read for."""
        want = FetchPartition(0, fields.pop("leader_epoch", 0), offset, -1, 0, 1 << 20)
        want = want._replace(**fields)
        replica = Replica(BrokerId(follower), BrokerEpoch(follower * 10))
        now = InstantMs(self.clock.now_ms())
        return self.parts.replication.replica_reader.read(
            self.hosted(), want, replica, bytes_max=1 << 20, arrived_at=now
        )

    @property
    def high_watermark(self) -> int:
        return self.hosted().partition.high_watermark
