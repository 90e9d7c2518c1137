"""A group's state is what its records say, wherever its log begins."""

import pytest
from share_coordinator.core.group_state import ShareGroupState
from tidemark.codec.share_group_records import (
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupRecord,
)
from tidemark.codec.share_records import ShareSnapshotRecord, ShareUpdateRecord
from tidemark.codec.share_transaction_records import TransactionEndRecord
from unit.share_coordinator.worlds import G, World


def group_records(world: World) -> list[ShareGroupRecord]:
    return [
        one
        for one in world.records()
        if not isinstance(one, ShareSnapshotRecord | ShareUpdateRecord | TransactionEndRecord)
    ]


def replayed(records: list[ShareGroupRecord]) -> ShareGroupState:
    state = ShareGroupState(G)
    for record in records:
        state.replay(record)
    return state


def a_world() -> World:
    world = World(t=3, u=1)
    world.join("a", "t", "u")
    world.join("b", "t")
    world.settle("a", "b")
    return world


def test_a_record_of_each_key_once_more_makes_the_same_state() -> None:
    world = a_world()
    logged = world.logged()
    keys = {(type(one), getattr(one, "member_id", "")): None for one in group_records(world)}
    again = [logged.record_of(*key) for key in keys]
    assert replayed([one for one in again if one is not None]) == logged
    assert None not in again


def test_what_is_gone_is_not_written_again() -> None:
    world = a_world()
    kinds = {(type(one), getattr(one, "member_id", "")) for one in group_records(world)}
    assert all(ShareGroupState(G).record_of(*kind) is None for kind in kinds)


@pytest.mark.parametrize("keeps", range(12))
def test_a_deleted_group_is_nothing_wherever_the_log_begins(keeps: int) -> None:
    world = a_world()
    for member in "ab":
        world.beat(member, -1)
    records = [*group_records(world), *world.logged().group_tombstones()]
    assert replayed(records[-keeps:] if keeps else []).is_nothing


def test_a_member_whose_first_records_are_cut_off_is_held_until_its_tombstones() -> None:
    state = ShareGroupState(G)
    value = ShareGroupCurrentMemberAssignmentValue(3, 2, 0, ())
    state.replay(ShareGroupCurrentMemberAssignmentRecord(G, "m", value))
    assert state.members["m"].member_epoch == 3
    for record in state.member_tombstones("m"):
        state.replay(record)
    assert state.is_nothing
