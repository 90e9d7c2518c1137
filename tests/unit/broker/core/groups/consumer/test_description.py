"""ConsumerGroupDescribe."""

from dataclasses import replace

from broker.core.groups.consumer.description import preferred_assignor
from broker.core.groups.consumer.state import metadata_record
from broker.core.groups.requests import GroupSettings, TopicPartitions
from tidemark.codec.group_records_consumer import ClassicMemberMetadata, ClassicProtocol
from tidemark.model.errors import ErrorCode
from unit.broker.core.groups.consumer.worlds import World, topic_id


def test_a_group_that_does_not_exist_is_not_found() -> None:
    world = World()
    reply = world.group.describe(world.topics)
    assert reply.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert reply.state == "Dead"


def test_a_group_is_shown_with_epochs_and_assignor() -> None:
    world = World(a=2)
    world.join("m", "a", server_assignor="range")
    reply = world.group.describe(world.topics)
    assert (reply.group_epoch, reply.assignment_epoch) == (1, 1)
    assert reply.assignor_name == "range"
    assert reply.state == "Stable"


def test_a_member_is_shown_with_what_it_has_and_shall_have() -> None:
    world = World(a=2)
    world.join("m", "a", rack_id="r", subscribed_topic_regex="x.*")
    world.join("n", "a")
    m, n = world.group.describe(world.topics).members
    assert m.assignment == (TopicPartitions("a", topic_id(1), (0, 1)),)
    assert m.target_assignment == (TopicPartitions("a", topic_id(1), (0,)),)
    assert (m.rack_id, m.subscribed_topic_regex, m.client_host) == ("r", "x.*", "/127.0.0.1")
    assert n.assignment == ()
    assert n.target_assignment == (TopicPartitions("a", topic_id(1), (1,)),)


def test_a_member_is_shown_with_its_protocol() -> None:
    world = World(a=1)
    world.join("m", "a")
    classic = ClassicMemberMetadata(10_000, (ClassicProtocol("range", b""),))
    state = world.group.logged
    member = state.members["m"]
    about = replace(member.about, classic_member_metadata=classic)
    world.join("n", "a")
    world.append([metadata_record("g", replace(member, about=about))])
    shown = world.group.describe(world.topics).members
    assert [(one.member_id, one.member_type) for one in shown] == [("m", 0), ("n", 1)]


def test_a_topic_that_is_gone_has_no_name_to_show() -> None:
    world = World(a=2)
    world.join("m", "a")
    world.topics.delete("a")
    assert world.group.describe(world.topics).members[0].assignment == ()


def test_the_assignor_that_most_want_is_used() -> None:
    world = World(a=1)
    for name, assignor in (("m", "range"), ("n", "range"), ("o", "uniform")):
        world.join(name, "a", server_assignor=assignor)
    members = world.group.logged.members.values()
    assert preferred_assignor(members, GroupSettings()) == "range"


def test_without_a_wish_it_is_the_first_configured() -> None:
    settings = GroupSettings(group_consumer_assignors=("range", "uniform"))
    assert preferred_assignor([], settings) == "range"


def test_a_wish_that_is_no_longer_supported_does_not_count() -> None:
    world = World(a=1)
    world.join("m", "a", server_assignor="range")
    settings = GroupSettings(group_consumer_assignors=("uniform",))
    assert preferred_assignor(world.group.logged.members.values(), settings) == "uniform"
