"""Events are found by comparing images, whatever happened in between."""

from dataclasses import replace

import pytest
from controller.admin.events import changes
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
HERE = PartitionImage(0, (ONE, TWO), (ONE, TWO), ONE, LeaderEpoch(0), PartitionEpoch(0))
UNDER_WAY = replace(HERE, replicas=(THREE, ONE, TWO), adding=(THREE,), removing=(TWO,))
MOVED = replace(HERE, replicas=(THREE, ONE))


def image(partition: PartitionImage) -> ClusterImage:
    topic = TopicImage("orders", TopicId(bytes(16)), {}, (partition,))
    return ClusterImage(cluster_id="here", topics={topic.name: topic})


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (HERE, UNDER_WAY, ["reassignment-started"]),
        (UNDER_WAY, MOVED, ["reassignment-ended"]),
        (HERE, MOVED, ["reassignment-ended"]),
        (HERE, replace(HERE, replicas=(TWO, ONE)), []),
        (HERE, replace(HERE, leader=TWO, isr=(TWO,)), ["leader-changed", "isr-changed"]),
    ],
)
def test_a_move_is_an_event_however_short(
    before: PartitionImage, after: PartitionImage, kinds: list[str]
) -> None:
    assert [kind for kind, _, _ in changes(image(before), image(after))] == kinds
