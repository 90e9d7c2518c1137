"""One group of the new consumer protocol, heartbeat by heartbeat."""

import pytest
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.consumer.member import MemberState
from tidemark.codec.group_records import encode
from tidemark.codec.group_records_consumer import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    TopicMetadata,
)
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.consumer.worlds import (
    REBALANCE_MS,
    SESSION_MS,
    World,
    compacted,
    heard,
    joining,
    replayed,
    said,
    topic_id,
)

A = topic_id(1)


@pytest.fixture
def world() -> World:
    return World(a=4, b=2)


def state_of(world: World, member_id: str) -> MemberState:
    return world.group.logged.members[member_id].state


def two_members(world: World) -> None:
    """``m`` and ``n`` read ``a`` and have two partitions each."""
    world.join("m", "a")
    world.join("n", "a")
    world.settle("m", "n")


# -- joining


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    reply = world.join("m", "a")
    assert reply.error_code is ErrorCode.NONE
    assert (reply.member_id, reply.member_epoch) == ("m", 1)
    assert reply.heartbeat_interval_ms == 5_000
    assert heard(reply) == world.topics.all("a")


@pytest.mark.feature("E13")
def test_joining_writes_one_record_of_each_kind(world: World) -> None:
    world.join("m", "a")
    assert [type(record) for record in world.log] == [
        ConsumerGroupMetadataRecord,
        ConsumerGroupPartitionMetadataRecord,
        ConsumerGroupMemberMetadataRecord,
        ConsumerGroupTargetAssignmentMemberRecord,
        ConsumerGroupTargetAssignmentMetadataRecord,
        ConsumerGroupCurrentMemberAssignmentRecord,
    ]


@pytest.mark.feature("E13")
def test_every_key_begins_with_its_kind_and_the_groups_name(world: World) -> None:
    two_members(world)
    heads = {encode(record)[0][: 2 + 2 + 1] for record in world.log}
    assert heads == {bytes((0, kind, 0, 1)) + b"g" for kind in (3, 4, 5, 6, 7, 8)}


@pytest.mark.feature("E13")
def test_what_compaction_leaves_is_the_group(world: World) -> None:
    two_members(world)
    world.beat("m", -1)
    world.settle("n")
    assert replayed(compacted(world.log)).logged == world.group.logged


def test_the_subscribed_topics_are_recorded_as_they_are(world: World) -> None:
    world.join("m", "a", "missing")
    assert world.group.logged.topics == (TopicMetadata(A, "a", 4),)


def test_a_member_may_read_nothing(world: World) -> None:
    assert heard(world.join("m")) == set()
    assert heard(world.join("n")) == set()
    assert world.group.state == "Stable"


def test_a_pattern_is_a_subscription(world: World) -> None:
    reply = world.join("m", subscribed_topic_regex="[ab]")
    assert heard(reply) == world.topics.all("a", "b")


def test_deciding_changes_nothing_that_is_logged(world: World) -> None:
    world.join("m", "a")
    before = list(world.group.logged.as_records())
    world.topics.put("a", 9)
    records, _ = world.decide(joining("n", "a"))
    assert records
    assert world.group.logged.as_records() == before


# -- reconciliation


@pytest.mark.feature("A09")
def test_a_second_member_waits_until_the_first_gives_up(world: World) -> None:
    world.join("m", "a")
    second = world.join("n", "a")
    assert heard(second) == set()
    assert state_of(world, "n") is MemberState.UNRELEASED_PARTITIONS


@pytest.mark.feature("A09")
def test_the_first_is_told_to_give_up_and_stays_in_its_epoch(world: World) -> None:
    world.join("m", "a")
    world.join("n", "a")
    reply = world.beat("m", 1)
    assert reply.member_epoch == 1
    assert heard(reply) == {(A, 0), (A, 1)}
    assert state_of(world, "m") is MemberState.UNREVOKED_PARTITIONS


@pytest.mark.feature("A09")
def test_only_what_was_acknowledged_is_given_to_the_next(world: World) -> None:
    world.join("m", "a")
    second = world.join("n", "a")
    world.beat("m", 1)
    assert world.beat("n", second.member_epoch).assignment is None
    world.beat("m", 1, topic_partitions=said({(A, 0), (A, 1)}))
    assert heard(world.beat("n", second.member_epoch)) == {(A, 2), (A, 3)}
    assert world.group.state == "Stable"


def test_an_unfinished_revocation_does_not_count(world: World) -> None:
    world.join("m", "a")
    world.join("n", "a")
    world.beat("m", 1)
    reply = world.beat("m", 1, topic_partitions=said({(A, 0), (A, 1), (A, 2)}))
    assert (reply.member_epoch, reply.assignment) == (1, None)


