"""Members of a KIP-848 group that use the classic protocol: their requests in terms of that group.

A JoinGroup is the full heartbeat of such a member. Its subscription names the topics, and the
partitions that the member still owns. It is answered at once: the coordinator assigns, so nobody
waits for a leader. The member's epoch is its generation, and SyncGroup returns what it may use. A
heartbeat is answered with REBALANCE_IN_PROGRESS when a JoinGroup would bring it nearer to its
target.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tidemark.codec.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    ConsumerSubscription,
    read_subscription,
    write_assignment,
)
from tidemark.codec.coordinator_fields import DamagedRecordError
from tidemark.codec.group_records_consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from tidemark.model.assignment import NOTHING, Assignment, by_topic, pairs
from tidemark.model.errors import ErrorCode

from broker.core.groups.consumer.admission import Admitted
from broker.core.groups.consumer.member import JOINS, ConsumerMember, MemberState
from broker.core.groups.consumer.state import ConsumerGroupState
from broker.core.groups.requests import (
    UNKNOWN_MEMBER,
    GroupSettings,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    SyncGroup,
    Topics,
)

PROTOCOLS_BYTES_MAX: Final = 500_000
"""Largest total size of a member's protocols: they become one record, and no record may exceed the
offsets topic's max.message.bytes (1 MiB as in Kafka).
"""


# -- JoinGroup


def readable(protocols: Iterable[JoinProtocol]) -> ConsumerSubscription | None:
    """Return the subscription in a member's protocols, all of which have the same topics; None if
    one is no subscription, if there are none, or if they are too large for a record.
    """
    found: ConsumerSubscription | None = None
    size_bytes = 0
    try:
        for one in protocols:
            subscription = read_subscription(one.metadata)
            found = found or subscription
            size_bytes += len(one.metadata) + len(one.name.encode())
    except DamagedRecordError:
        return None
    return found if size_bytes <= PROTOCOLS_BYTES_MAX else None


def supports(state: ConsumerGroupState, request: JoinGroup) -> bool:
    """True if the member and all others of the classic protocol share an assignment protocol, which
    they need once the group is a classic one.
    """
    if request.protocol_type != PROTOCOL_TYPE:
        return False
    names = {one.name for one in request.protocols}
    for member_id in state.classic_ids:
        classic = state.members[member_id].classic
        if classic is not None and member_id != request.member_id:
            names &= {one.name for one in classic.supported_protocols}
    return bool(names)


def admit(
    state: ConsumerGroupState,
    request: JoinGroup,
    subscription: ConsumerSubscription,
    settings: GroupSettings,
) -> Admitted | ErrorCode:
    """Return the member that sent a JoinGroup, or the one that it becomes, or a refusal.

    A member without an epoch that owns partitions is not new: it was removed, and what it owns may
    already belong to others. It has to begin again.
    """
    found = _sender(state, request, settings)
    if isinstance(found, Admitted) and found.member.member_epoch == JOINS and subscription.owned:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return found


def _sender(
    state: ConsumerGroupState, request: JoinGroup, settings: GroupSettings
) -> Admitted | ErrorCode:
    if request.group_instance_id is not None:
        holder = state.static_member(request.group_instance_id)
        if request.member_id != UNKNOWN_MEMBER:
            member = identify(state, request.member_id, request.group_instance_id)
            return member if isinstance(member, ErrorCode) else Admitted(member)
        if holder is not None:
            # As in the classic protocol, a restarted member replaces its predecessor at once.
            return Admitted(holder.taken_over_by(request.new_member_id), replaces=holder)
    known = state.members.get(request.member_id)
    if known is not None:
        return Admitted(known) if known.classic is not None else ErrorCode.UNKNOWN_MEMBER_ID
    if len(state.members) >= settings.group_consumer_max_size:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    is_static = request.group_instance_id is not None
    if request.member_id == UNKNOWN_MEMBER and request.member_id_required and not is_static:
        return ErrorCode.MEMBER_ID_REQUIRED  # KIP-394
    return Admitted(ConsumerMember(request.member_id or request.new_member_id))


def joining(
    member: ConsumerMember, request: JoinGroup, subscription: ConsumerSubscription
) -> ConsumerMember:
    """Return the member with the details in its JoinGroup."""
    about = ConsumerGroupMemberMetadataValue(
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or member.about.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            request.session_timeout_ms,
            tuple(ClassicProtocol(one.name, one.metadata) for one in request.protocols),
        ),
    )
    return member if member.about == about else replace(member, about=about)


def owned_when_joining(
    member: ConsumerMember, subscription: ConsumerSubscription, topics: Topics
) -> Assignment | None:
    """Return the partitions that a joining member still owns. None: all that it was assigned, since
    the request is a late copy of one that it sent in an earlier generation.
    """
    if member.member_epoch == JOINS:
        return NOTHING
    if subscription.generation not in (NO_GENERATION, member.member_epoch):
        return None
    return by_topic(
        (topic_id, partition)
        for name, partitions in subscription.owned
        if (topic_id := topics.topic_id_of(name)) is not None
        for partition in partitions
    )


# -- the other requests


def identify(
    state: ConsumerGroupState, member_id: str, group_instance_id: str | None
) -> ConsumerMember | ErrorCode:
    """Return the member of the classic protocol that sent a request, or an error. A static member
    whose place another holds is fenced.
    """
    if group_instance_id is not None:
        holder = state.static_member(group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = state.members.get(member_id)
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member


def in_generation(
    state: ConsumerGroupState, request: SyncGroup | Heartbeat
) -> ConsumerMember | ErrorCode:
    """Return the sender if the request names its epoch as the generation, or an error."""
    member = identify(state, request.member_id, request.group_instance_id)
    if isinstance(member, ConsumerMember) and request.generation_id != member.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def is_outdated(state: ConsumerGroupState, member: ConsumerMember) -> bool:
    """True if the group has gone on since the member joined. One that is to revoke partitions does
    that first, and joins again afterwards.
    """
    is_behind = state.group_epoch > member.member_epoch
    return is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS


def must_join(state: ConsumerGroupState, member: ConsumerMember) -> bool:
    """True if a JoinGroup would bring the member nearer to its target: the group has gone on, the
    member must confirm that it revoked partitions, or all those that it waits for are free.
    """
    if member.member_epoch < state.group_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    has = set(pairs(member.assigned))
    missing = [one for one in pairs(state.target_of(member.member_id)) if one not in has]
    return all(state.owner_of(*one) is None for one in missing)


def sync_problem(member: ConsumerMember, request: SyncGroup) -> ErrorCode | None:
    """Return the error of a SyncGroup that names another protocol than JoinGroup's reply."""
    if request.protocol_type not in (None, PROTOCOL_TYPE):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, protocol_of(member)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def protocol_of(member: ConsumerMember) -> str:
    """Return the protocol in which the member gets its assignment: its favourite, as in Kafka."""
    assert member.classic is not None
    return member.classic.supported_protocols[0].name


