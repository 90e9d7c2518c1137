"""One group's members and generation: names, votes, subscriptions, the log."""

import pytest
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.member import Member, joining_member
from broker.core.groups.classic.states import Cause, GroupState
from broker.core.groups.requests import JoinProtocol
from tidemark.codec.group_records import GroupMetadataValue, MemberMetadata, encode
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import WallMs
from unit.broker.core.groups.group_worlds import join, subscription

RANGE = JoinProtocol("range", subscription("orders"))
STICKY = JoinProtocol("sticky", subscription("orders", "bills"))


def add(group: ClassicGroup, member_id: str, *protocols: JoinProtocol, **fields: str) -> Member:
    asked = join(protocols=protocols or (RANGE,), **fields)  # type: ignore[arg-type]
    member = joining_member(member_id, asked)
    group.add(member, asked.protocol_type)
    return member


def preparing(*members: str) -> ClassicGroup:
    group = ClassicGroup("g")
    for member_id in members:
        add(group, member_id)
    group.move(Cause.MEMBERS_CHANGED)
    return group


def test_who_comes_first_leads_and_the_next_takes_over() -> None:
    group = preparing("a", "b")
    leaders = [group.leader]
    for gone in ("a", "b"):
        group.remove(gone)
        leaders.append(group.leader)
        group.check()
    assert leaders == ["a", "b", None]


@pytest.mark.feature("A09")
def test_a_static_place_has_one_holder() -> None:
    group = preparing()
    first = add(group, "a", instance="i")
    assert group.identify("a", "i") is first
    assert group.identify("b", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.identify("a", "j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.identify("b", None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_renamed_member_keeps_its_place_and_its_lead() -> None:
    group = preparing()
    member = add(group, "a", instance="i")
    group.unsynced = {"a"}
    group.rename(member, "a2")
    assert (group.leader, group.unsynced) == ("a2", {"a2"})
    assert group.static_member("i") is member
    group.check()


@pytest.mark.parametrize(
    ("protocol_type", "protocols", "fits"),
    [
        ("consumer", (RANGE,), True),
        ("consumer", (STICKY,), False),
        ("consumer", (STICKY, RANGE), True),
        ("connect", (RANGE,), False),
        ("consumer", (), False),
    ],
)
def test_who_shares_no_protocol_does_not_fit(
    protocol_type: str, protocols: tuple[JoinProtocol, ...], fits: bool
) -> None:
    assert preparing("a").supports(protocol_type, protocols) is fits


def test_an_empty_group_takes_any_type_but_none() -> None:
    group = ClassicGroup("g")
    assert group.supports("connect", (STICKY,))
    assert not group.supports("", (STICKY,))
    assert not group.supports("connect", ())


def test_most_votes_win_among_what_all_know() -> None:
    group = preparing()
    add(group, "a", RANGE, STICKY)
    add(group, "b", STICKY, RANGE)
    add(group, "c", JoinProtocol("own", b""), STICKY, RANGE)
    assert group.elect_protocol() == "sticky"


def test_topics_are_known_from_the_consumers_own_protocol() -> None:
    group = preparing("a")
    add(group, "b", RANGE._replace(metadata=subscription("bills")))
    group.begin_generation()
    assert group.subscribed_topics() == {"orders", "bills"}
    assert group.is_subscribed_to("bills")
    assert not group.is_subscribed_to("other")


def test_topics_of_a_broken_subscription_may_be_any() -> None:
    group = preparing()
    add(group, "a", RANGE._replace(metadata=b"\0\0\0\0\0\7"))
    group.begin_generation()
    assert group.subscribed_topics() is None
    assert group.is_subscribed_to("whatever")


def test_other_types_have_no_topics() -> None:
    group = preparing()
    add(group, "a", protocol_type="connect")
    group.begin_generation()
    assert group.subscribed_topics() is None
    assert not group.is_subscribed_to("orders")


@pytest.mark.feature("A09")
def test_a_generation_has_its_members_and_only_the_leader_sees_them() -> None:
    group = preparing("a", "b")
    group.begin_generation()
    first, second = (group.join_reply(one) for one in group.members.values())
    assert [one.member_id for one in first.members] == ["a", "b"]
    assert (second.members, second.leader, second.generation_id) == ((), "a", 1)
    assert group.unsynced == {"a", "b"}


def test_a_generation_without_members_is_empty() -> None:
    group = preparing("a")
    group.remove("a")
    group.begin_generation()
    assert (group.state, group.generation, group.protocol) == (GroupState.EMPTY, 1, None)


def test_what_is_replayed_live_only_brings_assignments() -> None:
    group = preparing("a", "b")
    group.begin_generation()
    group.unsynced = set()
    group.replay(_value(group, {"a": b"1"}))
    assert group.state is GroupState.STABLE
    assert [one.assignment for one in group.members.values()] == [b"1", b""]
    assert group.state_changed_at == 500
    group.check()


@pytest.mark.parametrize("size", [0, 300])
def test_how_large_a_record_is_is_known_beforehand(size: int) -> None:
    group = preparing("a", "b")
    add(group, "ccc", instance="é" * size)
    group.begin_generation()
    assignments = {"a": bytes(size)}
    _, value = encode(group.record(WallMs(500), assignments))
    assert value is not None
    assert 0 <= group.record_bytes(assignments) - len(value) <= 24


def test_what_is_loaded_is_the_same_group() -> None:
    group = preparing("a", "b")
    group.begin_generation()
    value = _value(group, {"a": b"1"})
    loaded = ClassicGroup("g")
    loaded.replay(value)
    loaded.check()
    assert loaded.state is GroupState.STABLE
    assert loaded.record(WallMs(500), {"a": b"1"}).value == value


def test_the_last_record_of_a_group_counts() -> None:
    loaded = ClassicGroup("g")
    member = MemberMetadata("a", "i", "c", "/h", 1, 1, b"", b"")
    loaded.replay(GroupMetadataValue("consumer", 3, "range", "a", -1, (member,)))
    loaded.replay(GroupMetadataValue("consumer", 4, None, None, 500))
    loaded.check()
    assert (loaded.state, loaded.generation) == (GroupState.EMPTY, 4)
    assert loaded.static_member("i") is None


def _value(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupMetadataValue:
    value = group.record(WallMs(500), assignments).value
    assert value is not None
    return value
