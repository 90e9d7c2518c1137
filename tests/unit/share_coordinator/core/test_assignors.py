"""Assignors: all is assigned, evenly, to who subscribes, and little moves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from share_coordinator.core.assignors import (
    ASSIGNORS,
    Assignor,
    AssignorMember,
    Demand,
    assign_by_load,
    assign_simple,
    wanted_by_load,
)
from tidemark.model.assignment import Assignment, pairs
from tidemark.model.ids import TopicId
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import Partition, sizes

A, B, C = (topic_id(number) for number in (1, 2, 3))
ALIKE = frozenset({A, B})
assignors = st.sampled_from(sorted(ASSIGNORS)).map(ASSIGNORS.__getitem__)
counts = st.dictionaries(st.sampled_from((A, B, C)), st.integers(0, 6))
lags = st.dictionaries(
    st.tuples(st.sampled_from((A, B, C)), st.integers(0, 6)), st.integers(0, 100)
)
demands = st.builds(Demand, counts, lags)


def members(count: int, topics: frozenset[TopicId] = ALIKE) -> list[AssignorMember]:
    return [AssignorMember(f"m{number:03}", topics) for number in range(count)]


def kept(
    before: Sequence[AssignorMember], targets: Mapping[str, Assignment]
) -> list[AssignorMember]:
    """These members, with what they were given."""
    return [replace(one, target=targets.get(one.member_id, {})) for one in before]


def placed(targets: Mapping[str, Assignment]) -> Counter[Partition]:
    return Counter(at for target in targets.values() for at in pairs(target))


def moved(before: Sequence[AssignorMember], targets: Mapping[str, Assignment]) -> int:
    """Places that members lose."""
    return sum(len(set(pairs(one.target)) - set(pairs(targets[one.member_id]))) for one in before)


@st.composite
def mixed(draw: st.DrawFn) -> list[AssignorMember]:
    """Members with any subscriptions, and leftovers of a target that may be impossible by now."""
    topics = st.frozensets(st.sampled_from((A, B, C)))
    targets = st.dictionaries(
        st.sampled_from((A, B, C)), st.frozensets(st.integers(0, 8), min_size=1, max_size=3)
    )
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=6))
    return [AssignorMember(name, draw(topics), draw(targets)) for name in names]


@given(assignors, mixed(), demands)
def test_every_partition_that_is_subscribed_to_has_a_member(
    assign: Assignor, group: list[AssignorMember], demand: Demand
) -> None:
    targets = assign(group, demand)
    assert set(targets) == {one.member_id for one in group}
    for one in group:
        assert set(targets[one.member_id]) <= one.topics
    assert set(placed(targets)) == {
        (topic, partition)
        for topic in {topic for one in group for topic in one.topics}
        for partition in range(demand.partition_counts.get(topic, 0))
    }


@given(assignors, mixed(), demands)
def test_the_order_of_members_does_not_matter(
    assign: Assignor, group: list[AssignorMember], demand: Demand
) -> None:
    assert assign(group[::-1], demand) == assign(group, demand)


@given(assignors, st.integers(1, 12), demands)
def test_members_that_subscribe_alike_differ_by_one_at_most(
    assign: Assignor, count: int, demand: Demand
) -> None:
    targets = assign(members(count), demand)
    loads = sizes({name: list(pairs(target)) for name, target in targets.items()})
    assert loads[-1] - loads[0] <= 1


@given(st.integers(1, 12), counts)
def test_simple_gives_every_partition_equally_many_members(
    count: int, partition_counts: dict[TopicId, int]
) -> None:
    targets = assign_simple(members(count), Demand(partition_counts))
    total = sum(partition_counts.get(topic, 0) for topic in ALIKE)
    expected = -(-count // total) if total else 0
    assert set(placed(targets).values()) <= {expected}


@given(assignors, mixed(), demands)
def test_what_is_assigned_stays_while_nothing_changes(
    assign: Assignor, group: list[AssignorMember], demand: Demand
) -> None:
    targets = assign(group, demand)
    assert assign(kept(group, targets), demand) == targets


@pytest.mark.parametrize(("members_count", "partitions"), [(3, 12), (12, 3), (5, 5), (7, 3)])
def test_a_member_that_joins_takes_no_more_than_it_gets(
    members_count: int, partitions: int
) -> None:
    demand, all_members = Demand({A: partitions}), members(members_count + 1)
    before = kept(all_members[:-1], assign_simple(all_members[:-1], demand))
    after = assign_simple([*before, all_members[-1]], demand)
    assert moved(before, after) <= max(1, partitions // members_count)


@pytest.mark.parametrize(("members_count", "partitions"), [(3, 12), (12, 3), (5, 5), (8, 3)])
def test_a_member_that_leaves_moves_only_its_own(members_count: int, partitions: int) -> None:
    demand, all_members = Demand({A: partitions}), members(members_count)
    before = kept(all_members, assign_simple(all_members, demand))[1:]
    shared_before = -(-members_count // partitions)
    shared_after = -(-(members_count - 1) // partitions)
    surplus = max(0, (shared_before - shared_after) * partitions)
    assert moved(before, assign_simple(before, demand)) <= surplus


def test_load_sends_members_to_where_the_lag_is() -> None:
    demand = Demand({A: 4}, {(A, 0): 900, (A, 1): 90, (A, 2): 10})
    found = placed(assign_by_load(members(6, frozenset({A})), demand))
    assert found == {(A, 0): 6, (A, 1): 2, (A, 2): 1, (A, 3): 1}


def test_without_lags_load_is_simple() -> None:
    demand = Demand({A: 4}, {(A, 0): 0})
    group = members(6, frozenset({A}))
    assert assign_by_load(group, demand) == assign_simple(group, demand)


@given(st.integers(1, 10), counts, lags)
def test_more_lag_never_means_fewer_members(
    count: int, partition_counts: dict[TopicId, int], found: dict[Partition, int]
) -> None:
    demand = Demand(partition_counts, found)
    wanted = wanted_by_load(members(count), demand)
    by_lag = sorted(wanted, key=lambda at: found.get(at, 0))
    for less, more in pairwise(by_lag):
        if found.get(less, 0) < found.get(more, 0):
            assert wanted[less] <= wanted[more]
    assert all(1 <= places <= count for places in wanted.values())
