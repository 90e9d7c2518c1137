from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.assignment import (
    Assignment,
    TopicIdPartitions,
    assignment_of,
    by_topic,
    listed,
    pairs,
)
from tidemark.model.ids import TopicId

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
assignments = st.sets(st.tuples(st.sampled_from((A, B)), st.integers(0, 9))).map(by_topic)


@given(assignments)
def test_every_form_holds_the_same_partitions(assignment: Assignment) -> None:
    assert assignment_of(listed(assignment)) == assignment
    assert by_topic(pairs(assignment)) == assignment


def test_topics_named_twice_are_put_together() -> None:
    named = (TopicIdPartitions(A, (1,)), TopicIdPartitions(B, ()), TopicIdPartitions(A, (0, 1)))
    assert assignment_of(named) == {A: frozenset({0, 1})}


def test_lists_are_in_order() -> None:
    assert listed({B: frozenset({2, 1}), A: frozenset({0})}) == (
        TopicIdPartitions(A, (0,)),
        TopicIdPartitions(B, (1, 2)),
    )
