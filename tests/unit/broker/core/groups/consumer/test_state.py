"""Logged state, in any order in which compaction leaves the records."""

import pytest
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.consumer.state import (
    ConsumerGroupState,
    GroupState,
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    metadata_record,
    target_record,
)
from tidemark.codec.group_records_consumer import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    RegularExpressionValue,
)
from unit.broker.core.groups.consumer.worlds import World, replayed, topic_id

A = topic_id(1)


def member(member_id: str, *partitions: int, epoch: int = 1) -> ConsumerMember:
    assigned = {A: frozenset(partitions)} if partitions else {}
    return ConsumerMember(member_id, member_epoch=epoch, assigned=assigned)


def state_of(*members: ConsumerMember, epoch: int = 1, assigned_at: int = 1) -> ConsumerGroupState:
    state = ConsumerGroupState("g")
    state.replay(epoch_record("g", epoch))
    state.replay(ConsumerGroupTargetAssignmentMetadataRecord("g", assigned_at))
    for one in members:
        state.replay(metadata_record("g", one))
        state.replay(current_record("g", one))
        state.replay(target_record("g", one.member_id, one.assigned))
    state.check()
    return state


def test_what_is_not_in_the_log_is_dead() -> None:
    assert ConsumerGroupState("g").state is GroupState.DEAD


def test_without_members_it_is_empty() -> None:
    assert state_of().state is GroupState.EMPTY


def test_with_an_older_target_it_is_assigning() -> None:
    assert state_of(member("m"), epoch=2).state is GroupState.ASSIGNING


def test_with_a_member_on_its_way_it_is_reconciling() -> None:
    state = state_of(member("m", epoch=1), epoch=2, assigned_at=2)
    assert state.state is GroupState.RECONCILING


def test_with_all_members_at_the_target_it_is_stable() -> None:
    assert state_of(member("m")).state is GroupState.STABLE


def test_a_member_owns_what_it_has() -> None:
    state = state_of(member("m", 0, 1))
    assert state.owner_of(A, 1) == "m"
    assert state.owner_of(A, 2) is None


def test_tombstones_free_what_a_member_had_and_forget_it() -> None:
    state = state_of(member("m", 0))
    for record in member_tombstones("g", "m"):
        state.replay(record)
        state.check()
    assert state.owner_of(A, 0) is None
    assert "m" not in state.members


def test_after_the_groups_tombstones_it_is_dead() -> None:
    state = state_of(member("m", 0), member("n"))
    for record in group_tombstones(state):
        state.replay(record)
    assert state == ConsumerGroupState("g")


def test_a_member_may_come_in_parts_and_its_tombstones_more_than_once() -> None:
    state = ConsumerGroupState("g")
    state.replay(current_record("g", member("m", 0)))
    for record in (*member_tombstones("g", "m"), *member_tombstones("g", "m")):
        state.replay(record)
    state.check()
    assert not state.members


def test_without_its_current_assignment_a_member_is_about_to_join() -> None:
    state = state_of(member("m", 0))
    state.replay(member_tombstones("g", "m")[0])
    state.check()
    assert state.members["m"].member_epoch == 0


def test_a_partition_handed_on_belongs_to_the_last() -> None:
    state = state_of(member("m", 0), member("n"))
    state.replay(current_record("g", member("m", epoch=2)))
    state.replay(current_record("g", member("n", 0, epoch=2)))
    state.check()
    assert state.owner_of(A, 0) == "n"


def test_two_owners_of_a_partition_are_noticed() -> None:
    state = state_of(member("m", 0), member("n"))
    state.replay(current_record("g", member("n", 0)))
    with pytest.raises(AssertionError, match="two owners"):
        state.check()


def test_an_instance_id_goes_to_who_named_it_last() -> None:
    world = World(a=1)
    world.join("m", "a", instance_id="i")
    world.beat("m", -2, instance_id="i")
    world.join("n", "a", instance_id="i")
    found = world.group.logged.static_member("i")
    assert found is not None
    assert found.member_id == "n"


def test_the_matches_of_a_pattern_are_those_of_its_last_record() -> None:
    state = state_of()
    for names in (("a",), ("a", "b")):
        value = RegularExpressionValue(names, 1, 1)
        state.replay(ConsumerGroupRegularExpressionRecord("g", "a.*", value))
    assert state.matches == {"a.*": {"a", "b"}}
    state.replay(ConsumerGroupRegularExpressionRecord("g", "a.*", None))
    assert state == state_of()


def test_a_record_of_another_group_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        state_of().replay(ConsumerGroupMemberMetadataRecord("other", "m", None))


@pytest.mark.feature("E13")
def test_a_group_is_what_its_records_say() -> None:
    world = World(a=4, b=2)
    world.join("m1", "a", "b", instance_id="i")
    world.join("m2", "a")
    world.settle("m1", "m2")
    world.beat("m2", -1)
    assert replayed(world.log).logged == world.group.logged
    assert replayed(world.group.logged.as_records()).logged == world.group.logged


def test_a_state_is_only_equal_to_a_state() -> None:
    assert state_of() != "g"
