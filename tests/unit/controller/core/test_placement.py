from collections import Counter

import pytest
from controller.core.cluster import Loads
from controller.core.placement import check_assignment, node_of, place
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage
from unit.controller.worlds import a_broker

Replicas = tuple[BrokerId, ...]


def placed(
    brokers: list[BrokerImage],
    partition_count: int,
    replication_factor: int,
    *,
    dice: int = 0,
    loads: Loads | None = None,
) -> list[Replicas]:
    return place(
        brokers,
        loads or Loads(),
        (),
        partition_count=partition_count,
        replication_factor=replication_factor,
        dice=dice,
    )


def spread(counts: Counter[BrokerId], brokers: list[BrokerImage]) -> int:
    numbers = [counts[broker.broker_id] for broker in brokers]
    return max(numbers) - min(numbers)


@st.composite
def clusters(draw: st.DrawFn) -> list[BrokerImage]:
    """Up to nine brokers, on nodes and racks that may hold several of them."""
    count = draw(st.integers(1, 9))
    nodes = draw(st.integers(1, count))
    racks = draw(st.integers(1, 3))
    return [
        a_broker(number, node=f"node-{number % nodes}", rack=f"rack-{number % nodes % racks}")
        for number in range(1, count + 1)
    ]


@pytest.mark.feature("H06")
def test_ten_partitions_with_three_replicas_spread_evenly_over_three_brokers() -> None:
    assignment = placed([a_broker(n) for n in (1, 2, 3)], 10, 3)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert sorted(leaders.values()) == [3, 3, 4]
    assert all(len(set(replicas)) == 3 for replicas in assignment)


@pytest.mark.feature("H06")
@given(clusters(), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_leaders_of_a_topic_differ_by_at_most_one_between_brokers(
    brokers: list[BrokerImage], partition_count: int, dice: int
) -> None:
    assignment = placed(brokers, partition_count, 1, dice=dice)
    assert spread(Counter(replicas[0] for replicas in assignment), brokers) <= 1


@given(clusters(), st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_no_two_replicas_share_a_node_and_racks_are_used_evenly(
    brokers: list[BrokerImage], partition_count: int, replication_factor: int, dice: int
) -> None:
    nodes = {broker.broker_id: node_of(broker) for broker in brokers}
    racks = {broker.broker_id: broker.rack for broker in brokers}
    if replication_factor > len(set(nodes.values())):
        with pytest.raises(TidemarkError):
            placed(brokers, partition_count, replication_factor, dice=dice)
        return
    for replicas in placed(brokers, partition_count, replication_factor, dice=dice):
        assert len({nodes[broker] for broker in replicas}) == replication_factor
        used = {racks[broker] for broker in replicas}
        assert len(used) == min(replication_factor, len(set(racks.values())))


@given(st.integers(3, 9), st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_replicas_are_even_too_where_every_broker_has_its_node(
    count: int, partition_count: int, replication_factor: int, dice: int
) -> None:
    brokers = [a_broker(number) for number in range(count)]
    assignment = placed(brokers, partition_count, replication_factor, dice=dice)
    assert spread(Counter(broker for replicas in assignment for broker in replicas), brokers) <= 1
    assert spread(Counter(replicas[0] for replicas in assignment), brokers) <= 1


@pytest.mark.feature("H06")
def test_topics_of_one_partition_go_where_the_fewest_leaders_are() -> None:
    brokers, loads = [a_broker(n) for n in (1, 2, 3)], Loads()
    for dice in range(9):
        loads.add(placed(brokers, 1, 1, dice=dice, loads=loads))
    assert loads.preferred == {1: 3, 2: 3, 3: 3}


def test_an_empty_broker_does_not_get_a_whole_new_topic() -> None:
    loads = Loads(Counter({BrokerId(1): 50, BrokerId(2): 50}), Counter())
    assignment = placed([a_broker(n) for n in (1, 2, 3)], 6, 1, loads=loads)
    assert Counter(replicas[0] for replicas in assignment) == {1: 2, 2: 2, 3: 2}


def test_a_fenced_broker_gets_no_replica_while_live_ones_suffice() -> None:
    brokers = [a_broker(1), a_broker(2), a_broker(3, fenced=True)]
    assert all(3 not in replicas for replicas in placed(brokers, 8, 2))


def test_a_fenced_broker_follows_where_live_ones_do_not_suffice() -> None:
    brokers = [a_broker(1), a_broker(2), a_broker(3, fenced=True)]
    assignment = placed(brokers, 4, 3)
    assert {replicas[-1] for replicas in assignment} == {3}


@pytest.mark.parametrize(
    ("brokers", "words"),
    [
        ([a_broker(1)], "only 1 broker(s) are registered"),
        ([], "only 0 broker(s) are registered"),
        ([a_broker(n, fenced=True) for n in (1, 2)], "All brokers are currently fenced"),
        ([a_broker(n, node="one") for n in (1, 2)], "only 1 node(s) have brokers"),
    ],
)
def test_too_few_brokers_are_refused_with_a_reason(brokers: list[BrokerImage], words: str) -> None:
    with pytest.raises(TidemarkError) as refused:
        placed(brokers, 1, 2)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ((), "empty replica list"),
        ((1, 1), "the broker 1 more than once"),
        ((1, 7), "broker 7, but no such broker"),
        ((1,), "1 replica(s), but this is not consistent"),
        ((1, 2), "2 replicas of one partition on node shared"),
        ((3, 4), "are fenced"),
    ],
)
def test_an_assignment_by_hand_is_checked(replicas: tuple[int, ...], words: str) -> None:
    known = [a_broker(1, node="shared"), a_broker(2, node="shared")]
    known += [a_broker(3, fenced=True), a_broker(4, fenced=True)]
    brokers = {broker.broker_id: broker for broker in known}
    with pytest.raises(TidemarkError) as refused:
        check_assignment(tuple(map(BrokerId, replicas)), brokers, 2)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in refused.value.message
