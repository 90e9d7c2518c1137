"""Metadata of topics whose leaders are all that matters."""

from collections.abc import Mapping, Sequence

from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark.model.metadata import (
    BrokerImage,
    ClusterImage,
    FeedPosition,
    PartitionImage,
    TopicImage,
)


def image_of(
    version: int, endpoints: Mapping[int, str], leaders: Mapping[str, Sequence[int]]
) -> ClusterImage:
    """Return an image of brokers by number. ``leaders`` has the leader of each partition of each
    topic (-1: none).
    """
    topics = {
        name: TopicImage(
            name,
            TopicId(name.encode().ljust(16, b".")),
            {},
            tuple(map(_partition, range(len(ids)), ids)),
        )
        for name, ids in leaders.items()
    }
    brokers = {
        BrokerId(number): BrokerImage(
            BrokerId(number), BrokerEpoch(1), b"", (), endpoint, None, "", False
        )
        for number, endpoint in endpoints.items()
    }
    position = FeedPosition(ControllerEpoch(1), version)
    return ClusterImage(position=position, brokers=brokers, topics=topics)


def _partition(number: int, leader: int) -> PartitionImage:
    return PartitionImage(number, (), (), BrokerId(leader), LeaderEpoch(1), PartitionEpoch(1))
