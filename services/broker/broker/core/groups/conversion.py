"""Conversion of a group with members from one protocol to the other (KIP-848, online migration).

A classic group becomes a consumer group when the first member of that protocol joins. Its members
keep the partitions of their last assignment, in an epoch that is their generation. What a
cooperative member had when it joined, and was not assigned again, it has to revoke first. A
consumer group becomes a classic one when only members of that protocol remain. They keep what they
were assigned, and join the next generation.
"""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.codec.consumer_protocol import PROTOCOL_TYPE, read_assignment
from tidemark.codec.coordinator_fields import DamagedRecordError
from tidemark.codec.group_records import GroupMetadataValue, MemberMetadata
from tidemark.codec.group_records_consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
)
from tidemark.model.assignment import Assignment, by_topic, pairs
from tidemark.model.ids import WallMs

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.member import Member
from broker.core.groups.classic.rebalance import RECORD_BYTES_MAX
from broker.core.groups.consumer.classic_members import assignment_bytes, readable
from broker.core.groups.consumer.member import ConsumerMember, MemberState
from broker.core.groups.consumer.state import (
    ConsumerGroupState,
    current_record,
    epoch_record,
    metadata_record,
    target_record,
)
from broker.core.groups.requests import GroupSettings, Topics

# -- from the classic protocol to the consumer protocol


def upgraded(
    group: ClassicGroup, topics: Topics, settings: GroupSettings
) -> Sequence[ConsumerRecord] | None:
    """Return the records of a classic group as a consumer group, without those that end the classic
    one; None if it may not be converted, or if its members do not use the consumers' own protocol.

    Members that wait for their first generation are left out: they have no partitions, and some do
    not have their id. They join again.
    """
    staying = [one for one in group.members.values() if not one.is_new]
    is_permitted = settings.group_consumer_migration_policy.upgrades
    if not is_permitted or group.protocol_type != PROTOCOL_TYPE:
        return None
    if len(staying) > settings.group_consumer_max_size:
        return None
    members = [_converted(one, group.generation, topics) for one in staying]
    converted = [one for one in members if one is not None]
    if len(converted) < len(staying) or _overlap(converted):
        return None
    taken = {one for member in converted for one in pairs(member.assigned)}
    revoking = [
        _revoking(member, by_topic(set(pairs(_owned(staying[place], topics))) - taken))
        for place, member in enumerate(converted)
    ]
    return None if _overlap(revoking) else _records(group.group_id, group.generation, revoking)


def _converted(member: Member, generation: int, topics: Topics) -> ConsumerMember | None:
    """Return a member of a classic group as one of a consumer group; None if its bytes are not
    those of the consumers' own protocol.
    """
    subscription = readable(member.protocols)
    if subscription is None:
        return None
    try:
        assigned = read_assignment(member.assignment)
    except DamagedRecordError:
        return None
    about = ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            member.session_timeout_ms,
            tuple(ClassicProtocol(one.name, one.metadata) for one in member.protocols),
        ),
    )
    return ConsumerMember(
        member.member_id,
        about,
        member_epoch=generation,
        previous_epoch=generation,
        assigned=_by_id(assigned, topics),
    )


def _owned(member: Member, topics: Topics) -> Assignment:
    """Return the partitions that a member had when it joined. It may have them until it joins
    again: a cooperative one revokes after it has seen its assignment.
    """
    subscription = readable(member.protocols)
    assert subscription is not None, "the member was converted"
    return _by_id(subscription.owned, topics)


def _revoking(member: ConsumerMember, leaving: Assignment) -> ConsumerMember:
    if not leaving:
        return member
    state = MemberState.UNREVOKED_PARTITIONS
    return replace(member, state=state, pending_revocation=leaving)


def _by_id(named: Sequence[tuple[str, tuple[int, ...]]], topics: Topics) -> Assignment:
    """Return an assignment by topic id, without deleted topics."""
    return by_topic(
        (topic_id, partition)
        for name, partitions in named
        if (topic_id := topics.topic_id_of(name)) is not None
        for partition in partitions
    )


def _overlap(members: Sequence[ConsumerMember]) -> bool:
    """True if two members have one partition. The classic protocol permits it, KIP-848 does not."""
    owned = [one for member in members for one in pairs(member.owned)]
    return len(owned) != len(set(owned))


def _records(
    group_id: str, epoch: int, members: Sequence[ConsumerMember]
) -> Sequence[ConsumerRecord]:
    if epoch == 0:
        assert not members, "a member has a generation"
        return ()
    records: list[ConsumerRecord] = [epoch_record(group_id, epoch)]
    for member in members:
        records.append(metadata_record(group_id, member))
        records.append(target_record(group_id, member.member_id, member.assigned))
        records.append(current_record(group_id, member))
    records.append(ConsumerGroupTargetAssignmentMetadataRecord(group_id, epoch))
    return records


# -- from the consumer protocol to the classic protocol


def may_downgrade(state: ConsumerGroupState, settings: GroupSettings) -> bool:
    """True if a consumer group is to become a classic one: only members of that protocol are left,
    and they share an assignment protocol.
    """
    return (
        settings.group_consumer_migration_policy.downgrades
        and state.is_all_classic
        and len(state.members) <= settings.group_max_size
        and not _shares_instances(state)
        and _common_protocol(state) is not None
    )


def _shares_instances(state: ConsumerGroupState) -> bool:
    """True if a static member and its predecessor are both there, because the log was cut while one
    replaced the other. The session of the predecessor will end.
    """
    ids = [one.about.instance_id for one in state.members.values() if one.about.instance_id]
    return len(ids) != len(set(ids))


def downgraded(state: ConsumerGroupState, topics: Topics, now: WallMs) -> GroupMetadataValue | None:
    """Return the value of the record of a consumer group as a classic one; None if it is too large.

    Its generation is the newest that a member has, so that members that are up to date may commit
    until they join the next one. It has no leader, which means that the members have to join again.
    """
    protocol = _common_protocol(state)
    assert protocol is not None, "may_downgrade() is true"
    members = [state.members[member_id] for member_id in sorted(state.members)]
    logged = tuple(_as_logged(member, protocol, topics) for member in members)
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=max(1, *(member.member_epoch for member in members)),
        protocol=protocol,
        leader=None,
        current_state_timestamp=now,
        members=logged,
    )
    group = ClassicGroup(state.group_id)
    group.replay(value)
    size_bytes = group.record_bytes({one.member_id: one.assignment for one in logged})
    return value if size_bytes <= RECORD_BYTES_MAX else None


def _common_protocol(state: ConsumerGroupState) -> str | None:
    """Return the first member's favourite among the protocols that all members support."""
    supported = [
        [one.name for one in member.classic.supported_protocols]
        for _, member in sorted(state.members.items())
        if member.classic is not None
    ]
    common = set.intersection(*map(set, supported)) if supported else set()
    return next((name for name in supported[0] if name in common), None) if supported else None


def _as_logged(member: ConsumerMember, protocol: str, topics: Topics) -> MemberMetadata:
    about, classic = member.about, member.classic
    assert classic is not None, "all members use the classic protocol"
    metadata = next(one.metadata for one in classic.supported_protocols if one.name == protocol)
    return MemberMetadata(
        member.member_id,
        about.instance_id,
        about.client_id,
        about.client_host,
        about.rebalance_timeout_ms,
        classic.session_timeout_ms,
        metadata,
        assignment_bytes(member, member.owned, topics),
    )
