"""KIP-932's heartbeat: joining, staying, leaving, epochs, sessions, targets."""

import pytest
from share_coordinator.core.requests import LagsMeasured
from share_coordinator.core.settings import ShareSettings
from tidemark.model.errors import ErrorCode
from tidemark.model.share_group_configs import ShareGroupOptions
from unit.share_coordinator.worlds import (
    ASSIGNMENT_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    G,
    World,
    given,
    sizes,
)

FENCED = ErrorCode.FENCED_MEMBER_EPOCH


def a_pair() -> World:
    """Members a and b, both with what they shall have."""
    world = World(t=4)
    world.join("a", "t")
    world.join("b", "t")
    world.settle("a", "b")
    return world


def epoch_of(world: World, member: str) -> int:
    epoch: int = world.logged().members[member].member_epoch
    return epoch


def test_a_second_member_gets_its_part_at_the_next_assignment() -> None:
    world = World(t=4)
    world.join("a", "t")
    joined = world.join("b", "t")
    assert given(joined) == set()
    assert joined.heartbeat_interval_ms == ASSIGNMENT_MS
    world.sleep(ASSIGNMENT_MS)
    later = world.beat("b", joined.member_epoch)
    assert len(given(later)) == 2
    assert later.heartbeat_interval_ms == HEARTBEAT_MS


def test_members_that_join_together_cost_one_assignment() -> None:
    world = World(t=4)
    for member in "abcdefgh":
        world.join(member, "t")
    world.sleep(ASSIGNMENT_MS)
    logged = world.logged()
    assert (logged.group_epoch, logged.assignment_epoch) == (8, 8)
    targets = [one for one in world.records() if "AssignmentMetadata" in type(one).__name__]
    assert len(targets) == 2


def test_a_heartbeat_without_news_writes_nothing_and_brings_nothing() -> None:
    world = a_pair()
    before = len(world.log)
    reply = world.beat("a", epoch_of(world, "a"))
    assert (reply.error_code, reply.assignment) == (ErrorCode.NONE, None)
    assert len(world.log) == before


def test_a_lost_answer_comes_again() -> None:
    world = a_pair()
    before = epoch_of(world, "a")
    world.beat("b", -1)
    world.sleep(ASSIGNMENT_MS)
    assert len(given(world.beat("a", before))) == 4
    assert len(given(world.beat("a", before))) == 4
    assert world.beat("a", epoch_of(world, "a")).assignment is None


@pytest.mark.parametrize("difference", [1, -2, 100])
def test_a_member_in_another_epoch_is_fenced(difference: int) -> None:
    world = a_pair()
    world.beat("b", -1)
    world.sleep(ASSIGNMENT_MS)
    world.beat("a", epoch_of(world, "a"))
    log = list(world.log)
    assert world.beat("a", epoch_of(world, "a") + difference).error_code is FENCED
    assert world.log == log


def test_a_member_that_the_group_does_not_have() -> None:
    world = a_pair()
    assert world.beat("c", 1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("c", -1).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_again_keeps_its_place() -> None:
    world = a_pair()
    epoch = epoch_of(world, "a")
    reply = world.join("a", "t")
    assert (reply.member_epoch, len(given(reply))) == (epoch, 2)


def test_who_leaves_leaves_its_partitions_to_others() -> None:
    world = a_pair()
    left = world.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)
    assert sizes(world.settle("b")) == [4]


