"""JoinGroup: admission of members, their ids, and the rebalances that joins start."""

import pytest
from broker.core.groups.requests import (
    DescribeGroup,
    DescribeGroupReply,
    GroupSettings,
    JoinGroupReply,
    JoinProtocol,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    RANGE,
    SESSION_MS,
    World,
    assigned,
    commit,
    committed,
    heard,
    join,
    joined,
    stable,
    subscription,
    sync,
)

STICKY = JoinProtocol("sticky", subscription("orders"))


def state(world: World) -> str:
    return world.ask(DescribeGroup("g"), DescribeGroupReply).state


def members(world: World) -> dict[str, bytes]:
    reply = world.ask(DescribeGroup("g"), DescribeGroupReply)
    return {one.member_id: one.assignment for one in reply.members}


@pytest.mark.parametrize(
    ("fields", "error_code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_wrong_is_answered_at_once_and_leaves_nothing(
    fields: dict[str, str], error_code: ErrorCode
) -> None:
    world = World()
    member_id = fields.pop("member_id", "")
    asked = world.send(join(member_id, **fields))  # type: ignore[arg-type]
    assert joined(world, asked).error_code is error_code
    assert state(world) == "Dead"


def test_a_new_member_is_told_its_id_first() -> None:
    world = World()
    told = world.ask(join(new="m1", known_first=True), JoinGroupReply)
    assert (told.error_code, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    again = world.send(join("m1", new="m2", known_first=True))
    world.pass_time(0)
    assert joined(world, again).member_id == "m1"


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    world = World()
    world.send(join(new="m1", known_first=True))
    world.pass_time(10_001)
    assert joined(world, world.send(join("m1"))).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert state(world) == "Dead"


def test_an_id_that_was_told_holds_up_the_group_until_its_owner_comes() -> None:
    world = World()
    stable(world, "a")
    world.send(join(new="b", known_first=True))
    again = world.send(join("a"))
    assert world.error_of(again) is None
    world.send(join("b"))
    assert joined(world, again).generation_id == 2


def test_a_member_that_missed_its_answer_gets_it_again() -> None:
    world = World()
    generation = stable(world, "a", "b")
    again = joined(world, world.send(join("b")))
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, generation)
    assert state(world) == "Stable"


def test_the_leader_that_joins_again_wants_a_rebalance() -> None:
    world = World()
    stable(world, "a", "b")
    assert world.error_of(world.send(join("a"))) is None
    assert heard(world, "b", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_so_does_a_member_that_reads_something_else() -> None:
    world = World()
    stable(world, "a", "b")
    other = (RANGE[0]._replace(metadata=subscription("bills")),)
    assert world.error_of(world.send(join("b", protocols=other))) is None
    assert state(world) == "PreparingRebalance"


def test_a_repeated_join_answers_the_one_that_waited() -> None:
    """A client that retries has closed the connection of its first request, which is answered all
    the same.
    """
    world = World()
    stable(world, "a", "b")
    first = world.send(join("a"))
    second = world.send(join("a"))
    assert joined(world, first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    world.send(join("b"))
    assert joined(world, second).generation_id == 2


def test_a_protocol_named_twice_counts_once() -> None:
    world = World()
    asked = [world.send(join(new=one, protocols=(*RANGE, STICKY, *RANGE))) for one in "ab"]
    world.pass_time(0)
    assert joined(world, asked[0]).protocol_name == "range"
    assert joined(world, asked[1]).protocol_name == "range"


def test_a_group_that_is_full_turns_new_members_away() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=2))
    stable(world, "a", "b")
    assert joined(world, world.send(join(new="c"))).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = [world.send(join(one)) for one in "ab"]
    assert joined(world, again[0]).error_code is ErrorCode.NONE
    assert heard(world, "b", 2) is ErrorCode.NONE


def test_of_a_group_that_is_too_large_the_last_to_come_stay_out() -> None:
    world = World()
    stable(world, "a", "b")
    world.settings = GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=1)
    world.fail_over()
    assert state(world) == "PreparingRebalance"
    first, last = world.send(join("b")), world.send(join("a"))
    assert joined(world, last).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(world, first).generation_id == 2


# -- static members (KIP-345)


def restart(world: World, instance: str, new: str, **fields: bool) -> JoinGroupReply:
    return joined(world, world.send(join(new=new, instance=instance, **fields)))  # type: ignore[arg-type]


