"""Members of the classic protocol in a KIP-848 group: admission, epochs, sessions, assignments."""

from dataclasses import replace

import pytest
from broker.core.groups.consumer import classic_members
from broker.core.groups.requests import (
    GroupSettings,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetFetch,
    OffsetFetchReply,
    SyncGroup,
    SyncGroupReply,
)
from tidemark.codec.consumer_protocol import ConsumerSubscription, write_subscription
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    REBALANCE_MS,
    SESSION_MS,
    SETTINGS,
    World,
    commit,
    committed,
    heard,
    join,
    left,
    txn_commit,
)
from unit.broker.core.groups.live_groups import beats, given, joins, kind, protocol, synced

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def consumer_world(settings: GroupSettings = SETTINGS) -> World:
    """A consumer group with one member, ``c``, which has all four partitions."""
    world = World(settings)
    assert given(beats(world, "c")) == {0, 1, 2, 3}
    return world


def mixed_world() -> World:
    """``c`` of KIP-848 and ``a`` of the classic protocol, with two partitions each, in epoch 2."""
    world = consumer_world()
    assert joins(world, "", new="a").generation_id == 2
    beats(world, "c", 1, 0, 1, 2, 3)
    beats(world, "c", 1, 0, 1)
    joins(world, "a")
    assert synced(world, "a", 2) == {2, 3}
    return world


# -- joining


def test_a_new_member_gets_its_id_first() -> None:
    reply = joins(consumer_world(), "", new="a", known_first=True)
    assert (reply.error_code, reply.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "a")


def test_a_join_is_answered_at_once_without_a_leader() -> None:
    reply = joins(consumer_world(), "a")
    assert (reply.member_id, reply.generation_id) == ("a", 2)
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert (reply.leader, reply.members) == ("", ())


def test_a_retry_of_a_join_changes_nothing() -> None:
    world = mixed_world()
    before = len(world.log)
    assert joins(world, "a").generation_id == 2
    assert len(world.log) == before


@pytest.mark.parametrize(
    "protocols",
    [
        (),
        (JoinProtocol("range", b"nothing"),),
        (JoinProtocol("range", write_subscription(ConsumerSubscription(0, ("x" * 30_000,) * 20))),),
        protocol(name="sticky"),
    ],
    ids=["none", "unreadable", "too large", "not shared"],
)
def test_protocols_that_the_group_cannot_use_are_refused(
    protocols: tuple[JoinProtocol, ...],
) -> None:
    world = mixed_world()
    asked = world.send(join(new="b", protocols=protocols))
    assert world.error_of(asked) is INCONSISTENT


def test_a_group_that_is_full_takes_no_more() -> None:
    world = consumer_world(replace(SETTINGS, group_consumer_max_size=1))
    assert joins(world, "", new="a").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.feature("A09")
def test_a_member_that_was_removed_and_still_has_partitions_begins_again() -> None:
    world = consumer_world()
    assert joins(world, "a", 0, 1, generation=7).error_code is UNKNOWN
    assert joins(world, "a").error_code is NONE


@pytest.mark.feature("A09")
def test_a_late_copy_of_a_join_gives_up_nothing() -> None:
    world = mixed_world()
    for member in "de":
        joins(world, "", new=member)
    assert joins(world, "a", generation=1).generation_id == 2
    assert synced(world, "a", 2) == {2}
    beats(world, "c", 2, 0, 1)
    others = [synced(world, one, joins(world, one).generation_id) for one in "de"]
    assert others == [set(), set()]
    assert joins(world, "a", 2, generation=2).generation_id == 4
    assert {3} in [synced(world, one, joins(world, one).generation_id) for one in "de"]


def test_the_id_of_a_member_of_the_other_protocol_is_unknown() -> None:
    world = mixed_world()
    assert joins(world, "c").error_code is UNKNOWN
    assert beats(world, "a", 2).error_code is UNKNOWN
    assert beats(world, "a", -1).error_code is UNKNOWN
    assert left(world, "c", "nobody") == [UNKNOWN, UNKNOWN]


def test_a_member_may_go_on_with_the_other_protocol_under_its_id() -> None:
    world = mixed_world()
    assert given(beats(world, "a")) == {2, 3}
    assert kind(world) == "consumer 0 of 2"


# -- static members


