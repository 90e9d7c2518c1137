"""What a group does when its subscriptions mean other topics."""

import pytest
from unit.broker.core.groups.consumer.worlds import World, compacted, heard


@pytest.fixture
def world() -> World:
    return World(a=4, b=2)


@pytest.mark.feature("A09", "SE14")
def test_a_pattern_matches_no_topic_that_its_member_may_not_describe(world: World) -> None:
    world.hidden.add("b")
    assert heard(world.join("m", subscribed_topic_regex=".*")) == world.topics.all("a")
    assert not world.group.subscribes_to("b")


def test_a_name_is_a_subscription_whatever_a_pattern_may_match(world: World) -> None:
    world.hidden.add("b")
    reply = world.join("m", "b", subscribed_topic_regex=".*")
    assert heard(reply) == world.topics.all("a", "b"), "the shell has refused names by itself"


def test_permissions_are_looked_at_again_after_the_refresh_interval(world: World) -> None:
    world.hidden.add("b")
    world.join("m", subscribed_topic_regex=".*")
    world.hidden.clear()
    interval_ms = world.settings.group_consumer_regex_refresh_interval_ms
    world.now += interval_ms - 1
    assert world.beat("m", 1).assignment is None
    world.now += 1
    assert heard(world.beat("m", 1)) == world.topics.all("a", "b")


def test_a_new_topic_is_matched_at_once_and_permissions_are_looked_at(world: World) -> None:
    world.hidden.add("b")
    world.join("m", subscribed_topic_regex=".*")
    world.topics.put("d", 1)
    assert heard(world.beat("m", 1)) == world.topics.all("a", "d")
    world.hidden.clear()
    world.topics.put("e", 1)
    assert heard(world.beat("m", 2)) == world.topics.all("a", "b", "d", "e")


def test_members_with_other_permissions_do_not_change_the_matches_in_turns(world: World) -> None:
    world.join("m", subscribed_topic_regex=".*")
    world.hidden.add("b")
    world.settle("m")
    assert world.has("m") == world.topics.all("a", "b")
    epoch = world.group.logged.group_epoch
    world.settle("m")
    assert world.group.logged.group_epoch == epoch


def test_who_takes_over_uses_the_logged_matches_until_a_member_comes(world: World) -> None:
    world.hidden.add("b")
    world.join("m", subscribed_topic_regex=".*")
    world.join("n", subscribed_topic_regex=".*")
    matches = world.group.logged.matches
    assert matches == {".*": {"a"}}
    world.reload()
    assert world.group.logged.matches == matches
    world.beat("n", -1)
    assert world.group.logged.matches == matches
    world.beat("m", -1)
    assert world.group.logged.matches == {}


def test_a_pattern_that_no_member_has_is_forgotten(world: World) -> None:
    world.join("m", subscribed_topic_regex="a")
    world.beat("m", 1, subscribed_topic_regex="b")
    assert world.group.logged.matches == {"b": {"b"}}
    world.beat("m", world.epoch_of("m"), subscribed_topic_regex="")
    assert world.group.logged.matches == {}


def test_the_end_of_a_group_ends_its_patterns(world: World) -> None:
    world.join("m", subscribed_topic_regex="a")
    world.append(world.group.tombstones())
    assert compacted(world.log) == []
