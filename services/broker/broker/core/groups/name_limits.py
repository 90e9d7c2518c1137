"""Limits on the length of names in group records.

Keys of ``__consumer_offsets``, and values of classic groups, have strings of at most 32,767 bytes.
A request may contain longer ones.
"""

from collections.abc import Iterable
from typing import Final

from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupReply,
    GroupRequest,
    JoinGroup,
    JoinGroupReply,
    OffsetCommit,
    OffsetCommitReply,
    TxnOffsetCommit,
)

NAME_BYTES_MAX: Final = 32_767


def too_long(request: GroupRequest) -> GroupReply | None:
    """Return the refusal of a request with a name that is too long for its record, or None."""
    match request:
        case JoinGroup():
            error_code = _problem(request.group_id, _names_of_member(request))
            return JoinGroupReply(error_code=error_code) if error_code else None
        case OffsetCommit() | TxnOffsetCommit():
            error_code = _problem(request.group_id, ())
            return OffsetCommitReply(error_code=error_code) if error_code else None
        case ConsumerGroupHeartbeat():
            names = (request.member_id, request.new_member_id)
            error_code = _problem(request.group_id, names)
            return ConsumerGroupHeartbeatReply(error_code=error_code) if error_code else None
        case _:
            return None


def _names_of_member(request: JoinGroup) -> list[str]:
    return [
        request.new_member_id,
        request.group_instance_id or "",
        request.client_id,
        request.client_host,
        request.protocol_type,
        *(protocol.name for protocol in request.protocols),
    ]


def _problem(group_id: str, others: Iterable[str]) -> ErrorCode:
    if not fits(group_id):
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if all(map(fits, others)) else ErrorCode.INVALID_REQUEST


def fits(name: str) -> bool:
    """True if a name is not too long for a record."""
    # A character has at most four bytes, so most names fit without being encoded.
    return len(name) * 4 <= NAME_BYTES_MAX or len(name.encode()) <= NAME_BYTES_MAX
