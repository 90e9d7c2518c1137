"""Admission of heartbeats: KIP-932's rules for requests, member ids and epochs."""

from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode

from share_coordinator.core.group_state import ShareGroupState
from share_coordinator.core.member import JOINS, LEAVES, ShareMember, epoch_problem
from share_coordinator.core.requests import ShareGroupHeartbeat

STRING_BYTES_MAX: Final = 32_767
"""Maximum of one name or id: the greatest length of a string in a record's key."""

TEXT_BYTES_MAX: Final = 512 * 1024
"""Maximum of all names and ids of a heartbeat together: they become one record."""


class Refused(NamedTuple):
    """Reason to refuse a heartbeat."""

    error_code: ErrorCode
    message: str


def request_problem(request: ShareGroupHeartbeat) -> Refused | None:
    """Return the reason to refuse a request whatever the group's state, or None."""
    for name in ("group_id", "member_id", "rack_id"):
        if getattr(request, name) == "":
            return _invalid(f"{name} must not be empty")
    if request.member_epoch < LEAVES:
        return _invalid(f"there is no member epoch {request.member_epoch}")
    if request.member_epoch == JOINS and not request.subscribed_topic_names:
        return _invalid("subscribed_topic_names must be given when joining")
    problem = _text_problem(request)
    return _invalid(problem) if problem is not None else None


def admit(
    group: ShareGroupState, request: ShareGroupHeartbeat, members_max: int
) -> ShareMember | Refused:
    """Return the member as it was before this heartbeat, a new one in epoch 0, or the refusal."""
    member = group.members.get(request.member_id)
    if member is not None:
        if request.member_epoch == LEAVES:
            return member
        problem = epoch_problem(member, request.member_epoch)
        return member if problem is None else Refused(ErrorCode.FENCED_MEMBER_EPOCH, problem)
    if request.member_epoch != JOINS:
        return Refused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"member {request.member_id} is not in group {request.group_id}: rejoin",
        )
    if len(group.members) >= members_max:
        return Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {request.group_id} has {members_max} members, as many as it may have"
            " (group.share.max.size)",
        )
    return ShareMember(request.member_id)


def _text_problem(request: ShareGroupHeartbeat) -> str | None:
    """All of this goes into records."""
    texts = (
        request.group_id,
        request.member_id,
        request.rack_id,
        request.client_id,
        request.client_host,
        *(request.subscribed_topic_names or ()),
    )
    sizes = [len(text.encode()) for text in texts if text]
    if max(sizes, default=0) > STRING_BYTES_MAX:
        return f"a name or id has more than {STRING_BYTES_MAX} bytes"
    if sum(sizes) > TEXT_BYTES_MAX:
        return f"names and ids have more than {TEXT_BYTES_MAX} bytes together"
    return None


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