@pytest.mark.feature("A09")
def test_a_static_member_restarts_with_either_protocol_and_keeps_its_partitions() -> None:
    world = World()
    beats(world, "c", instance="C")
    first = joins(world, "", new="a", instance="A")
    second = joins(world, "", new="b", instance="A")
    assert (first.generation_id, second.generation_id) == (2, 2)
    assert heard(world, "a", 2, "A") is ErrorCode.FENCED_INSTANCE_ID
    assert joins(world, "a", instance="A").error_code is ErrorCode.FENCED_INSTANCE_ID
    assert committed(world, commit(1, "a", 2, instance="A")) is ErrorCode.FENCED_INSTANCE_ID
    assert joins(world, "a", instance="B").error_code is UNKNOWN
    assert beats(world, "d", instance="A").error_code is NONE
    assert kind(world) == "consumer 0 of 2"
    assert joins(world, "", new="e", instance="C").error_code is NONE
    assert kind(world) == "consumer 1 of 2"


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    world = mixed_world()
    joins(world, "", new="s", instance="S")
    assert left(world, LeavingMember("", "S"), LeavingMember("", "S")) == [NONE, UNKNOWN]
    assert left(world, LeavingMember("", "T")) == [UNKNOWN]


# -- the other requests


def test_requests_of_another_generation_are_refused() -> None:
    world = mixed_world()
    assert heard(world, "a", 1) is ErrorCode.ILLEGAL_GENERATION
    assert synced(world, "a", 3) is ErrorCode.ILLEGAL_GENERATION
    assert committed(world, commit(1, "a", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert committed(world, commit(1, "a", 2)) is NONE
    assert committed(world, txn_commit(1, "a", 1)) is ErrorCode.ILLEGAL_GENERATION
    in_old_version = replace(commit(1, "a", 2), knows_epochs=False)
    assert committed(world, in_old_version) is NONE
    fetch = OffsetFetch(group_id="g", topics=None, member_id="a", member_epoch=2)
    assert world.ask(fetch, OffsetFetchReply).error_code is NONE


@pytest.mark.parametrize("named", [{"protocol_type": "other"}, {"protocol_name": "sticky"}])
def test_a_sync_names_the_protocol_of_the_join(named: dict[str, str]) -> None:
    world = mixed_world()
    request = SyncGroup(group_id="g", generation_id=2, member_id="a", **named)  # type: ignore[arg-type]
    assert world.ask(request, SyncGroupReply).error_code is INCONSISTENT


def test_a_sync_is_refused_when_the_group_has_gone_on() -> None:
    world = mixed_world()
    joins(world, "", new="d")
    assert synced(world, "a", 2) is REBALANCING


def test_more_partitions_are_noticed_by_heartbeats() -> None:
    world = mixed_world()
    world.topics.position += 1
    assert heard(world, "a", 2) is NONE
    world.topics.orders = None
    world.topics.position += 1
    assert heard(world, "a", 2) is REBALANCING


# -- time


@pytest.mark.feature("A09")
def test_each_member_has_the_session_that_it_chose() -> None:
    world = mixed_world()
    joins(world, "", new="d", session_ms=3 * SESSION_MS)
    world.pass_time(SESSION_MS)
    assert kind(world) == "consumer 1 of 2"
    world.fail_over()
    world.pass_time(3 * SESSION_MS - 1)
    assert kind(world) == "consumer 1 of 2"


@pytest.mark.parametrize("does", ["sync", "join", "neither"])
def test_a_member_that_does_not_follow_is_removed_although_it_is_alive(does: str) -> None:
    world = mixed_world()
    generation = joins(world, "", new="d").generation_id
    if does == "sync":
        synced(world, "d", generation)
    for _ in range(REBALANCE_MS // 5_000):
        assert heard(world, "d", generation) in (NONE, REBALANCING)
        assert heard(world, "a", 2) is REBALANCING
        if does == "join":
            joins(world, "d")
        beats(world, "c", 2, 0, 1)
        world.pass_time(5_000)
    assert heard(world, "a", 2) is UNKNOWN
    is_in = heard(world, "d", generation) is not UNKNOWN
    assert is_in == (does != "neither")


def test_nobody_leaves_twice_in_one_request() -> None:
    world = mixed_world()
    state = world.shard.state[0]["g"].logged  # type: ignore[union-attr]
    request = LeaveGroup(group_id="g", members=(LeavingMember("a"), LeavingMember("a")))
    left_members, ids = classic_members.leaving(state, request)
    assert ([one.error_code for one in left_members], ids) == ([NONE, UNKNOWN], ["a"])
