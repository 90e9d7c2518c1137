"""A member of a KIP-848 group: its own details, its partitions, and its valid epochs."""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from tidemark.codec.group_records_consumer import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from tidemark.model.assignment import Assignment, assignment_of, by_topic, listed, pairs

from broker.core.groups.requests import ConsumerGroupHeartbeat
from broker.core.groups.subscriptions.resolver import Subscription

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""Member epochs with a special meaning (KIP-848). The last is for a static member, whose partitions
wait for its return until its session ends.
"""

NEVER: Final = -1
"""Epoch before a member's first."""

NOT_SAID: Final = -1
"""Rebalance timeout of a heartbeat that does not change it."""


class MemberState(IntEnum):
    """Progress of a member towards its target; Kafka's numbers."""

    STABLE = 0
    """The member has its target, or has not begun to move to a newer one."""
    UNREVOKED_PARTITIONS = 1
    """The member must revoke some partitions, and confirm it, before it gets others."""
    UNRELEASED_PARTITIONS = 2
    """The member has revoked all that it must, and waits for others to do the same."""
    UNKNOWN = 127
    """A state of a newer release."""


_STATES: Final = frozenset(int(state) for state in MemberState)
_UNKNOWN_DETAILS: Final = ConsumerGroupMemberMetadataValue(None, None, "", "", (), None)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. Invariant: no partition is both ``assigned`` and in ``pending_revocation``; the
    member owns both.
    """

    member_id: str
    about: ConsumerGroupMemberMetadataValue = _UNKNOWN_DETAILS
    member_epoch: int = JOINS
    previous_epoch: int = NEVER
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    """Partitions that the member may use."""
    pending_revocation: Assignment = field(default_factory=dict)
    """Partitions that the member was asked to revoke and has not confirmed yet."""

    @property
    def subscription(self) -> Subscription:
        """Subscription of the member."""
        about = self.about
        return Subscription(about.subscribed_topic_names, about.subscribed_topic_regex or None)

    @property
    def owned(self) -> Assignment:
        """Partitions that no other member may have yet."""
        return by_topic((*pairs(self.assigned), *pairs(self.pending_revocation)))

    @property
    def is_away(self) -> bool:
        """True for a static member that left temporarily."""
        return self.member_epoch == LEAVES_FOR_A_WHILE

    @property
    def classic(self) -> ClassicMemberMetadata | None:
        """Details of a member of the classic protocol; None for one of KIP-848's."""
        return self.about.classic_member_metadata

    def is_reconciled_to(self, epoch: int) -> bool:
        """True if the member has all of the target of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def updated(self, request: ConsumerGroupHeartbeat) -> "ConsumerMember":
        """Return the member with the details in a heartbeat; omitted ones stay."""
        about = self.about
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        updated = ConsumerGroupMemberMetadataValue(
            instance_id=_newer(request.instance_id, about.instance_id),
            rack_id=_newer(request.rack_id, about.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=(
                about.subscribed_topic_names if names is None else tuple(sorted(set(names)))
            ),
            subscribed_topic_regex=_newer(regex, about.subscribed_topic_regex),
            rebalance_timeout_ms=about.rebalance_timeout_ms
            if timeout_ms == NOT_SAID
            else timeout_ms,
            server_assignor=_newer(request.server_assignor, about.server_assignor),
        )
        return self if updated == about else replace(self, about=updated)

    def away(self) -> "ConsumerMember":
        """Return a static member that leaves temporarily. Its partitions are kept for it; those
        that it was to revoke are free.
        """
        return replace(self, member_epoch=LEAVES_FOR_A_WHILE, pending_revocation={})

    def taken_over_by(self, member_id: str) -> "ConsumerMember":
        """Return a static member that begins again under another id. Its partitions are kept for
        it; those that it was to revoke are free.
        """
        return replace(
            self,
            member_id=member_id,
            member_epoch=JOINS,
            previous_epoch=NEVER,
            state=MemberState.STABLE,
            pending_revocation={},
        )

    def as_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of the member's current assignment record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_epoch,
            int(self.state),
            listed(self.assigned),
            listed(self.pending_revocation),
        )

    def with_value(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        """Return the member with the values of such a record."""
        state = value.state if value.state in _STATES else MemberState.UNKNOWN
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(state),
            assigned=assignment_of(value.assigned_partitions),
            pending_revocation=assignment_of(value.partitions_pending_revocation),
        )


def epoch_problem(member: ConsumerMember, epoch: int, owned: Assignment | None) -> str | None:
    """Return a message if a heartbeat's epoch does not fit the member, or None.

    The reply with the newest epoch may have been lost. The epoch before it is valid as long as the
    member lists the partitions that it owns, and all of them were assigned to it.
    """
    if epoch == member.member_epoch:
        return None
    is_one_behind = epoch < member.member_epoch and epoch == member.previous_epoch
    if is_one_behind and owned is not None and is_within(owned, member.owned):
        return None
    relation = "greater" if epoch > member.member_epoch else "smaller"
    return (
        f"member epoch {epoch} is {relation} than {member.member_epoch}, the one known by the "
        "coordinator: abandon all partitions and rejoin"
    )


def is_within(part: Assignment, whole: Assignment) -> bool:
    """True if every partition of ``part`` is in ``whole``."""
    nothing = frozenset[int]()
    return all(numbers <= whole.get(topic_id, nothing) for topic_id, numbers in part.items())


def owned_by(request: ConsumerGroupHeartbeat) -> Assignment | None:
    """Return the partitions that the member lists as owned; None: unchanged."""
    owned = request.topic_partitions
    return None if owned is None else assignment_of(owned)


def _newer(value: str | None, before: str | None) -> str | None:
    return before if value is None else value
