"""Requests about the type of a group id, independent of the wire.

A group id has one type of group at a time. Share groups belong to the share-coordinators, which
reserve the id of a group at its group coordinator before the group exists.
"""

from dataclasses import dataclass

from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import GroupReply, GroupRequest


@dataclass(frozen=True, slots=True)
class ReserveGroupId:
    """Reserve an id for a share group. May be repeated."""

    group_id: str
    owner_epoch: int = 0
    """Epoch of the share-coordinator as the owner of its shard; only a newer owner has a higher
    one.
    """


@dataclass(frozen=True, slots=True)
class ReleaseGroupId:
    """Release an id whose share group is deleted. Ignored if a newer owner has reserved the id."""

    group_id: str
    owner_epoch: int = 0


@dataclass(frozen=True, slots=True)
class GroupIdReply:
    """Reply to both. GROUP_ID_NOT_FOUND: a group of another type has the id."""

    error_code: ErrorCode
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class ShareGroupLookedUp:
    """Result of LookUpShareGroup; it has no reply. ``exists`` is None if no share-coordinator
    answered.
    """

    group_id: str
    exists: bool | None


@dataclass(frozen=True, slots=True)
class HasShareGroup:
    """Reply to DeleteGroup for an id that is reserved for a share group: nothing was deleted."""

    error_code: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND


IdRequest = ReserveGroupId | ReleaseGroupId | ShareGroupLookedUp
CoordinatorRequest = GroupRequest | IdRequest
CoordinatorReply = GroupReply | GroupIdReply | HasShareGroup
