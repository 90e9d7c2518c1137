from share_coordinator.core.description import describe, listed, not_found
from share_coordinator.core.group_state import ShareGroupState
from tidemark.codec.share_group_records import ShareGroupMetadataRecord, ShareGroupMetadataValue
from tidemark.model.errors import ErrorCode
from unit.share_coordinator.worlds import World


def a_group(name: str, epoch: int) -> ShareGroupState:
    state = ShareGroupState(name)
    if epoch:
        state.replay(ShareGroupMetadataRecord(name, ShareGroupMetadataValue(epoch)))
    return state


def test_a_group_that_is_being_loaded_or_deleted_is_not_listed() -> None:
    groups = [a_group("a", 1), a_group("b", 0)]
    assert [one.group_id for one in listed(groups, ()).groups] == ["a"]
    assert listed(groups, ("stable",)).groups == ()


def test_a_topic_that_was_deleted_has_no_name() -> None:
    world = World(t=1, u=1)
    world.join("a", "t", "u")
    world.topics.delete("t")
    (member,) = describe(world.logged(), world.topics, "simple").members
    assert [one.topic for one in member.assignment] == ["u"]


def test_an_unknown_group_is_dead() -> None:
    assert not_found("x").error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not_found("x").state == "Dead"