def test_a_silent_member_is_removed_after_its_session() -> None:
    world = a_pair()
    world.sleep(SESSION_MS // 2)
    world.beat("b", epoch_of(world, "b"))
    world.sleep(SESSION_MS // 2)
    assert set(world.logged().members) == {"b"}
    assert world.beat("a", 1).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert sizes(world.settle("b")) == [4]


def test_a_group_sets_its_own_session_and_interval() -> None:
    world = World(t=1)
    world.configs[G] = {
        "share.session.timeout.ms": "60000",
        "share.heartbeat.interval.ms": "7000",
    }
    assert world.join("a", "t").heartbeat_interval_ms == 7_000
    world.sleep(59_999)
    assert world.logged().members
    world.sleep(1)
    assert not world.logged().members


def test_after_a_reload_every_session_starts_once_more() -> None:
    world = a_pair()
    world.sleep(SESSION_MS - 1)
    world.reload()
    world.sleep(SESSION_MS - 1)
    assert set(world.logged().members) == {"a", "b"}
    world.sleep(1)
    assert not world.logged().members


def test_a_group_has_so_many_members_at_most() -> None:
    world = World(ShareSettings(group_share_max_size=2), t=1)
    world.join("a", "t")
    world.join("b", "t")
    assert world.join("c", "t").error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("a", "t").error_code is ErrorCode.NONE


def test_a_new_subscription_is_a_new_epoch() -> None:
    world = World(t=1, u=1)
    world.join("a", "t")
    world.sleep(ASSIGNMENT_MS)
    reply = world.beat("a", 1, subscribed_topic_names=("u", "t", "u"))
    assert given(reply) == world.topics.all("t", "u")
    assert reply.member_epoch == 2


def test_a_topic_that_appears_is_assigned() -> None:
    world = World(t=1)
    assert given(world.join("a", "t", "later")) == world.topics.all("t")
    world.sleep(ASSIGNMENT_MS)
    world.topics.put("later", 2)
    assert given(world.beat("a", 1)) == world.topics.all("t", "later")


def test_metadata_that_do_not_concern_the_group_change_nothing() -> None:
    world = a_pair()
    before = len(world.log)
    world.topics.put("other", 3)
    world.beat("a", epoch_of(world, "a"))
    assert len(world.log) == before


def test_a_target_computed_by_the_timer_names_only_what_has_a_state() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.join("b", "t")
    world.topics.put("t", 3)
    world.sleep(ASSIGNMENT_MS)
    assert world.read(world.key("t", 2)).error_code is ErrorCode.NONE


def test_members_follow_the_lag() -> None:
    world = World(ShareSettings(group_share_assignors=("load",)), t=4)
    for member in "abcd":
        world.join(member, "t")
    world.settle(*"abcd")
    busy = world.key("t", 3)
    world.tell(LagsMeasured(G, {(busy.topic_id, 3): 5_000}))
    found = world.settle(*"abcd")
    assert sum((busy.topic_id, 3) in partitions for partitions in found.values()) == 4
    assert set.union(*found.values()) == world.topics.all("t")


def test_a_lag_that_is_not_measured_again_stays_as_it_was() -> None:
    world = World(ShareSettings(group_share_assignors=("load",)), t=4)
    for member in "abcd":
        world.join(member, "t")
    busy = world.key("t", 3)
    world.tell(LagsMeasured(G, {(busy.topic_id, 3): 5_000}))
    world.settle(*"abcd")
    world.tell(LagsMeasured(G, {(busy.topic_id, 0): 0}))
    world.join("e", "t")
    found = world.settle(*"abcde")
    assert all((busy.topic_id, 3) in partitions for partitions in found.values())


@pytest.mark.parametrize("news", ["lag", "leaver"])
def test_a_target_is_computed_without_a_heartbeat(news: str) -> None:
    world = World(ShareSettings(group_share_assignors=("load",)), t=4)
    for member in "abcd":
        world.join(member, "t")
    world.settle(*"abcd")
    before = world.logged().assignment_epoch
    if news == "lag":
        world.tell(LagsMeasured(G, {(world.key("t", 3).topic_id, 3): 5_000}))
    else:
        world.beat("a", -1)
    world.sleep(ASSIGNMENT_MS)
    assert world.logged().assignment_epoch == before + 1


def test_lags_move_nobody_under_simple() -> None:
    world = a_pair()
    before = len(world.log)
    world.tell(LagsMeasured(G, {(world.key("t", 0).topic_id, 0): 5_000}))
    world.tell(LagsMeasured("unknown", {}))
    assert len(world.log) == before


def test_options_are_in_force_where_a_group_sets_nothing() -> None:
    options = ShareGroupOptions(group_share_heartbeat_interval_ms=9_000)
    world = World(ShareSettings(options=options), t=1)
    assert world.join("a", "t").heartbeat_interval_ms == 9_000
