"""From one generation to the next: delays, deadlines, leaders, and members left behind."""

import pytest
from broker.core.groups.requests import (
    DescribeGroup,
    DescribeGroupReply,
    GroupSettings,
    JoinProtocol,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.group_worlds import (
    REBALANCE_MS,
    SESSION_MS,
    World,
    assigned,
    heard,
    join,
    joined,
    left,
    stable,
    subscription,
    sync,
)

OTHER = (JoinProtocol("range", subscription("bills")),)


def state(world: World) -> tuple[str, list[str]]:
    reply = world.ask(DescribeGroup("g"), DescribeGroupReply)
    return reply.state, [one.member_id for one in reply.members]


@pytest.mark.feature("A09")
def test_the_life_of_a_group() -> None:
    world = World()
    first, second = world.send(join(new="a")), world.send(join(new="b"))
    assert state(world) == ("PreparingRebalance", ["a", "b"])
    world.pass_time(0)
    assert state(world) == ("CompletingRebalance", ["a", "b"])
    assert [one.member_id for one in joined(world, first).members] == ["a", "b"]
    assert joined(world, second).leader == "a"
    waits = world.send(sync("b", 1))
    assert world.error_of(waits) is None
    leads = world.send(sync("a", 1, {"a": b"0-1", "b": b"2-3"}))
    assert assigned(world, leads).assignment == b"0-1"
    assert assigned(world, waits).assignment == b"2-3"
    assert state(world) == ("Stable", ["a", "b"])
    assert left(world, "a", "b") == [ErrorCode.NONE, ErrorCode.NONE]
    assert state(world) == ("Empty", [])


@pytest.mark.parametrize(("comes_at_ms", "begins_at_ms"), [(1_000, 6_000), (3_001, 3_000)])
def test_an_empty_group_waits_for_more_members(comes_at_ms: int, begins_at_ms: int) -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first = world.send(join(new="a"))
    world.pass_time(comes_at_ms)
    if comes_at_ms < 3_000:
        world.send(join(new="b"))
    world.pass_time(begins_at_ms - comes_at_ms - 1 if comes_at_ms < begins_at_ms else 0)
    assert (world.error_of(first) is None) == (comes_at_ms < 3_000)
    world.pass_time(1)
    assert joined(world, first).generation_id == 1


def test_it_waits_no_longer_than_members_want_to_be_waited_for() -> None:
    world = World(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first = world.send(join(new="m0", rebalance_ms=10_000))
    for number in range(1, 20):
        world.pass_time(900)
        world.send(join(new=f"m{number}", rebalance_ms=10_000))
    assert joined(world, first).generation_id == 1
    assert len(joined(world, first).members) <= 12


def test_whoever_does_not_join_in_time_is_out() -> None:
    world = World()
    stable(world, "a", "b", "c")
    first = world.send(join("b"))
    assert world.error_of(first) is ErrorCode.NONE  # unchanged: the old generation again
    leads = world.send(join("a"))
    world.send(join("b"))
    for _ in range(REBALANCE_MS // 5_000):
        heard(world, "c", 1)  # alive, but does not join
        world.pass_time(5_000)
    assert joined(world, leads).generation_id == 2
    assert state(world) == ("CompletingRebalance", ["a", "b"])
    assert heard(world, "c", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_the_leader_goes_another_leads() -> None:
    world = World()
    stable(world, "a", "b")
    left(world, "a")
    again = joined(world, world.send(join("b")))
    assert (again.generation_id, again.leader) == (2, "b")


def test_a_static_leader_that_is_late_keeps_its_place_but_does_not_lead() -> None:
    world = World()
    asked = [
        world.send(join(new=one, instance=one.upper(), session_ms=100_000, rebalance_ms=5_000))
        for one in "ab"
    ]
    world.pass_time(0)
    assert joined(world, asked[1]).leader == "a"
    back = world.send(join("b", instance="B", session_ms=100_000, protocols=OTHER))
    world.pass_time(REBALANCE_MS)
    assert joined(world, back).leader == "b"
    assert [one.member_id for one in joined(world, back).members] == ["a", "b"]


def test_while_only_absent_static_members_are_left_nothing_begins() -> None:
    world = World()
    for one in "ab":
        world.send(join(new=one, instance=one.upper(), session_ms=100_000, rebalance_ms=5_000))
    world.pass_time(0)
    world.send(sync("a", 1, {"a": b"1"}, instance="A"))
    world.pass_time(4_999)
    assert state(world) == ("Stable", ["a", "b"])
    world.pass_time(1)  # b never sent SyncGroup
    assert state(world) == ("PreparingRebalance", ["a"])
    world.pass_time(20_000)
    assert state(world) == ("PreparingRebalance", ["a"])
    world.pass_time(100_000)
    assert state(world) == ("Empty", [])


def test_the_wait_for_absent_static_members_is_no_busy_one() -> None:
    world = World()
    world.send(join(new="a"))
    world.send(join(new="b", instance="B", rebalance_ms=0))
    world.pass_time(0)
    world.send(sync("b", 1, instance="B"))
    world.send(sync("a", 1))
    assert left(world, "a") == [ErrorCode.NONE]
    world.pass_time(0)
    assert state(world) == ("PreparingRebalance", ["b"])
    assert (world.coordinator.next_deadline() or 0) > world.now


def test_silence_ends_a_session() -> None:
    world = World()
    stable(world, "a", "b")
    world.pass_time(SESSION_MS - 1)
    assert heard(world, "a", 1) is ErrorCode.NONE
    world.pass_time(1)
    assert heard(world, "a", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(world, world.send(join("a"))).generation_id == 2


def test_who_waits_for_us_is_not_silent() -> None:
    world = World()
    stable(world, "a", "b")
    waits = world.send(join("a"))
    for _ in range(5):
        world.pass_time(SESSION_MS - 1)
        assert heard(world, "b", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.error_of(waits) is None
    world.send(join("b"))
    assert joined(world, waits).generation_id == 2


def test_a_new_member_is_not_waited_with_for_ever() -> None:
    world = World()
    asked = join(new="a", rebalance_ms=1_000_000)
    world.send(asked)
    world.pass_time(0)
    world.send(sync("a", 1, {"a": b"1"}))
    for _ in range(40):
        heard(world, "a", 1)
        world.pass_time(9_000)
        if world.now > 50_000 and world.error_of(3) is None:
            break
    waits = world.send(join(new="b", rebalance_ms=1_000_000))
    for _ in range(40):
        heard(world, "a", 1)
        world.pass_time(9_000)
    assert joined(world, waits).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_ask_for_its_assignment_is_out() -> None:
    world = World()
    asked = [world.send(join(new=one, session_ms=100_000)) for one in "ab"]
    world.pass_time(0)
    assert joined(world, asked[0]).generation_id == 1
    world.send(sync("a", 1, {"a": b"1"}))
    world.pass_time(REBALANCE_MS)
    assert state(world) == ("PreparingRebalance", ["a"])


def test_without_the_leaders_word_all_start_anew() -> None:
    world = World()
    asked = [world.send(join(new=one, session_ms=100_000)) for one in "ab"]
    world.pass_time(0)
    waits = world.send(sync("b", 1))
    world.pass_time(REBALANCE_MS)
    assert joined(world, asked[0]).leader == "a"
    assert assigned(world, waits).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert state(world) == ("PreparingRebalance", ["b"])


def test_a_generation_that_does_not_fit_into_a_record_is_not_made() -> None:
    world = World()
    for one in "ab":
        world.send(join(new=one))
    world.pass_time(0)
    waits = world.send(sync("b", 1))
    leads = world.send(sync("a", 1, {"a": bytes(1_000_000)}))
    told = {assigned(world, one).error_code for one in (waits, leads)}
    assert told == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert state(world) == ("PreparingRebalance", ["a", "b"])


@pytest.mark.feature("A11")
def test_after_a_failover_members_go_on_as_if_nothing_was() -> None:
    world = World()
    generation = stable(world, "a", "b")
    world.pass_time(SESSION_MS - 1)
    world.fail_over()
    world.pass_time(SESSION_MS - 1)  # a fresh session: no heartbeat could arrive meanwhile
    assert heard(world, "a", generation) is ErrorCode.NONE
    kept = world.send(sync("b", generation))
    assert assigned(world, kept).assignment == b"b"
    world.pass_time(1)
    assert state(world) == ("Stable", ["a", "b"])


def test_who_is_not_heard_of_after_a_failover_is_out() -> None:
    world = World()
    generation = stable(world, "a", "b")
    world.fail_over()
    world.pass_time(SESSION_MS - 1)
    heard(world, "a", generation)
    world.pass_time(1)
    assert state(world) == ("PreparingRebalance", ["a"])


def test_a_generation_that_was_not_in_the_log_is_lost() -> None:
    world = World()
    generation = stable(world, "a")
    left(world, "a")
    world.send(join(new="b"))
    world.pass_time(0)
    assert heard(world, "b", generation + 2) is ErrorCode.NONE
    world.fail_over()
    assert state(world) == ("Empty", [])
    assert heard(world, "b", generation + 2) is ErrorCode.UNKNOWN_MEMBER_ID
