"""A member of a KIP-848 group: what it said of itself, what it has, which epochs it may name."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from tidemark.codec.group_records_consumer import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from tidemark.model.ids import TopicId

from broker.core.groups.consumer.assignors import Assignment, by_topic, pairs
from broker.core.groups.requests import ConsumerGroupHeartbeat, TopicIdPartitions
from broker.core.groups.subscriptions.resolver import Subscription

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""Member epochs with a meaning of their own (KIP-848): the last is a static member's, whose
partitions wait for its return until its session ends.
"""

NEVER: Final = -1
"""The epoch before a member's first."""

NOT_SAID: Final = -1
"""A rebalance timeout that a heartbeat leaves as it is."""


class MemberState(IntEnum):
    """How far a member is on its way to its target; Kafka's numbers."""

    STABLE = 0
    """It has its target, or nothing of a newer one was begun."""
    UNREVOKED_PARTITIONS = 1
    """It must give up some partitions, and say so, before it gets others."""
    UNRELEASED_PARTITIONS = 2
    """It gave up all it must, and waits for others to do the same."""
    UNKNOWN = 127
    """Of a release newer than ours."""


_STATES: Final = frozenset(int(state) for state in MemberState)
_UNSAID: Final = ConsumerGroupMemberMetadataValue(None, None, "", "", (), None)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """Invariant: no partition is both ``assigned`` and in ``pending_revocation``; the member is the
    owner of both.
    """

    member_id: str
    about: ConsumerGroupMemberMetadataValue = _UNSAID
    member_epoch: int = JOINS
    previous_epoch: int = NEVER
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    """What it may use."""
    pending_revocation: Assignment = field(default_factory=dict)
    """What it was asked to give up and did not yet say it has."""

    @property
    def subscription(self) -> Subscription:
        """What it asks for."""
        about = self.about
        return Subscription(about.subscribed_topic_names, about.subscribed_topic_regex or None)

    @property
    def owned(self) -> Assignment:
        """What nobody else may have for now."""
        return by_topic((*pairs(self.assigned), *pairs(self.pending_revocation)))

    @property
    def is_away(self) -> bool:
        """A static member that said it will be back."""
        return self.member_epoch == LEAVES_FOR_A_WHILE

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def told(self, request: ConsumerGroupHeartbeat) -> "ConsumerMember":
        """With what a heartbeat says of it; what it leaves out stays."""
        about = self.about
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        told = ConsumerGroupMemberMetadataValue(
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
        return self if told == about else replace(self, about=told)

    def away(self) -> "ConsumerMember":
        """A static member leaves for a while: what it had is kept for it, what it was to give up is
        free.
        """
        return replace(self, member_epoch=LEAVES_FOR_A_WHILE, pending_revocation={})

    def as_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """What of it the record of its current assignment holds."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_epoch,
            int(self.state),
            listed(self.assigned),
            listed(self.pending_revocation),
        )

    def with_value(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        """As such a record says."""
        known = value.state if value.state in _STATES else MemberState.UNKNOWN
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(known),
            assigned=assignment_of(value.assigned_partitions),
            pending_revocation=assignment_of(value.partitions_pending_revocation),
        )


def epoch_problem(member: ConsumerMember, epoch: int, owned: Assignment | None) -> str | None:
    """Why a heartbeat with this epoch is not of the member as we know it; None if it is.

    The answer that brought the newest epoch may have been lost: the epoch before is good as long as
    the member owns nothing beyond what it was given, and says so.
    """
    if epoch == member.member_epoch:
        return None
    is_one_behind = epoch < member.member_epoch and epoch == member.previous_epoch
    if is_one_behind and owned is not None and is_within(owned, member.owned):
        return None
    known = "greater" if epoch > member.member_epoch else "smaller"
    return (
        f"member epoch {epoch} is {known} than {member.member_epoch}, the one known by the "
        "coordinator: abandon all partitions and rejoin"
    )


def is_within(part: Assignment, whole: Assignment) -> bool:
    """Whether every partition of ``part`` is in ``whole``."""
    nothing = frozenset[int]()
    return all(numbers <= whole.get(topic_id, nothing) for topic_id, numbers in part.items())


def assignment_of(topics: Iterable[TopicIdPartitions]) -> Assignment:
    """From the wire's and the log's form; topics named twice are put together."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in topics:
        numbers = found.get(topic_id, frozenset()) | frozenset(partitions)
        if numbers:
            found[topic_id] = numbers
    return found


def listed(assignment: Assignment) -> tuple[TopicIdPartitions, ...]:
    """The wire's and the log's form, in order."""
    return tuple(
        TopicIdPartitions(topic_id, tuple(sorted(assignment[topic_id])))
        for topic_id in sorted(assignment)
    )


def owned_by(request: ConsumerGroupHeartbeat) -> Assignment | None:
    """What the member says it owns; None: as before."""
    said = request.topic_partitions
    return None if said is None else assignment_of(said)


def _newer(said: str | None, before: str | None) -> str | None:
    return before if said is None else said
