"""Which groups are converted, and what becomes of their members."""

from dataclasses import replace

import pytest
from broker.core.groups import conversion
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.member import MemberState
from broker.core.groups.consumer.state import ConsumerGroupState, metadata_record
from broker.core.groups.requests import GroupSettings
from broker.core.groups.settings import MigrationPolicy
from tidemark.codec.consumer_protocol import (
    ConsumerSubscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from tidemark.codec.group_records import GroupMetadataValue, MemberMetadata
from tidemark.model.ids import WallMs
from unit.broker.core.groups.group_worlds import ORDERS, FewTopics

SETTINGS = GroupSettings()


def member(
    member_id: str,
    *assigned: int,
    owned: tuple[int, ...] = (),
    instance: str | None = None,
    topic: str = "orders",
) -> MemberMetadata:
    has = (("orders", owned),) if owned else ()
    return MemberMetadata(
        member_id,
        instance,
        "client",
        "/host",
        60_000,
        10_000,
        write_subscription(ConsumerSubscription(3, ("orders",), has, 4, "rack")),
        write_assignment({topic: assigned}, 3),
    )


def classic(*members: MemberMetadata, protocol_type: str = "consumer") -> ClassicGroup:
    group = ClassicGroup("g")
    leader = members[0].member_id if members else None
    group.replay(GroupMetadataValue(protocol_type, 5, "range", leader, 0, members))
    return group


def upgraded(group: ClassicGroup, settings: GroupSettings = SETTINGS) -> ConsumerGroupState | None:
    records = conversion.upgraded(group, FewTopics(), settings)
    if records is None:
        return None
    state = ConsumerGroupState("g")
    for record in records:
        state.replay(record)
    state.check()
    return state


class TestUpgrade:
    def test_members_keep_their_partitions_and_their_generation(self) -> None:
        state = upgraded(classic(member("a", 0, 1), member("b", 2, 3, instance="i")))
        assert state is not None
        assert (state.group_epoch, state.assignment_epoch, state.state) == (5, 5, "Stable")
        a, b = state.members["a"], state.members["b"]
        assert (a.member_epoch, a.assigned) == (5, {ORDERS: frozenset({0, 1})})
        assert state.target_of("b") == b.assigned == {ORDERS: {2, 3}}
        assert (b.about.instance_id, b.about.rack_id) == ("i", "rack")
        assert (a.about.rebalance_timeout_ms, a.about.subscribed_topic_names) == (
            60_000,
            ("orders",),
        )
        assert a.classic is not None
        assert a.classic.session_timeout_ms == 10_000

    def test_what_a_cooperative_member_had_and_has_no_more_it_revokes_first(self) -> None:
        state = upgraded(classic(member("a", 0, owned=(0, 1, 2)), member("b", 2)))
        assert state is not None
        a = state.members["a"]
        assert (a.state, a.pending_revocation) == (
            MemberState.UNREVOKED_PARTITIONS,
            {ORDERS: frozenset({1})},
        )

    @pytest.mark.parametrize(
        "group",
        [
            classic(member("a", 0), protocol_type="connect"),
            classic(member("a", 0, 1), member("b", 1)),
            classic(member("a", 0), member("b", 1, owned=(2,)), member("c", 3, owned=(2,))),
            classic(member("a", 0)._replace(assignment=b"all")),
            classic(member("a", 0)._replace(subscription=b"none")),
            classic(member("a", 0)._replace(subscription=b"\0\0\0\0\0\0" + b"x" * 500_000)),
        ],
        ids=["not consumers", "shared", "both had it", "assignment", "subscription", "too large"],
    )
    def test_a_group_that_cannot_be_a_consumer_group_stays(self, group: ClassicGroup) -> None:
        assert upgraded(group) is None

    @pytest.mark.parametrize("policy", MigrationPolicy)
    def test_the_policy_decides(self, policy: MigrationPolicy) -> None:
        settings = replace(SETTINGS, group_consumer_migration_policy=policy)
        state = upgraded(classic(member("a", 0)), settings)
        assert (state is not None) == (policy in ("upgrade", "bidirectional"))

    def test_a_group_that_is_too_large_stays(self) -> None:
        settings = replace(SETTINGS, group_consumer_max_size=1)
        assert upgraded(classic(member("a", 0), member("b", 1)), settings) is None

    def test_an_empty_rack_is_none(self) -> None:
        subscription = write_subscription(ConsumerSubscription(3, ("orders",), (), 4, ""))
        state = upgraded(classic(member("a", 0)._replace(subscription=subscription)))
        assert state is not None
        assert state.members["a"].about.rack_id is None

    def test_partitions_of_a_deleted_topic_are_left_out(self) -> None:
        state = upgraded(classic(member("a", 0, topic="gone")))
        assert state is not None
        assert state.members["a"].assigned == {}


class TestDowngrade:
    def state(self, *members: MemberMetadata) -> ConsumerGroupState:
        state = upgraded(classic(*members))
        assert state is not None
        return state

    def test_members_keep_their_partitions_until_they_join_again(self) -> None:
        state = self.state(member("b", 2, 3, instance="i"), member("a", 0, owned=(1,)))
        value = conversion.downgraded(state, FewTopics(), WallMs(9))
        assert value is not None
        assert (value.generation, value.protocol, value.leader) == (5, "range", None)
        assert [one.member_id for one in value.members] == ["a", "b"]
        assert read_assignment(value.members[0].assignment) == (("orders", (0, 1)),)
        assert (value.members[1].group_instance_id, value.members[1].session_timeout_ms) == (
            "i",
            10_000,
        )

    @pytest.mark.parametrize("policy", MigrationPolicy)
    def test_the_policy_decides(self, policy: MigrationPolicy) -> None:
        settings = replace(SETTINGS, group_consumer_migration_policy=policy)
        wanted = policy in ("downgrade", "bidirectional")
        assert conversion.may_downgrade(self.state(member("a", 0)), settings) == wanted

    def test_a_group_that_cannot_be_classic_stays(self) -> None:
        assert not conversion.may_downgrade(ConsumerGroupState("g"), SETTINGS)
        small = replace(SETTINGS, group_max_size=1)
        assert not conversion.may_downgrade(self.state(member("a"), member("b")), small)

    def test_a_group_with_a_static_member_and_its_predecessor_stays(self) -> None:
        state = self.state(member("a", instance="i"))
        twin = replace(state.members["a"], member_id="b")
        state.replay(metadata_record("g", twin))
        assert state.is_all_classic
        assert not conversion.may_downgrade(state, SETTINGS)

    def test_a_group_with_records_too_large_stays(self) -> None:
        padding = bytes(400_000)
        members = [member(name, number) for number, name in enumerate("abc")]
        state = self.state(
            *(one._replace(subscription=one.subscription + padding) for one in members)
        )
        assert conversion.may_downgrade(state, SETTINGS)
        assert conversion.downgraded(state, FewTopics(), WallMs(9)) is None
