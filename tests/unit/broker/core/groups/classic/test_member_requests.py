"""SyncGroup, Heartbeat, LeaveGroup, and the checks of offset commits."""

import pytest
from broker.core.groups.requests import (
    DescribeGroup,
    DescribeGroupReply,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    SESSION_MS,
    World,
    assigned,
    commit,
    committed,
    heard,
    join,
    joined,
    left,
    position,
    stable,
    sync,
    txn_commit,
)


def completing(*members: str) -> World:
    """Members with a generation, and without assignments."""
    world = World()
    for member in members:
        world.send(join(new=member))
    world.pass_time(0)
    return world


# -- SyncGroup


@pytest.mark.parametrize(
    ("request_", "error_code"),
    [
        (sync("stranger", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (sync("a", 0), ErrorCode.ILLEGAL_GENERATION),
        (sync("a", 1, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (
            SyncGroup(group_id="g", generation_id=1, member_id="a", protocol_type="connect"),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            SyncGroup(group_id="g", generation_id=1, member_id="a", protocol_name="sticky"),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            SyncGroup(group_id="", generation_id=1, member_id="a"),
            ErrorCode.INVALID_GROUP_ID,
        ),
        (
            SyncGroup(group_id="other", generation_id=1, member_id="a"),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_who_asks_for_what_is_not_its_own_gets_nothing(
    request_: SyncGroup, error_code: ErrorCode
) -> None:
    world = completing("a")
    assert world.ask(request_, SyncGroupReply).error_code is error_code


def test_during_a_rebalance_there_are_no_assignments() -> None:
    world = World()
    stable(world, "a", "b")
    world.send(join("a"))
    assert assigned(world, world.send(sync("b", 1))).error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    world = completing("a", "b")
    waits = world.send(sync("b", 1))
    world.send(sync("a", 1, {"a": b"all", "stranger": b"x"}))
    reply = assigned(world, waits)
    assert (reply.error_code, reply.assignment) == (ErrorCode.NONE, b"")
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


def test_a_repeated_sync_answers_the_one_that_waited() -> None:
    world = completing("a", "b")
    first, second = world.send(sync("b", 1)), world.send(sync("b", 1))
    assert assigned(world, first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    world.send(sync("a", 1, {"b": b"1"}))
    assert assigned(world, second).assignment == b"1"


def test_a_member_that_comes_while_assignments_are_made_starts_a_new_generation() -> None:
    world = completing("a", "b")
    waits = world.send(sync("b", 1))
    world.send(join(new="c"))
    assert assigned(world, waits).error_code is ErrorCode.REBALANCE_IN_PROGRESS


# -- Heartbeat


@pytest.mark.parametrize(
    ("member_id", "generation", "error_code"),
    [
        ("a", 1, ErrorCode.NONE),
        ("a", 0, ErrorCode.ILLEGAL_GENERATION),
        ("a", 2, ErrorCode.ILLEGAL_GENERATION),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats(member_id: str, generation: int, error_code: ErrorCode) -> None:
    world = World()
    stable(world, "a")
    assert heard(world, member_id, generation) is error_code


def test_nobody_is_alive_in_a_group_that_does_not_exist() -> None:
    assert heard(World(), "a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


# -- LeaveGroup


def test_several_leave_at_once_each_with_its_own_result() -> None:
    world = World()
    stable(world, "a", "b", "c", instances=True)
    world.send(join(new="d", known_first=True))
    results = left(
        world,
        LeavingMember("", "B"),  # an administrator has only the instance id
        LeavingMember("c", "C"),
        LeavingMember("d"),
        LeavingMember("a", "B"),
        LeavingMember("", "Z"),
        LeavingMember("z"),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert results == [ErrorCode.NONE] * 3 + [unknown] * 3
    reply = world.ask(DescribeGroup("g"), DescribeGroupReply)
    assert [one.member_id for one in reply.members] == ["a"]


def test_nobody_leaves_a_group_that_does_not_exist() -> None:
    assert left(World(), "a") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_that_leaves_while_it_joins_is_answered() -> None:
    world = World()
    stable(world, "a", "b")
    waits = world.send(join("a"))
    left(world, "a")
    assert joined(world, waits).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert joined(world, world.send(join("b"))).generation_id == 2


def test_a_member_that_leaves_while_it_syncs_is_answered() -> None:
    world = completing("a", "b")
    waits = world.send(sync("b", 1))
    left(world, "b")
    assert assigned(world, waits).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_only_was_told_an_id_leaves_without_a_rebalance() -> None:
    world = World()
    stable(world, "a")
    world.send(join(new="b", known_first=True))
    assert left(world, "b") == [ErrorCode.NONE]
    assert heard(world, "a", 1) is ErrorCode.NONE


def test_a_rebalance_that_only_waited_for_who_left_goes_on() -> None:
    world = World()
    stable(world, "a")
    world.send(join(new="b", known_first=True))
    waits = world.send(join("a"))
    left(world, "b")
    assert joined(world, waits).generation_id == 2


# -- offset commits


@pytest.mark.feature("E14", "A11")
@pytest.mark.parametrize(
    ("member_id", "generation", "error_code"),
    [
        ("a", 1, ErrorCode.NONE),
        ("a", 0, ErrorCode.ILLEGAL_GENERATION),
        ("gone", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_in_a_live_group_only_its_members_commit(
    member_id: str, generation: int, error_code: ErrorCode
) -> None:
    world = World()
    stable(world, "a", "b")
    assert committed(world, commit(5, member_id, generation)) is error_code
    assert position(world) == (5 if error_code is ErrorCode.NONE else -1)


@pytest.mark.feature("E14")
def test_a_member_that_hung_commits_nothing_when_it_wakes() -> None:
    world = World()
    stable(world, "a", "b")
    assert committed(world, commit(5, "b", 1)) is ErrorCode.NONE
    while heard(world, "a", 1) is ErrorCode.NONE:
        world.pass_time(2_000)  # b sends nothing for its whole session
    again = world.send(join("a"))
    world.send(sync("a", joined(world, again).generation_id, {"a": b"all"}))
    assert committed(world, commit(9, "a", 2)) is ErrorCode.NONE
    assert committed(world, commit(6, "b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert position(world) == 9


@pytest.mark.feature("E14")
def test_a_session_that_ends_while_the_assignment_is_uncommitted_gives_the_member_nothing() -> None:
    """Found by the simulator: two members had one partition."""
    world = completing("a")
    world.commits = False
    late = world.send(sync("a", 1, {"a": b"all"}))
    other = world.send(join(new="b"))
    world.pass_time(SESSION_MS)
    assert world.error_of(late) is None
    world.commit_all()
    assert world.error_of(late) is ErrorCode.UNKNOWN_MEMBER_ID
    generation = joined(world, other).generation_id
    taken = world.send(sync("b", generation, {"b": b"all"}))
    world.commit_all()
    assert assigned(world, taken).assignment == b"all"


@pytest.mark.feature("E14")
def test_the_old_generation_still_commits_until_the_new_one_begins() -> None:
    world = World()
    stable(world, "a", "b")
    world.send(join("a"))
    assert committed(world, commit(5, "b", 1)) is ErrorCode.NONE
    world.send(join("b"))
    assert committed(world, commit(6, "b", 1)) is ErrorCode.ILLEGAL_GENERATION
    assert committed(world, commit(6, "b", 2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    stable(world, "a")
    for _ in range(5):
        world.pass_time(9_000)
        assert committed(world, commit(5, "a", 1)) is ErrorCode.NONE


@pytest.mark.feature("A08")
def test_an_empty_group_takes_commits_of_nobody_in_particular() -> None:
    world = World()
    stable(world, "a")
    left(world, "a")
    assert committed(world, commit(5)) is ErrorCode.NONE
    assert committed(world, commit(6, "a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("L10", "E14")
@pytest.mark.parametrize(
    ("member_id", "generation", "instance", "error_code"),
    [
        ("a", 1, None, ErrorCode.NONE),
        ("", -1, None, ErrorCode.NONE),  # producers before KIP-447 name no member
        ("a", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("gone", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("gone", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("gone", 1, "A", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_transactions_of_members_are_fenced_too(
    member_id: str, generation: int, instance: str | None, error_code: ErrorCode
) -> None:
    world = World()
    stable(world, "a", "b", instances=True)
    asked = txn_commit(5, member_id, generation, instance=instance)
    assert committed(world, asked) is error_code


def test_transactions_may_commit_while_assignments_are_made() -> None:
    assert committed(completing("a"), txn_commit(5, "a", 1)) is ErrorCode.NONE
