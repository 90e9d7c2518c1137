import pytest
from tidemark.client.consumer.near_replicas import NearReplicas
from tidemark.client.wire.metadata_cache import Leader
from tidemark.model.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
LEADER = Leader(1, 7, b"")
LEASE_MS = 1_000


@pytest.fixture
def near() -> NearReplicas:
    made = NearReplicas(LEASE_MS)
    made.use(ORDERS, 2, LEADER, 0)
    return made


@pytest.mark.feature("A06")
def test_a_named_follower_is_used_until_the_leader_is_to_be_asked_again(near: NearReplicas) -> None:
    assert near.broker_for(ORDERS, LEADER, LEASE_MS - 1) == 2
    assert near.broker_for(ORDERS, LEADER, LEASE_MS) == 1
    assert near.broker_for(ORDERS, LEADER, 1) == 1, "once given up it is named again first"


@pytest.mark.feature("A06")
@pytest.mark.parametrize("changed", [Leader(3, 8, b""), Leader(1, 8, b""), Leader(1, 7, b"new")])
def test_another_leader_names_another_follower(near: NearReplicas, changed: Leader) -> None:
    assert near.broker_for(ORDERS, changed, 1) == changed.broker_id


@pytest.mark.feature("A06")
def test_a_follower_that_failed_is_dropped(near: NearReplicas) -> None:
    near.drop(ORDERS)
    assert near.broker_for(ORDERS, LEADER, 1) == 1
