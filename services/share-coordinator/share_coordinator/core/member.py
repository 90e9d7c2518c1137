"""A member of a share group: its subscription, its epochs, its assignment."""

from dataclasses import dataclass, field, replace
from typing import Final

from tidemark.codec.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)
from tidemark.model.assignment import Assignment, assignment_of, listed

from share_coordinator.core.requests import ShareGroupHeartbeat

JOINS: Final = 0
LEAVES: Final = -1
"""Member epochs with a meaning of their own (KIP-932)."""

NEVER: Final = -1
"""The epoch before a member's first."""

STABLE: Final = 0
"""Kafka's MemberState. A member of a share group has its target at once: a partition may have
several members, so that nothing need be given up first.
"""

_UNSAID: Final = ShareGroupMemberMetadataValue(None, "", "", ())


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member as the log has it."""

    member_id: str
    about: ShareGroupMemberMetadataValue = _UNSAID
    member_epoch: int = JOINS
    previous_epoch: int = NEVER
    assigned: Assignment = field(default_factory=dict)

    @property
    def subscription(self) -> tuple[str, ...]:
        """Names of topics, in order."""
        return self.about.subscribed_topic_names

    def updated_by(self, request: ShareGroupHeartbeat) -> "ShareMember":
        """Return the member with the fields of a heartbeat; the same object if nothing changes."""
        about, names = self.about, request.subscribed_topic_names
        updated = ShareGroupMemberMetadataValue(
            rack_id=about.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=(
                about.subscribed_topic_names if names is None else tuple(sorted(set(names)))
            ),
        )
        return self if updated == about else replace(self, about=updated)

    def moved_to(self, epoch: int, target: Assignment) -> "ShareMember":
        """Return the member at the target of this epoch; the same object if it is there already."""
        if epoch == self.member_epoch:
            return self
        return replace(self, member_epoch=epoch, previous_epoch=self.member_epoch, assigned=target)

    def as_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """Value of the record of its current assignment."""
        return ShareGroupCurrentMemberAssignmentValue(
            self.member_epoch, self.previous_epoch, STABLE, listed(self.assigned)
        )

    def with_value(self, value: ShareGroupCurrentMemberAssignmentValue) -> "ShareMember":
        """Return the member with the value of such a record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=assignment_of(value.assigned_partitions),
        )


def epoch_problem(member: ShareMember, epoch: int) -> str | None:
    """Return the reason to fence a heartbeat with this epoch, or None if it is accepted.

    The response with the newest epoch may have been lost: the epoch before it is accepted too.
    """
    if epoch in (JOINS, member.member_epoch):
        return None
    if epoch < member.member_epoch and epoch == member.previous_epoch:
        return None
    known = "greater" if epoch > member.member_epoch else "smaller"
    return (
        f"member epoch {epoch} is {known} than {member.member_epoch}, the one known by the "
        "coordinator: abandon all partitions and rejoin"
    )
