"""Properties of any assignor, and of the range assignor."""

from collections.abc import Mapping

import pytest
from broker.core.groups.consumer.assignors import ASSIGNORS, AssignorMember, assign_range
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.assignment import Assignment, by_topic, pairs
from tidemark.model.ids import TopicId
from unit.broker.core.groups.consumer.worlds import topic_id

A, B, C = topic_id(1), topic_id(2), topic_id(3)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[AssignorMember], dict[TopicId, int]]:
    """Members with any subscriptions and any previous targets, even impossible ones."""
    counts = draw(st.dictionaries(st.sampled_from((A, B, C)), st.integers(0, 7), min_size=1))
    topics = st.sampled_from(sorted(counts))
    partitions = st.tuples(st.sampled_from((A, B, C)), st.integers(0, 8))
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=6, unique=True))
    statics = st.sampled_from((None, None, "x"))
    members = [
        AssignorMember(
            name,
            f"{instance}-{name}" if (instance := draw(statics)) else None,
            frozenset(draw(st.sets(topics))),
            by_topic(draw(st.sets(partitions, max_size=5))),
        )
        for name in names
    ]
    return members, counts


@pytest.mark.feature("A09")
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
@settings(max_examples=60)
def test_every_partition_that_anyone_reads_has_one_reader(
    name: str, group: tuple[list[AssignorMember], dict[TopicId, int]]
) -> None:
    members, counts = group
    target = ASSIGNORS[name](members, counts)
    given_out = [one for assignment in target.values() for one in pairs(assignment)]
    read = {topic for member in members for topic in member.topics}
    expected = [(one, partition) for one in sorted(read) for partition in range(counts[one])]
    assert sorted(given_out) == expected


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
@settings(max_examples=60)
def test_nobody_gets_what_it_does_not_subscribe_to(
    name: str, group: tuple[list[AssignorMember], dict[TopicId, int]]
) -> None:
    members, counts = group
    target = ASSIGNORS[name](members, counts)
    assert target.keys() == {member.member_id for member in members}
    for member in members:
        assert target[member.member_id].keys() <= member.topics


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups(), data=st.data())
@settings(max_examples=60)
def test_the_order_of_members_does_not_matter(
    name: str, group: tuple[list[AssignorMember], dict[TopicId, int]], data: st.DataObject
) -> None:
    members, counts = group
    shuffled = data.draw(st.permutations(members))
    assert ASSIGNORS[name](shuffled, counts) == ASSIGNORS[name](members, counts)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
@settings(max_examples=60)
def test_asked_again_nothing_moves(
    name: str, group: tuple[list[AssignorMember], dict[TopicId, int]]
) -> None:
    members, counts = group
    target = ASSIGNORS[name](members, counts)
    again = [
        AssignorMember(one.member_id, one.instance_id, one.topics, target[one.member_id])
        for one in members
    ]
    assert ASSIGNORS[name](again, counts) == target


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_nobody_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name]([], {A: 3}) == {}


def plain(assignment: Assignment) -> Mapping[TopicId, list[int]]:
    return {one: sorted(partitions) for one, partitions in assignment.items()}


def reader(name: str, *topics: TopicId, instance_id: str | None = None) -> AssignorMember:
    return AssignorMember(name, instance_id, frozenset(topics))


def test_range_gives_contiguous_ranges_the_longer_ones_first() -> None:
    target = assign_range([reader("m1", A), reader("m2", A), reader("m3", A)], {A: 8})
    assert plain(target["m1"]) == {A: [0, 1, 2]}
    assert plain(target["m2"]) == {A: [3, 4, 5]}
    assert plain(target["m3"]) == {A: [6, 7]}


@given(count=st.integers(1, 9), readers=st.integers(1, 9))
def test_range_brings_equal_partition_numbers_of_topics_together(count: int, readers: int) -> None:
    members = [reader(f"m{number}", A, B) for number in range(readers)]
    for assignment in assign_range(members, {A: count, B: count}).values():
        assert assignment.get(A) == assignment.get(B)


def test_range_splits_each_topic_among_its_own_subscribers() -> None:
    target = assign_range([reader("m1", A, B), reader("m2", B)], {A: 2, B: 2})
    assert plain(target["m1"]) == {A: [0, 1], B: [0]}
    assert plain(target["m2"]) == {B: [1]}


def test_range_goes_by_instance_ids_so_that_a_restart_moves_nothing() -> None:
    before = assign_range(
        [reader("m1", A, instance_id="i1"), reader("m2", A, instance_id="i2")], {A: 3}
    )
    after = assign_range(
        [reader("z9", A, instance_id="i1"), reader("a0", A, instance_id="i2")], {A: 3}
    )
    assert after == {"z9": before["m1"], "a0": before["m2"]}


def test_range_puts_static_members_before_dynamic_ones() -> None:
    target = assign_range([reader("a", A), reader("b", A, instance_id="i")], {A: 3})
    assert plain(target["b"]) == {A: [0, 1]}


def test_with_more_members_than_partitions_the_last_get_nothing() -> None:
    target = assign_range([reader("m1", A), reader("m2", A)], {A: 1})
    assert target["m2"] == {}
