"""Conversions of live groups, by the requests of their members, and over failovers."""

from dataclasses import replace

import pytest
from broker.core.groups.requests import (
    HeartbeatReply,
    JoinGroupReply,
    JoinProtocol,
    SyncGroupReply,
)
from broker.core.groups.settings import MigrationPolicy
from tidemark.codec import group_records
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    SESSION_MS,
    SETTINGS,
    World,
    commit,
    committed,
    heard,
    join,
    joined,
    left,
    position,
    sync,
)
from unit.broker.core.groups.live_groups import (
    beats,
    classic_world,
    given,
    joins,
    kind,
    protocol,
    synced,
)

NONE = ErrorCode.NONE
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def mixed_world() -> World:
    """Classic members ``a`` and ``b``, and ``c`` of KIP-848, which has one partition of four."""
    world = classic_world("a", "b")
    beats(world, "c")
    for member in "ab":
        generation = joins(world, member).generation_id
        synced(world, member, generation)
    assert given(beats(world, "c", 2)) == {3}
    assert kind(world) == "consumer 2 of 3"
    return world


@pytest.mark.feature("A09")
def test_the_first_heartbeat_converts_a_classic_group_and_asks_its_members_to_join() -> None:
    world = classic_world("a", "b")
    reply = beats(world, "c")
    assert (reply.member_epoch, given(reply)) == (2, set())
    assert kind(world) == "consumer 2 of 3"
    assert committed(world, commit(7, "a", 1)) is NONE
    assert heard(world, "a", 1) is REBALANCING
    again = joins(world, "a")
    assert (again.generation_id, again.leader, again.members) == (2, "", ())
    assert synced(world, "a", 2) == {0, 2}
    assert committed(world, commit(8, "a", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert position(world) == 7


@pytest.mark.feature("A09")
def test_partitions_change_hands_once_their_owner_has_joined_without_them() -> None:
    world = classic_world("a")
    assert given(beats(world, "c")) == set()
    assert joins(world, "a", 0, 1, 2, 3, generation=1).generation_id == 1
    assert synced(world, "a", 1) == {0, 1}
    assert given(beats(world, "c", 2)) == set()
    assert heard(world, "a", 1) is REBALANCING
    assert joins(world, "a", 0, 1, generation=1).generation_id == 2
    assert given(beats(world, "c", 2)) == {2, 3}
    assert heard(world, "a", 2) is NONE


@pytest.mark.feature("A09")
def test_members_join_again_when_all_that_they_wait_for_is_free() -> None:
    world = classic_world("a")
    beats(world, "c")
    assert synced(world, "a", joins(world, "a").generation_id) == {0, 1}
    assert given(beats(world, "c", 2)) == {2, 3}
    assert joins(world, "", new="d").generation_id == 3
    assert (synced(world, "d", 3), heard(world, "d", 3)) == (set(), NONE)
    given(beats(world, "c", 2, 2, 3))
    given(beats(world, "c", 2, 2))
    assert heard(world, "d", 3) is REBALANCING
    assert joins(world, "d").generation_id == 3
    assert synced(world, "d", 3) == {3}


@pytest.mark.feature("A09")
@pytest.mark.parametrize("leaves", [True, False])
def test_when_only_classic_members_remain_the_group_is_classic_again(leaves: bool) -> None:
    world = mixed_world()
    if leaves:
        beats(world, "c", -1)
    for _ in range(6):
        world.pass_time(SESSION_MS - 1_000)
        assert {heard(world, member, 2) for member in "ab"} <= {NONE, REBALANCING}
    assert kind(world) == "classic 2"
    assert committed(world, commit(9, "a", 2)) is NONE
    asked = [world.send(join(member)) for member in "ab"]
    assert [joined(world, one).generation_id for one in asked] == [3, 3]


def test_a_member_that_a_conversion_left_behind_joins_again() -> None:
    world = mixed_world()
    beats(world, "c", -1)
    world.pass_time(0)
    assert kind(world) == "classic 2"
    assert beats(world, "c", 2).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats(world, "c").error_code is NONE
    assert kind(world) == "consumer 2 of 3"


def test_waiting_members_are_sent_back() -> None:
    world = classic_world("a", "b")
    known, new = world.send(join("a")), world.send(join(new="n"))
    beats(world, "c")
    assert joined(world, known).error_code is REBALANCING
    assert joined(world, new).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert kind(world) == "consumer 2 of 3"
    forming = World()
    first = forming.send(join(new="m"))
    forming.pass_time(0)
    waiting = forming.send(join(new="o"))
    assert forming.error_of(first) is NONE
    beats(forming, "c")
    assert forming.error_of(waiting) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_waiting_sync_is_sent_back() -> None:
    world = World()
    asked = [world.send(join(new=member)) for member in "ab"]
    world.pass_time(0)
    generation = joined(world, asked[1]).generation_id
    waiting = world.send(sync("b", generation))
    beats(world, "c")
    assert world.answer(waiting, SyncGroupReply).error_code is REBALANCING


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_without_upgrades_a_live_classic_group_stays(policy: MigrationPolicy) -> None:
    settings = replace(SETTINGS, group_consumer_migration_policy=policy)
    world = classic_world("a", settings=settings)
    for epoch in (0, 3):
        assert beats(world, "c", epoch).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (heard(world, "a", 1), kind(world)) == (NONE, "classic 1")


@pytest.mark.parametrize(
    ("epoch", "instance"),
    [(-3, None), (-2, None), (3, "")],
)
def test_an_invalid_heartbeat_is_named_so_where_there_is_no_group_of_its_kind(
    epoch: int, instance: str | None
) -> None:
    settings = replace(SETTINGS, group_consumer_migration_policy=MigrationPolicy.DISABLED)
    for world in (World(), classic_world("a", settings=settings)):
        reply = beats(world, "c", epoch, instance=instance)
        assert reply.error_code is ErrorCode.INVALID_REQUEST
        assert reply.error_message


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_without_downgrades_a_group_of_classic_members_goes_on(policy: MigrationPolicy) -> None:
    settings = replace(SETTINGS, group_consumer_migration_policy=policy)
    world = World(settings)
    beats(world, "c")
    assert joins(world, "", new="a").generation_id == 2
    beats(world, "c", -1)
    world.pass_time(0)
    assert kind(world) == "consumer 1 of 1"
    assert heard(world, "a", 2) is REBALANCING
    assert synced(world, "a", joins(world, "a").generation_id) == {0, 1, 2, 3}


def test_a_heartbeat_that_is_refused_converts_nothing() -> None:
    world = classic_world("a")
    refused = beats(world, "c", 0, 1)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert (kind(world), heard(world, "a", 1)) == ("classic 1", NONE)


@pytest.mark.feature("E13")
def test_a_failover_between_conversions_finds_the_group_as_it_was() -> None:
    world = mixed_world()
    world.fail_over()
    assert (kind(world), heard(world, "a", 2)) == ("consumer 2 of 3", NONE)
    beats(world, "c", -1)
    world.pass_time(0)
    world.fail_over()
    assert (kind(world), heard(world, "a", 2)) == ("classic 2", REBALANCING)


@pytest.mark.feature("E13")
@pytest.mark.parametrize("cut", range(1, 40))
def test_wherever_the_log_ends_one_whole_group_is_left(cut: int) -> None:
    world = classic_world("a", "b")
    begun = len(world.log)
    beats(world, "c")
    upgraded = len(world.log)
    beats(world, "c", -1)
    world.pass_time(0)
    world.log = world.log[: min(begun + cut, len(world.log))]
    is_upgraded = len(world.log) >= upgraded
    world.fail_over()
    world.pass_time(0)
    assert kind(world) in (("consumer 2 of 3", "classic 2") if is_upgraded else ("classic 2",))
    world.fail_over()
    alive = [beats(world, "d").error_code, kind(world).split()[0]]
    assert alive == [NONE, "consumer"]


def test_nothing_of_a_consumer_group_is_left_after_a_cut() -> None:
    world = classic_world("a")
    begun = len(world.log)
    beats(world, "c")
    world.log = world.log[: begun + 3]
    world.fail_over()
    left(world, "a")
    world.compact(keeps_tombstones=False)
    records = [group_records.decode(*record) for record, _, _ in world.log if record is not None]
    assert [type(one).__name__ for one in records] == ["GroupMetadataRecord"]


def test_a_group_without_a_group_id_has_no_members() -> None:
    world = World()
    nameless = replace(join(new="a"), group_id="")
    assert world.ask(nameless, JoinGroupReply).error_code is ErrorCode.INVALID_GROUP_ID
    assert heard(world, "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert HeartbeatReply(NONE).error_code is NONE


def test_a_group_that_is_too_large_to_be_classic_is_not_tried_again_at_once() -> None:
    world = World()
    beats(world, "c")
    padded = (JoinProtocol("range", protocol()[0].metadata + bytes(400_000)),)
    for member in ("a", "b", "d"):
        reply = world.ask(join(new=member, protocols=padded), JoinGroupReply)
        assert reply.error_code is NONE
    beats(world, "c", -1)
    world.pass_time(0)
    assert kind(world) == "consumer 3 of 3"
    assert (world.coordinator.next_deadline() or 0) > world.now, "others have their turn"
