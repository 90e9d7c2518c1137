"""A member's details, and its valid epochs."""

import pytest
from broker.core.groups.consumer.member import (
    ConsumerMember,
    MemberState,
    epoch_problem,
    is_within,
    owned_by,
)
from tidemark.codec.group_records_consumer import ConsumerGroupCurrentMemberAssignmentValue
from tidemark.model.assignment import Assignment, TopicIdPartitions, assignment_of, listed
from unit.broker.core.groups.consumer.worlds import heartbeat, topic_id

A, B = topic_id(1), topic_id(2)
HAS: Assignment = {A: frozenset({0, 1})}
LESS: Assignment = {A: frozenset({0})}
MORE: Assignment = {A: frozenset({0, 1, 2})}
GIVES_UP: Assignment = {B: frozenset({7})}
MEMBER = ConsumerMember(
    "m", member_epoch=5, previous_epoch=4, assigned=HAS, pending_revocation=GIVES_UP
)


@pytest.mark.parametrize("owned", [None, {}, HAS, MORE])
def test_the_current_epoch_is_good_whatever_the_member_owns(owned: Assignment | None) -> None:
    assert epoch_problem(MEMBER, 5, owned) is None


@pytest.mark.parametrize("owned", [{}, LESS, HAS, {**HAS, **GIVES_UP}])
def test_the_epoch_before_is_good_for_who_owns_no_more_than_it_was_given(
    owned: Assignment,
) -> None:
    assert epoch_problem(MEMBER, 4, owned) is None


@pytest.mark.parametrize("owned", [None, MORE, {B: frozenset({0})}])
def test_the_epoch_before_is_fenced_for_who_owns_more_or_does_not_say(
    owned: Assignment | None,
) -> None:
    assert epoch_problem(MEMBER, 4, owned) is not None


@pytest.mark.parametrize("epoch", [1, 3, 6])
def test_any_other_epoch_is_fenced(epoch: int) -> None:
    assert epoch_problem(MEMBER, epoch, {}) is not None


def test_what_a_heartbeat_leaves_out_stays() -> None:
    said = heartbeat(
        "m",
        0,
        instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=9,
        subscribed_topic_names=("b", "a", "a"),
        subscribed_topic_regex="x.*",
        server_assignor="range",
    )
    member = ConsumerMember("m").updated(said)
    assert member.about.subscribed_topic_names == ("a", "b")
    assert member.updated(heartbeat("m", 1)) is member


def test_an_empty_pattern_takes_the_pattern_back() -> None:
    member = ConsumerMember("m").updated(heartbeat("m", 0, subscribed_topic_regex="x.*"))
    assert member.updated(heartbeat("m", 1, subscribed_topic_regex="")).subscription.regex is None


def test_another_host_is_noticed() -> None:
    member = ConsumerMember("m").updated(heartbeat("m", 0))
    assert member.updated(heartbeat("m", 1, client_host="/10.0.0.1")) is not member


def test_a_member_away_keeps_what_it_has_and_frees_what_it_was_to_give_up() -> None:
    away = MEMBER.away()
    assert away.is_away
    assert away.owned == HAS


def test_a_record_and_a_member_say_the_same() -> None:
    assert ConsumerMember("m").with_value(MEMBER.as_value()) == MEMBER


def test_a_state_of_a_newer_release_is_unknown() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(1, 0, 77, ())
    assert ConsumerMember("m").with_value(value).state is MemberState.UNKNOWN


def test_an_assignment_is_listed_in_order() -> None:
    assert listed({B: frozenset({1}), A: frozenset({2, 0})}) == (
        TopicIdPartitions(A, (0, 2)),
        TopicIdPartitions(B, (1,)),
    )


def test_topics_named_twice_or_without_partitions_are_put_together() -> None:
    topics = [TopicIdPartitions(A, (1,)), TopicIdPartitions(A, (0, 1)), TopicIdPartitions(B, ())]
    assert assignment_of(topics) == HAS


def test_is_within_looks_at_every_partition() -> None:
    assert is_within(LESS, HAS)
    assert not is_within(MORE, HAS)


def test_not_saying_what_one_owns_is_not_owning_nothing() -> None:
    assert owned_by(heartbeat("m", 1)) is None
    assert owned_by(heartbeat("m", 1, topic_partitions=())) == {}
