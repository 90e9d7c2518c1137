"""Admission of KIP-848 heartbeats: checks of requests, member ids, instance ids and epochs."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode

from broker.core.groups.consumer.description import supported_assignors
from broker.core.groups.consumer.member import (
    JOINS,
    LEAVES_FOR_A_WHILE,
    NOT_SAID,
    ConsumerMember,
    MemberState,
    epoch_problem,
    owned_by,
)
from broker.core.groups.consumer.state import ConsumerGroupState
from broker.core.groups.requests import ConsumerGroupHeartbeat, GroupSettings
from broker.core.groups.subscriptions.resolver import pattern_problem

STRING_BYTES_MAX: Final = 32_767
"""Largest size of one name or id: the limit of Kafka's strings, and of keys of records."""

TEXT_BYTES_MAX: Final = 1024 * 1024
"""Largest total size of all names and ids of a heartbeat: they become one record."""


class Refused(NamedTuple):
    """Error and message of a refused heartbeat."""

    error_code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """The member as it was before this heartbeat; a new one is in epoch 0."""

    member: ConsumerMember
    replaces: ConsumerMember | None = None
    """Static member that had the same instance id and another member id."""


def request_problem(request: ConsumerGroupHeartbeat, settings: GroupSettings) -> Refused | None:
    """Return the error of a request that is invalid for any group, or None."""
    for name in ("group_id", "instance_id", "rack_id"):
        if getattr(request, name) == "":
            return _invalid(f"{name} must not be empty")
    if request.member_epoch < LEAVES_FOR_A_WHILE:
        return _invalid(f"there is no member epoch {request.member_epoch}")
    if request.member_epoch == JOINS:
        problem = _joining_problem(request)
    elif not request.member_id:
        problem = "member_id must not be empty"
    elif request.member_epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        problem = "only a static member, with instance_id, can leave for a while"
    else:
        problem = _text_problem(request)
    if problem is not None:
        return _invalid(problem)
    return _unsupported(request, settings)


def _text_problem(request: ConsumerGroupHeartbeat) -> str | None:
    """Check the sizes of all names, since they go into records."""
    texts = (
        request.group_id,
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.subscribed_topic_regex,
        request.client_id,
        *(request.subscribed_topic_names or ()),
    )
    sizes = [len(text.encode()) for text in texts if text]
    if max(sizes, default=0) > STRING_BYTES_MAX:
        return f"a name or id has more than {STRING_BYTES_MAX} bytes"
    if sum(sizes) > TEXT_BYTES_MAX:
        return f"names and ids have more than {TEXT_BYTES_MAX} bytes together"
    return None


def _joining_problem(request: ConsumerGroupHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == NOT_SAID:
        return "rebalance_timeout must be given when joining"
    if request.rebalance_timeout_ms < 0:
        return "rebalance_timeout must not be negative"
    if request.topic_partitions is None or owned_by(request):
        return "topic_partitions must be empty when joining"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "subscribed_topic_names or subscribed_topic_regex must be given when joining"
    return _text_problem(request)


def _unsupported(request: ConsumerGroupHeartbeat, settings: GroupSettings) -> Refused | None:
    assignors = supported_assignors(settings)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor} is not supported: use {' or '.join(assignors)}",
        )
    problem = pattern_problem(request.subscribed_topic_regex)
    if problem is not None:
        return Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
    return None


def admit(
    state: ConsumerGroupState, request: ConsumerGroupHeartbeat, settings: GroupSettings
) -> Admitted | Refused:
    """Return the member that sent the heartbeat, or the one that it becomes, or a refusal."""
    if request.member_epoch == JOINS:
        return _joining(state, request, settings)
    member = state.members.get(request.member_id)
    if request.instance_id is not None:
        holder = state.static_member(request.instance_id)
        if holder is None:
            return _unknown(f"instance id {request.instance_id}")
        if holder is not member:
            return Refused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"member {holder.member_id} took over instance id {request.instance_id}",
            )
    if member is None or member.classic is not None:
        return _unknown(f"member {request.member_id}")
    if request.member_epoch < JOINS:
        return Admitted(member)
    return _in_epoch(member, request)


def _joining(
    state: ConsumerGroupState, request: ConsumerGroupHeartbeat, settings: GroupSettings
) -> Admitted | Refused:
    member_id = request.member_id or request.new_member_id
    assert member_id, "the shell names members that have no id"
    holder = state.static_member(request.instance_id) if request.instance_id is not None else None
    if holder is not None and (holder.is_away or holder.member_id != member_id):
        return _returning(holder, member_id, request)
    member = state.members.get(member_id)
    if member is not None:
        return Admitted(_rejoining(member))
    if len(state.members) >= settings.group_consumer_max_size:
        return Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group has its maximum of {settings.group_consumer_max_size} members",
        )
    return Admitted(ConsumerMember(member_id))


def _returning(
    holder: ConsumerMember, member_id: str, request: ConsumerGroupHeartbeat
) -> Admitted | Refused:
    """Return a static member that comes back with all that it had, mostly under a new member id.

    In the classic protocol a static member does not announce that it goes away.
    """
    if not holder.is_away and holder.classic is None:
        return Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {request.instance_id} is in use by member {holder.member_id}",
        )
    member = holder.taken_over_by(member_id)
    return Admitted(member, replaces=None if member_id == holder.member_id else holder)


def _rejoining(member: ConsumerMember) -> ConsumerMember:
    """Return a joining member without partitions, whatever it owned.

    If this is a delayed copy of an old join, the member's current epoch fences it as soon as any
    partition is taken from it: partitions change owners in newer epochs only.
    """
    return ConsumerMember(member.member_id, member.about)


def _in_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> Admitted | Refused:
    owned = owned_by(request)
    problem = epoch_problem(member, request.member_epoch, owned)
    if problem is None and member.state is MemberState.UNKNOWN and (owned is None or owned):
        problem = "the member is in a state of a newer release: abandon all partitions and rejoin"
    if problem is not None:
        return Refused(ErrorCode.FENCED_MEMBER_EPOCH, problem)
    return Admitted(member)


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def _unknown(subject: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{subject} is not in the group")