def assignment_bytes(member: ConsumerMember, assignment: Assignment, topics: Topics) -> bytes:
    """Return an assignment in the version of the member's subscription, without deleted topics."""
    assert member.classic is not None
    version = read_subscription(member.classic.supported_protocols[0].metadata).version
    named = {
        name: sorted(partitions)
        for topic_id, partitions in assignment.items()
        if (name := topics.name_of(topic_id)) is not None
    }
    return write_assignment(named, version)


def leaving(
    state: ConsumerGroupState, request: LeaveGroup
) -> tuple[tuple[LeftMember, ...], list[str]]:
    """Return the result for each leaving member, and the ids of those that leave. Members of
    KIP-848's protocol leave by a heartbeat only.
    """
    ids: list[str] = []
    return tuple(_left(state, one, ids) for one in request.members), ids


def _left(state: ConsumerGroupState, one: LeavingMember, ids: list[str]) -> LeftMember:
    member_id = one.member_id
    if member_id == UNKNOWN_MEMBER:  # an administrator names static members by instance ids
        holder = state.static_member(one.group_instance_id or "")
        member_id = holder.member_id if holder is not None else UNKNOWN_MEMBER
    member = identify(state, member_id, one.group_instance_id)
    if isinstance(member, ErrorCode) or member_id in ids:
        error_code = member if isinstance(member, ErrorCode) else ErrorCode.UNKNOWN_MEMBER_ID
        return LeftMember(one.member_id, one.group_instance_id, error_code)
    ids.append(member_id)
    return LeftMember(one.member_id, one.group_instance_id, ErrorCode.NONE)
