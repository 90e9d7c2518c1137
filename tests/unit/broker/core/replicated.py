"""Replicas of one partition without disks: logs are lists of batches."""

from dataclasses import dataclass, field

from broker.core.leader_epochs import LeaderEpochs
from broker.core.partition import (
    AppendPlan,
    FollowerFetch,
    LogState,
    Partition,
    PartitionLimits,
    Refusal,
)
from broker.core.producers import ProducerTable
from tidemark.codec.record_batch import BatchHeader
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    InstantMs,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import PartitionImage
from tidemark.model.topic_configs import topic_config
from tidemark.model.topics import TopicPartition

WALL = 1_700_000_000_000
SIZE = 100


def a_partition(broker: int, number: int = 0, **configs: str) -> Partition:
    """Return an empty partition without a role."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return Partition(
        TopicPartition("orders", number),
        TopicId(bytes(16)),
        BrokerId(broker),
        limits=PartitionLimits.of(topic_config(settings)),
        state=LogState(0, 0, 0, -1),
        epochs=LeaderEpochs(),
        producers=ProducerTable(),
    )


def state(
    leader: int, isr: tuple[int, ...], *, epoch: int = 5, version: int = 1, replicas: int = 3
) -> PartitionImage:
    """Return a state of the partition in the image."""
    return PartitionImage(
        0,
        tuple(BrokerId(one) for one in range(1, replicas + 1)),
        tuple(map(BrokerId, isr)),
        BrokerId(leader),
        LeaderEpoch(epoch),
        PartitionEpoch(version),
    )


def lead_in(
    partition: Partition, epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> bool:
    """Lead in ``epoch``, if that is not an older one."""
    image = PartitionImage(
        partition.topic_partition.partition,
        tuple(map(BrokerId, replicas)),
        tuple(map(BrokerId, isr)),
        partition.broker_id,
        LeaderEpoch(epoch),
        PartitionEpoch(epoch),
    )
    return partition.lead(image, InstantMs(0))


def follower(number: int = 0) -> Partition:
    """Return a follower of broker 1 in epoch 5."""
    made = a_partition(2, number)
    made.follow(state(1, (1, 2, 3)))
    return made


def header(first: int = 0, *, epoch: int = -1, records: int = 1) -> BatchHeader:
    """Return the header of a batch of ``SIZE`` bytes."""
    return BatchHeader(
        first, SIZE - 12, epoch, 2, 0, 0, records - 1, WALL, WALL, -1, -1, -1, records
    )


@dataclass
class Batch:
    """Offsets, epoch, and the number of the write."""

    header: BatchHeader
    name: int


@dataclass
class PlainReplica:
    """A replica, with its log in memory."""

    broker: int
    partition: Partition
    log: list[Batch] = field(default_factory=list)

    @classmethod
    def of(cls, broker: int, **configs: str) -> "PlainReplica":
        """Create a replica."""
        return cls(broker, a_partition(broker, 0, **configs))

    def take(self, image: PartitionImage, now: InstantMs) -> None:
        """Give the replica its role in the image."""
        part = self.partition
        if image.leader == self.broker:
            if part.lead(image, now):
                part.epochs.assign(part.leader_epoch, part.log_end)
        elif image.leader >= 0:
            part.follow(image)
        else:
            part.become_offline(image.leader, image.leader_epoch)
        part.check()

    def write(self, name: int, *, acks: int = 1) -> Refusal | None:
        """A client's batch of one record."""
        part = self.partition
        plan = part.admit(header(), SIZE, acks=acks, now_ms=WALL)
        if isinstance(plan, Refusal):
            return plan
        assert isinstance(plan, AppendPlan)
        self.log.append(Batch(header(plan.first, epoch=plan.leader_epoch), name))
        part.appended(plan, WALL)
        part.check()
        return None

    def fetch_from(self, leader: "PlainReplica", now: InstantMs, batches_max: int = 3) -> None:
        """Send one fetch, and apply the reply."""
        part, other = self.partition, leader.partition
        asked = FollowerFetch(
            BrokerId(self.broker),
            BrokerEpoch(10),
            part.log_end,
            part.log_end,
            part.bounds.last_epoch,
            part.log_start,
        )
        epoch = part.leader_epoch
        code, diverging = other.judge_fetch(asked, epoch)
        if code:
            return
        if diverging is not None:
            self.cut(part.truncation_for(*diverging))
            return
        other.follower_fetched(asked, now)
        found = [one for one in leader.log if one.header.base_offset >= part.log_end]
        for batch in found[:batches_max]:
            plan = part.admit_replicated(batch.header, SIZE, epoch)
            assert isinstance(plan, AppendPlan), plan
            if plan.leader_epoch > part.epochs.latest:
                part.epochs.assign(plan.leader_epoch, plan.first)
            self.log.append(batch)
            part.appended(plan, WALL)
        part.leader_told(other.high_watermark)
        if other.log_start > part.log_start:
            part.log_start_moved(min(other.log_start, part.high_watermark))
        part.check()

    def cut(self, offset: int) -> None:
        """Truncate the log."""
        self.log = [one for one in self.log if one.header.base_offset < offset]
        self.partition.epochs.truncate_to(offset)
        self.partition.truncated(offset, offset)
        self.partition.check()

    def names(self, end: int) -> list[int]:
        """Return the names of the batches below an offset."""
        return [one.name for one in self.log if one.header.base_offset < end]


NOW = InstantMs(1_000)


def three(isr: tuple[int, ...] = (1, 2, 3), **configs: str) -> list[PlainReplica]:
    """Broker 1 leads."""
    made = [PlainReplica.of(one, **configs) for one in (1, 2, 3)]
    for one in made:
        one.take(state(1, isr), NOW)
    return made