def test_a_quiet_heartbeat_says_nothing_and_writes_nothing(world: World) -> None:
    two_members(world)
    before = len(world.log)
    reply = world.beat("m", world.epoch_of("m"))
    assert reply.assignment is None
    assert len(world.log) == before


def test_a_full_heartbeat_is_answered_in_full(world: World) -> None:
    two_members(world)
    reply = world.beat(
        "m",
        world.epoch_of("m"),
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=("a",),
        topic_partitions=said(world.has("m")),
    )
    assert heard(reply) == world.has("m")


def test_targets_are_written_only_for_those_whose_target_changed(world: World) -> None:
    two_members(world)
    before = len(world.log)
    world.join("o", "b")
    targets = [
        record.member_id
        for record in world.log[before:]
        if isinstance(record, ConsumerGroupTargetAssignmentMemberRecord)
    ]
    assert targets == ["o"]


def test_the_wish_of_the_members_decides_on_the_assignor() -> None:
    world = World(a=3, b=3)
    world.join("m", "a", "b", server_assignor="range")
    world.join("n", "a", "b")
    target = world.group.logged.target_of("n")
    assert [sorted(one) for one in target.values()] == [[2], [2]]


# -- changes


@pytest.mark.parametrize("name", ["a", "c"])
def test_new_partitions_and_topics_raise_the_group_epoch(world: World, name: str) -> None:
    world.join("m", "a", "c")
    world.topics.put(name, 6)
    reply = world.beat("m", 1)
    assert reply.member_epoch == 2
    assert heard(reply) == world.topics.all("a", *({"c"} & {name}))


def test_other_changes_of_metadata_change_nothing(world: World) -> None:
    world.join("m", "a")
    before = len(world.log)
    world.topics.put("c", 6)
    assert world.beat("m", 1).member_epoch == 1
    assert len(world.log) == before


def test_a_deleted_topic_is_taken_back(world: World) -> None:
    world.join("m", "a", "b")
    world.topics.delete("a")
    assert heard(world.beat("m", 1)) == world.topics.all("b")


def test_a_topic_made_anew_is_another_topic(world: World) -> None:
    world.join("m", "a")
    world.topics.delete("a")
    world.topics.put("a", 4)
    world.settle("m")
    assert world.has("m") == world.topics.all("a")


def test_another_subscription_raises_the_group_epoch(world: World) -> None:
    world.join("m", "a")
    world.beat("m", 1, subscribed_topic_names=("b",))
    world.settle("m")
    assert world.has("m") == world.topics.all("b")
    assert world.group.logged.group_epoch == 2


def test_another_rack_alone_moves_nothing(world: World) -> None:
    world.join("m", "a")
    assert world.beat("m", 1, rack_id="r").member_epoch == 1
    assert world.group.logged.members["m"].about.rack_id == "r"


# -- leaving, and time


def test_who_leaves_is_gone_and_the_others_take_over(world: World) -> None:
    two_members(world)
    reply = world.beat("m", -1)
    assert (reply.error_code, reply.member_epoch) == (ErrorCode.NONE, -1)
    assert world.group.state == "Assigning"
    world.settle("n")
    assert world.has("n") == world.topics.all("a")


def test_topics_that_only_one_read_are_forgotten_after_it_left(world: World) -> None:
    world.join("m", "a")
    world.join("n", "b")
    world.beat("n", -1)
    world.settle("m")
    assert [topic.topic_name for topic in world.group.logged.topics] == ["a"]


def test_when_the_last_leaves_the_group_is_empty(world: World) -> None:
    world.join("m", "a")
    world.beat("m", -1)
    assert world.group.is_empty
    assert world.group.state == "Empty"
    assert world.group.next_deadline() is None


def test_an_empty_group_goes_on_at_a_higher_epoch(world: World) -> None:
    world.join("m", "a")
    world.beat("m", -1)
    assert world.join("n", "a").member_epoch == 3


def test_a_static_member_away_keeps_its_partitions(world: World) -> None:
    world.join("s", "a", instance_id="i")
    reply = world.beat("s", -2, instance_id="i")
    assert reply.member_epoch == -2
    assert heard(world.join("n", "a")) == set()


def test_a_static_member_that_returns_raises_no_epoch(world: World) -> None:
    world.join("s", "a", instance_id="i")
    world.beat("s", -2, instance_id="i")
    reply = world.join("t", "a", instance_id="i")
    assert reply.member_epoch == 1
    assert heard(reply) == world.topics.all("a")


