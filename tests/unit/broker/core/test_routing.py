"""The error for a partition that is not hosted here."""

import pytest
from broker.core.routing import error_elsewhere
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import PartitionImage, TopicImage

HERE, OTHER = BrokerId(1), BrokerId(2)


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, ErrorCode.KAFKA_STORAGE_ERROR),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_the_error_names_why_it_is_not_here(partition: int, expected: ErrorCode) -> None:
    states = tuple(
        PartitionImage(number, (leader,), (leader,), leader, LeaderEpoch(0), PartitionEpoch(0))
        for number, leader in enumerate((HERE, OTHER))
    )
    topic = TopicImage("orders", TopicId(bytes(16)), {}, states)
    assert error_elsewhere(topic, partition, HERE) is expected
