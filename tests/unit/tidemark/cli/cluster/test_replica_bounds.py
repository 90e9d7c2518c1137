"""Which replicas have all records of their leader, by the ends of their logs."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tidemark.cli.cluster.replica_bounds import LOOKS, with_all_records
from tidemark.client.admin.types import ReplicaBounds
from tidemark.model.topics import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
ENDS = dict[TopicPartition, int]


class Brokers:
    """Ends of logs by broker, one set for each time that it is asked; the last one stays."""

    def __init__(self, ends: Mapping[int, Sequence[ENDS]]) -> None:
        self.ends = {broker: list(each) for broker, each in ends.items()}
        self.asked: list[int] = []

    async def ask(
        self, broker: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ReplicaBounds]:
        self.asked.append(broker)
        left = self.ends[broker]
        ends = left.pop(0) if len(left) > 1 else left[0]
        return {name: ReplicaBounds(0, ends[name]) for name in partitions if name in ends}


def found(brokers: Brokers, followers: dict[TopicPartition, list[int]]) -> dict[str, set[int]]:
    """The followers with all records of broker 1, by topic."""
    result = asyncio.run(with_all_records(brokers.ask, 1, followers))
    return {name.topic: set(each) for name, each in result.items()}


@pytest.mark.feature("AD59")
def test_a_follower_with_the_leaders_end_has_all_and_one_below_it_has_not() -> None:
    brokers = Brokers({1: [{ORDERS: 10, BILLS: 5}], 2: [{ORDERS: 10, BILLS: 4}]})
    assert found(brokers, {ORDERS: [2], BILLS: [2]}) == {"orders": {2}, "bills": set()}
    assert brokers.asked == [1, *[2] * LOOKS]


@pytest.mark.feature("AD59")
def test_a_follower_that_is_as_far_as_the_leader_was_a_moment_later_has_all() -> None:
    brokers = Brokers({1: [{ORDERS: 10}], 2: [{ORDERS: 8}, {ORDERS: 12}], 3: [{ORDERS: 7}]})
    assert found(brokers, {ORDERS: [2, 3]}) == {"orders": {2}}
    assert brokers.asked == [1, 2, 3, 2, 3]


@pytest.mark.feature("AD59")
def test_what_the_leader_does_not_report_is_not_known() -> None:
    assert found(Brokers({1: [{}], 2: [{ORDERS: 10}]}), {ORDERS: [2]}) == {}


@pytest.mark.feature("AD59")
def test_a_follower_that_reports_nothing_counts_as_behind_and_is_asked_once() -> None:
    brokers = Brokers({1: [{ORDERS: 10}], 2: [{}]})
    assert found(brokers, {ORDERS: [2]}) == {"orders": set()}
    assert brokers.asked == [1, 2]


def test_nobody_is_asked_about_no_partition() -> None:
    brokers = Brokers({})
    assert (found(brokers, {}), brokers.asked) == ({}, [])
