"""What a throttled move sets, as Kafka's tool does."""

from tidemark.cli.cluster.reassign_throttle import Flow, throttles
from tidemark.client.admin.admin import ConfigResource
from tidemark.model.topics import TopicPartition


def test_sources_are_throttled_as_leaders_and_who_comes_as_followers() -> None:
    changes = throttles(
        {
            TopicPartition("orders", 0): Flow((1, 2), (3,)),
            TopicPartition("orders", 1): Flow((2, 3), (1,)),
        },
        500,
    )
    topic = {change.name: change.value for change in changes[ConfigResource("topic", "orders")]}
    assert topic == {
        "leader.replication.throttled.replicas": "0:1,0:2,1:2,1:3",
        "follower.replication.throttled.replicas": "0:3,1:1",
    }
    rates = {
        resource.name: {change.name: change.value for change in each}
        for resource, each in changes.items()
        if resource.kind == "broker"
    }
    both = {
        "leader.replication.throttled.rate": "500",
        "follower.replication.throttled.rate": "500",
    }
    assert rates == {"1": both, "2": both, "3": both}


def test_a_change_of_order_copies_nothing_and_is_not_throttled() -> None:
    assert throttles({TopicPartition("orders", 0): Flow((1, 2), ())}, 500) == {}