def test_a_static_member_away_need_not_revoke_anything(world: World) -> None:
    world.join("s", "a", instance_id="i", rebalance_timeout_ms=30_000)
    world.join("n", "a")
    world.beat("s", 1)
    world.beat("s", -2, instance_id="i")
    world.sleep(30_000)
    world.beat("n", world.epoch_of("n"))
    assert "s" in world.group.logged.members


def test_a_static_member_that_does_not_return_is_fenced(world: World) -> None:
    world.join("s", "a", instance_id="i")
    world.beat("s", -2, instance_id="i")
    world.sleep(SESSION_MS)
    assert world.group.is_empty


def test_who_is_silent_for_a_session_is_fenced(world: World) -> None:
    two_members(world)
    world.sleep(SESSION_MS - 1)
    world.beat("m", world.epoch_of("m"))
    world.sleep(1)
    assert list(world.group.logged.members) == ["m"]
    assert world.beat("n", 2).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_several_silent_members_are_fenced_at_once(world: World) -> None:
    two_members(world)
    epoch = world.group.logged.group_epoch
    world.sleep(SESSION_MS)
    assert world.group.is_empty
    assert world.group.logged.group_epoch == epoch + 1


def test_who_does_not_revoke_in_time_is_fenced_though_it_beats(world: World) -> None:
    world.join("m", "a", rebalance_timeout_ms=30_000)
    world.join("n", "a")
    world.beat("m", 1)
    world.sleep(29_999)
    assert world.beat("m", 1).error_code is ErrorCode.NONE
    world.sleep(1)
    assert world.beat("m", 1).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_revoked_in_time_is_not(world: World) -> None:
    world.join("m", "a", rebalance_timeout_ms=30_000)
    world.join("n", "a")
    world.beat("m", 1)
    world.beat("m", 1, topic_partitions=said({(A, 0), (A, 1)}))
    world.sleep(30_000)
    assert "m" in world.group.logged.members


def test_after_loading_sessions_and_revocations_start_anew(world: World) -> None:
    world.join("m", "a", rebalance_timeout_ms=30_000)
    world.join("n", "a")
    world.beat("m", 1)
    world.sleep(20_000)
    world.reload()
    world.sleep(29_999)
    assert "m" in world.group.logged.members
    world.sleep(1)
    assert list(world.group.logged.members) == ["n"]


def test_waking_too_early_does_nothing(world: World) -> None:
    world.join("m", "a")
    assert world.group.wake(world.moment) == []


def test_a_deadline_of_who_is_no_member_is_forgotten() -> None:
    world = World(a=1)
    world.decide(joining("m", "a"))
    world.sleep(SESSION_MS)
    assert world.group.next_deadline() is None


# -- queries


@pytest.mark.feature("E14")
def test_only_a_member_in_its_current_epoch_may_commit(world: World) -> None:
    world.join("m", "a")
    refused = world.group.commit_refused
    assert refused("m", 1) is ErrorCode.NONE
    assert refused("m", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused("m", -1) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("", -1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("E14")
def test_a_member_that_was_fenced_may_not_commit_any_more(world: World) -> None:
    two_members(world)
    world.sleep(SESSION_MS)
    assert world.group.commit_refused("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.feature("E14")
def test_nobody_in_particular_may_commit_for_an_empty_group(world: World) -> None:
    world.join("m", "a")
    world.beat("m", -1)
    assert world.group.commit_refused("", -1) is ErrorCode.NONE


def test_a_static_member_away_may_not_commit(world: World) -> None:
    world.join("s", "a", instance_id="i")
    world.beat("s", -2, instance_id="i")
    assert world.group.commit_refused("s", -2) is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_may_be_asked_for_without_a_name_or_in_the_current_epoch(world: World) -> None:
    world.join("m", "a")
    refused = world.group.fetch_refused
    assert refused(None, -1) is ErrorCode.NONE
    assert refused("", -1) is ErrorCode.NONE, "an empty id names nobody either"
    assert refused(None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("x", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("m", -1) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused("m", 1) is ErrorCode.NONE
    assert refused("m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert refused("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_subscribes_to_what_its_members_do(world: World) -> None:
    world.join("m", "missing", subscribed_topic_regex="b.*")
    assert world.group.subscribes_to("b")
    assert world.group.subscribes_to("missing")
    assert not world.group.subscribes_to("a")


def test_an_empty_group_subscribes_to_nothing(world: World) -> None:
    world.join("m", "a")
    world.beat("m", -1)
    assert not world.group.subscribes_to("a")


def test_a_new_group_does_not_exist_until_its_records_are_replayed() -> None:
    group = ConsumerGroup("g")
    assert not group.exists
    assert group.state == "Dead"
    assert group.member_count == 0


def test_tombstones_end_the_group(world: World) -> None:
    world.join("m", "a")
    world.append(world.group.tombstones())
    assert not world.group.exists
