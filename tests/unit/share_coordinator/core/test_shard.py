"""Share groups as their members, leaders and administrators see them."""

from share_coordinator.core.effects import Answer, ReleaseGroupId, ReserveGroupId
from share_coordinator.core.requests import (
    DeleteShareGroup,
    DeleteShareGroupReply,
    DescribeShareGroup,
    DescribeShareGroupReply,
    GroupIdReserved,
    ListedShareGroup,
    ListGroupIds,
    ListGroupIdsReply,
    ListShareGroups,
    ListShareGroupsReply,
    TopicsDeleted,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.share_state import UNKNOWN_START, DeliveryState
from unit.share_coordinator.worlds import START_WALL, G, World, batch, given, joining, sizes

ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED


def test_the_first_member_gets_all_partitions_in_its_first_answer() -> None:
    world = World(t=3)
    reply = world.join("a", "t")
    assert given(reply) == world.topics.all("t")
    assert (reply.member_epoch, reply.heartbeat_interval_ms) == (1, 5_000)


def test_more_members_than_partitions_share_them() -> None:
    world = World(t=2)
    for member in "abcde":
        world.join(member, "t")
    found = world.settle(*"abcde")
    assert set.union(*found.values()) == world.topics.all("t")
    assert sizes(found) == [1, 1, 1, 1, 2]


def test_an_id_of_another_type_of_group_is_refused() -> None:
    world = World(t=1)
    world.refuse_ids = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("a", "t").error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not world.log


def test_members_that_wait_for_one_reservation_all_join() -> None:
    world = World(t=2)
    world.holds_ids = True
    requests = [world.tell(joining(member, "t")) for member in "ab"]
    assert world.effects == [ReserveGroupId(G)]
    assert not world.answers
    world.tell(GroupIdReserved(G, ErrorCode.NONE))
    assert sorted(world.answers) == requests
    assert set(world.logged().members) == {"a", "b"}


def test_members_that_wait_for_an_id_that_is_taken_are_all_refused() -> None:
    world = World(t=2)
    world.holds_ids = True
    requests = [world.tell(joining(member, "t")) for member in "ab"]
    world.tell(GroupIdReserved(G, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assert sorted(world.answers) == requests
    assert world.shard == World().shard
    world.tell(GroupIdReserved(G, ErrorCode.NONE))  # late, or of an earlier owner
    assert world.shard == World().shard


def test_a_heartbeat_to_a_group_that_does_not_exist() -> None:
    world = World(t=1)
    assert world.beat("a", 1).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.beat("a", -1).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_new_owner_has_the_same_group_and_states() -> None:
    world = World(t=2, u=1)
    world.join("a", "t", "u")
    world.join("b", "t")
    world.settle("a", "b")
    world.write(world.key("t", 0), batch(5, 6, ACKNOWLEDGED), start=5)
    before = world.shard
    world.reload()
    assert world.shard == before
    world.beat("a", world.logged().members["a"].member_epoch)


def test_share_partitions_begin_with_the_assignment_that_names_them() -> None:
    world = World(t=1)
    world.join("a", "t")
    assert world.read(world.key("t", 0)).start_offset == UNKNOWN_START
    world.topics.put("t", 2)
    world.beat("a", 1)
    assert world.read(world.key("t", 1)).start_offset == 0


def test_groups_are_independent() -> None:
    world = World(t=1)
    for group in ("one", "two"):
        world.join("a", "t", group_id=group)
    one, two = world.key("t", 0, "one"), world.key("t", 0, "two")
    world.write(one, batch(0, 9, ACKNOWLEDGED), start=0)
    world.write(two, start=7)
    assert world.read(one).batches == (batch(0, 9, ACKNOWLEDGED),)
    assert world.read(two).batches == ()


def test_a_topic_that_is_deleted_takes_its_states_along() -> None:
    world = World(t=1)
    world.join("a", "t")
    old = world.key("t", 0)
    world.topics.delete("t")
    world.tell(TopicsDeleted(frozenset({old.topic_id})))
    world.topics.put("t", 1)
    world.beat("a", 1)
    assert world.read(old).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.read(world.key("t", 0)).start_offset == UNKNOWN_START


def test_a_topic_that_was_deleted_unseen_is_forgotten_at_the_second_look() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.beat("a", -1)
    world.topics.delete("t")
    world.sleep(300_000)
    assert world.shard._states.count == 1
    world.sleep(300_000)
    assert world.shard._states.count == 0


def test_a_group_with_members_is_not_deleted() -> None:
    world = World(t=1)
    world.join("a", "t")
    reply = world.ask(DeleteShareGroup(G), DeleteShareGroupReply)
    assert reply.error_code is ErrorCode.NON_EMPTY_GROUP


def test_a_deleted_group_leaves_nothing() -> None:
    world = World(t=2)
    world.join("a", "t")
    world.beat("a", -1)
    keys = [world.key("t", partition) for partition in (0, 1)]
    assert world.ask(DeleteShareGroup(G), DeleteShareGroupReply).error_code is ErrorCode.NONE
    assert world.dropped() == keys
    assert world.released == [G]
    assert world.shard == World().shard
    again = world.ask(DeleteShareGroup(G), DeleteShareGroupReply)
    assert again.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_deletion_of_a_group_is_answered_when_its_id_is_released() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.beat("a", -1)
    decision = world.shard.decide(7, DeleteShareGroup(G), world.now)
    assert not any(isinstance(effect, Answer) for effect in decision.effects)
    (release,) = (one for one in decision.effects if isinstance(one, ReleaseGroupId))
    assert release.then == Answer(7, DeleteShareGroupReply(ErrorCode.NONE))


def test_a_leader_of_a_deleted_groups_window_is_fenced_by_its_successor() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.write(world.key("t", 0), start=5)
    epoch = world.epoch_of(world.key("t", 0))
    world.beat("a", -1)
    world.ask(DeleteShareGroup(G), DeleteShareGroupReply)
    world.join("a", "t")
    assert world.epoch_of(world.key("t", 0)) > epoch


def test_state_epochs_count_seconds() -> None:
    world = World(t=1)
    world.join("a", "t")
    assert world.epoch_of(world.key("t", 0)) == START_WALL // 1_000 + 1 - 1_577_836_800


def test_groups_are_listed_by_state() -> None:
    world = World(t=1)
    world.join("a", "t", group_id="busy")
    world.join("a", "t", group_id="idle")
    world.beat("a", -1, group_id="idle")
    ids = tuple(sorted(world.ask(ListGroupIds(), ListGroupIdsReply).group_ids))
    assert ids == ("busy", "idle")
    listed = world.ask(ListShareGroups(("gone", *ids), ("EMPTY",)), ListShareGroupsReply)
    assert listed.groups == (ListedShareGroup("idle", "Empty"),)
    everything = world.ask(ListShareGroups(ids), ListShareGroupsReply)
    assert [group.state for group in everything.groups] == ["Stable", "Empty"]


def test_a_group_is_described_with_its_members() -> None:
    world = World(t=2)
    world.join("a", "t", client_id="c", client_host="/h", rack_id="r")
    found = world.ask(DescribeShareGroup(G), DescribeShareGroupReply)
    assert (found.state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
    (member,) = found.members
    assert (member.client_id, member.client_host, member.rack_id) == ("c", "/h", "r")
    assert [(one.topic, one.partitions) for one in member.assignment] == [("t", (0, 1))]


def test_a_group_that_does_not_exist_is_dead() -> None:
    found = World().ask(DescribeShareGroup(G), DescribeShareGroupReply)
    assert (found.state, found.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert found.error_message == "Share group jobs not found."


def test_states_of_a_group_that_does_not_exist() -> None:
    world = World(t=1)
    key = world.key("t", 0)
    assert world.read(key).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.write(key, start=0).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_nothing_is_due_before_the_shard_serves() -> None:
    assert World().make_shard().next_deadline() is None