@pytest.mark.feature("A09")
def test_a_static_member_that_comes_back_keeps_its_place_without_a_rebalance() -> None:
    world = World()
    generation = stable(world, "a", "b", instances=True)
    reply = restart(world, "B", "b2")
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, generation)
    assert heard(world, "a", generation, "A") is ErrorCode.NONE
    kept = world.send(sync("b2", generation, instance="B"))
    assert assigned(world, kept).assignment == b"b"


@pytest.mark.feature("E14")
def test_its_former_self_is_fenced() -> None:
    world = World()
    generation = stable(world, "a", "b", instances=True)
    restart(world, "B", "b2")
    assert heard(world, "b", generation, "B") is ErrorCode.FENCED_INSTANCE_ID
    stale = commit(1, "b", generation, instance="B")
    assert committed(world, stale) is ErrorCode.FENCED_INSTANCE_ID
    asked = join("b", instance="B")
    assert joined(world, world.send(asked)).error_code is ErrorCode.FENCED_INSTANCE_ID


def test_the_place_is_in_the_log() -> None:
    world = World()
    generation = stable(world, "a", "b", instances=True)
    restart(world, "B", "b2")
    world.fail_over()
    assert members(world) == {"a": b"a", "b2": b"b"}
    assert heard(world, "b2", generation, "B") is ErrorCode.NONE


@pytest.mark.parametrize(("skips", "leader", "count"), [(True, "a2", 2), (False, "a", 0)])
def test_a_leader_that_comes_back_skips_the_assignment(
    skips: bool, leader: str, count: int
) -> None:
    world = World()
    stable(world, "a", "b", instances=True)
    reply = restart(world, "A", "a2", skips=skips)
    assert (reply.skip_assignment, reply.leader, len(reply.members)) == (skips, leader, count)


def test_a_static_member_that_changes_the_protocol_does_disturb() -> None:
    world = World()
    both = (*RANGE, STICKY)
    for one in "ab":
        world.send(join(new=one, instance=one.upper(), protocols=both))
    world.pass_time(0)
    world.send(sync("a", 1, {"a": b"1"}, instance="A"))
    back = world.send(join(new="b2", instance="B", protocols=(STICKY,)))
    assert world.error_of(back) is None
    assert state(world) == "PreparingRebalance"


def test_a_static_member_that_comes_back_while_assignments_are_made_starts_anew() -> None:
    world = World()
    first, second = (world.send(join(new=one, instance=one.upper())) for one in "ab")
    world.pass_time(0)
    waits = world.send(sync("b", 1, instance="B"))
    back = world.send(join(new="b2", instance="B"))
    assert assigned(world, waits).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert joined(world, first).generation_id == joined(world, second).generation_id
    again = world.send(join("a", instance="A"))
    assert joined(world, back).generation_id == joined(world, again).generation_id == 2


def test_a_static_member_that_is_replaced_while_it_joins_is_fenced() -> None:
    world = World()
    stable(world, "a", "b", instances=True)
    first = world.send(join("a", instance="A"))
    second = world.send(join(new="a2", instance="A"))
    assert joined(world, first).error_code is ErrorCode.FENCED_INSTANCE_ID
    world.send(join("b", instance="B"))
    assert joined(world, second).generation_id == 2


def test_who_came_back_has_a_session_like_everybody() -> None:
    world = World()
    stable(world, "a", "b", instances=True)
    restart(world, "B", "b2")
    world.pass_time(SESSION_MS - 1)
    heard(world, "a", 1, "A")
    world.pass_time(1)
    assert heard(world, "b2", 1, "B") is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_came_back_while_a_first_generation_forms_is_waited_with() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=2 * SESSION_MS))
    first = world.send(join(new="a", instance="A"))
    second = world.send(join(new="a2", instance="A"))
    assert joined(world, first).error_code is ErrorCode.FENCED_INSTANCE_ID
    world.pass_time(2 * SESSION_MS)
    assert joined(world, second).generation_id == 1


def test_a_place_that_would_not_fit_into_a_record_is_not_kept_without_a_rebalance() -> None:
    world = World()
    stable(world, "a", "b", instances=True)
    large = (RANGE[0]._replace(metadata=bytes(1_000_000)),)
    back = world.send(join(new="b2", instance="B", protocols=large))
    assert world.error_of(back) is None
    assert state(world) == "PreparingRebalance"
