"""The uniform assignor against slow and obvious twins."""

from collections.abc import Mapping, Sequence

import pytest
from broker.core.groups.consumer.assignors import AssignorMember, assign_uniform
from broker.core.groups.consumer.uniform_assignor import Partition, assign_evenly
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.assignment import by_topic, pairs
from tidemark.model.ids import TopicId
from unit.broker.core.groups.consumer.worlds import topic_id

A, B, C = topic_id(1), topic_id(2), topic_id(3)


@st.composite
def equal_subscriptions(draw: st.DrawFn) -> tuple[dict[str, list[Partition]], int]:
    """Members of one topic, each with a part of it, and the number of partitions."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=7, unique=True))
    count = draw(st.integers(0, 20))
    owners = draw(st.lists(st.sampled_from([*names, None]), min_size=count, max_size=count))
    kept: dict[str, list[Partition]] = {name: [] for name in names}
    for partition, owner in enumerate(owners):
        if owner is not None:
            kept[owner].append((A, partition))
    return kept, count


def free_of(kept: Mapping[str, Sequence[Partition]], count: int) -> list[Partition]:
    taken = {one for partitions in kept.values() for one in partitions}
    return [(A, partition) for partition in range(count) if (A, partition) not in taken]


@pytest.mark.feature("A09")
@given(case=equal_subscriptions())
def test_with_equal_subscriptions_no_two_members_differ_by_more_than_one(
    case: tuple[dict[str, list[Partition]], int],
) -> None:
    kept, count = case
    subscriptions = dict.fromkeys(kept, frozenset({A}))
    assigned = assign_evenly(subscriptions, kept, free_of(kept, count))
    sizes = [len(partitions) for partitions in assigned.values()]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1


@given(case=equal_subscriptions())
def test_with_equal_subscriptions_nothing_moves_that_need_not(
    case: tuple[dict[str, list[Partition]], int],
) -> None:
    kept, count = case
    subscriptions = dict.fromkeys(kept, frozenset({A}))
    assigned = assign_evenly(subscriptions, kept, free_of(kept, count))
    stayed = sum(len(set(kept[name]) & set(assigned[name])) for name in kept)
    assert stayed == most_that_can_stay([len(one) for one in kept.values()], count)


def most_that_can_stay(sizes: Sequence[int], count: int) -> int:
    """Slow and obvious: give the larger quotas to those that have most."""
    quota, larger = divmod(count, len(sizes))
    ordered = sorted(sizes, reverse=True)
    return sum(min(size, quota + (place < larger)) for place, size in enumerate(ordered))


@st.composite
def mixed_subscriptions(
    draw: st.DrawFn,
) -> tuple[list[AssignorMember], dict[TopicId, int]]:
    counts = {one: draw(st.integers(1, 4)) for one in (A, B, C)}
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    members = []
    for name in names:
        topics = frozenset(draw(st.sets(st.sampled_from((A, B, C)), min_size=1)))
        had = st.tuples(st.sampled_from(sorted(topics)), st.integers(0, 3))
        members.append(AssignorMember(name, None, topics, by_topic(draw(st.sets(had)))))
    return members, counts


def best_possible(members: Sequence[AssignorMember], counts: Mapping[TopicId, int]) -> list[int]:
    """Slow and obvious: among all possible sizes, those with the least sum of squares."""
    reachable: set[tuple[int, ...]] = {(0,) * len(members)}
    for one, count in counts.items():
        takers = [place for place, member in enumerate(members) if one in member.topics]
        for _ in range(count if takers else 0):
            reachable = {
                (*sizes[:place], sizes[place] + 1, *sizes[place + 1 :])
                for sizes in reachable
                for place in takers
            }
    return sorted(min(reachable, key=lambda sizes: sum(size * size for size in sizes)))


@given(case=mixed_subscriptions())
@settings(max_examples=60, deadline=None)
def test_with_any_subscriptions_it_is_as_even_as_can_be(
    case: tuple[list[AssignorMember], dict[TopicId, int]],
) -> None:
    members, counts = case
    target = assign_uniform(members, counts)
    sizes = sorted(len(list(pairs(assignment))) for assignment in target.values())
    squares = sum(size * size for size in sizes)
    assert squares == sum(size * size for size in best_possible(members, counts))


def subscriber(name: str, *topics: TopicId, **had: Sequence[int]) -> AssignorMember:
    target = by_topic((A, partition) for partition in had.get("a", ()))
    return AssignorMember(name, None, frozenset(topics), target)


def test_who_leaves_is_replaced_and_the_others_keep_what_they_have() -> None:
    target = assign_uniform([subscriber("x", A, a=(0, 3)), subscriber("y", A, a=(1, 4))], {A: 6})
    assert target["x"][A] == {0, 2, 3}
    assert target["y"][A] == {1, 4, 5}


def test_who_joins_gets_a_fair_share_and_no_more_moves() -> None:
    members = [subscriber("x", A, a=(0, 1, 2)), subscriber("y", A, a=(3, 4, 5))]
    target = assign_uniform([*members, subscriber("z", A)], {A: 6})
    assert target["x"][A] == {0, 1}
    assert target["y"][A] == {3, 4}
    assert target["z"][A] == {2, 5}


def test_partitions_are_passed_along_a_chain_of_subscribers() -> None:
    """x reads A; y reads A and B; z reads B. All of A is x's, B is y's: z gets from y, y from x."""
    members = [
        AssignorMember("x", None, frozenset({A}), {A: frozenset(range(4))}),
        AssignorMember("y", None, frozenset({A, B}), {B: frozenset({0, 1})}),
        AssignorMember("z", None, frozenset({B})),
    ]
    target = assign_uniform(members, {A: 4, B: 2})
    assert {name: len(list(pairs(one))) for name, one in target.items()} == {"x": 2, "y": 2, "z": 2}


def test_a_partition_that_two_had_stays_with_one() -> None:
    target = assign_uniform([subscriber("x", A, a=(0,)), subscriber("y", A, a=(0,))], {A: 2})
    assert target == {"x": {A: {0}}, "y": {A: {1}}}


def test_what_is_not_subscribed_or_not_there_any_more_is_let_go() -> None:
    target = assign_uniform([subscriber("x", B, a=(0,)), subscriber("y", A, a=(7,))], {A: 1, B: 1})
    assert target == {"x": {B: {0}}, "y": {A: {0}}}


def test_five_hundred_members_and_thousands_of_partitions_are_assigned_at_once() -> None:
    members = [AssignorMember(f"m{one:03}", None, frozenset({A, B})) for one in range(499)]
    members.append(AssignorMember("odd", None, frozenset({B})))
    target = assign_uniform(members, {A: 2_500, B: 2_500})
    sizes = {len(list(pairs(assignment))) for assignment in target.values()}
    assert sizes == {10}
