"""Moves a member of a KIP-848 group to its target: first it revokes partitions, then it gets new
ones.

A partition changes owners in three steps. Its owner is asked to revoke it and stays in its epoch;
the owner's heartbeat no longer lists it; only then is it free, and its next owner, waiting in the
target's epoch, gets it. So no two members have it at the same time.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from tidemark.model.assignment import Assignment, by_topic, pairs
from tidemark.model.ids import TopicId

from broker.core.groups.consumer.member import ConsumerMember, MemberState

STABLE: Final = MemberState.STABLE
UNREVOKED: Final = MemberState.UNREVOKED_PARTITIONS
UNRELEASED: Final = MemberState.UNRELEASED_PARTITIONS
UNKNOWN: Final = MemberState.UNKNOWN


class Finding(Enum):
    """Result of comparing a member with its target at a heartbeat."""

    AT_TARGET = "at target"
    """The member has reached the target's epoch."""
    NOT_ACKNOWLEDGED = "not acknowledged"
    """The member still owns partitions that it must revoke, or has not confirmed their revocation.
    """
    MUST_REVOKE = "must revoke"
    """The member has partitions that the target gives to others."""
    MUST_WAIT = "must wait"
    """Other members have partitions that the target gives to this one."""
    COMPLETE = "complete"
    """The member gets its whole target."""


# fmt: off
NEXT_STATE: Final[Mapping[tuple[MemberState, Finding], MemberState]] = MappingProxyType({
    (STABLE,     Finding.AT_TARGET):        STABLE,
    (STABLE,     Finding.MUST_REVOKE):      UNREVOKED,
    (STABLE,     Finding.MUST_WAIT):        UNRELEASED,
    (STABLE,     Finding.COMPLETE):         STABLE,
    (UNREVOKED,  Finding.NOT_ACKNOWLEDGED): UNREVOKED,
    (UNREVOKED,  Finding.MUST_REVOKE):      UNREVOKED,   # one epoch on: the target moved meanwhile
    (UNREVOKED,  Finding.MUST_WAIT):        UNRELEASED,
    (UNREVOKED,  Finding.COMPLETE):         STABLE,
    (UNRELEASED, Finding.MUST_REVOKE):      UNREVOKED,
    (UNRELEASED, Finding.MUST_WAIT):        UNRELEASED,
    (UNRELEASED, Finding.COMPLETE):         STABLE,
    (UNKNOWN,    Finding.MUST_REVOKE):      UNREVOKED,
    (UNKNOWN,    Finding.MUST_WAIT):        UNRELEASED,
    (UNKNOWN,    Finding.COMPLETE):         STABLE,
})
# fmt: on


class Goal(NamedTuple):
    """Target of a member."""

    epoch: int
    target: Assignment
    owner_of: Callable[[TopicId, int], str | None]
    """Returns the member that has a partition, or has not confirmed its revocation yet."""


def reconcile(member: ConsumerMember, goal: Goal, owned: Assignment | None) -> ConsumerMember:
    """Return the member after one heartbeat; the same object if nothing changes.

    ``owned`` is the list of owned partitions in the heartbeat, None if it has none.
    """
    finding, after = _look(member, goal, owned)
    assert after.state is NEXT_STATE[member.state, finding], (member.state, finding)
    return member if after == member else after


def _look(
    member: ConsumerMember, goal: Goal, owned: Assignment | None
) -> tuple[Finding, ConsumerMember]:
    if member.is_reconciled_to(goal.epoch):
        return Finding.AT_TARGET, member
    epoch = member.member_epoch
    if member.state is UNREVOKED:
        if still_owns(owned, member.pending_revocation):
            return Finding.NOT_ACKNOWLEDGED, member
        epoch += 1
    elif member.state is UNKNOWN:
        epoch = goal.epoch
    return _step(member, goal, owned, epoch)


def _step(
    member: ConsumerMember, goal: Goal, owned: Assignment | None, epoch: int
) -> tuple[Finding, ConsumerMember]:
    """Move from ``epoch`` towards the target: revoke, or else take free partitions."""
    target = set(pairs(goal.target))
    has = set(pairs(member.assigned))
    leaving = by_topic(has - target)
    if leaving and still_owns(owned, leaving):
        after = replace(
            member,
            state=UNREVOKED,
            member_epoch=epoch,
            previous_epoch=member.member_epoch,
            assigned=by_topic(has & target),
            pending_revocation=leaving,
        )
        return Finding.MUST_REVOKE, after
    # Partitions that the member itself has just revoked are free again.
    taken = {one for one in target - has if goal.owner_of(*one) not in (None, member.member_id)}
    after = replace(
        member,
        state=UNRELEASED if taken else STABLE,
        member_epoch=goal.epoch,
        previous_epoch=member.member_epoch,
        assigned=by_topic(target - taken),
        pending_revocation={},
    )
    return Finding.MUST_WAIT if taken else Finding.COMPLETE, after


def still_owns(owned: Assignment | None, partitions: Assignment) -> bool:
    """True if a member must be assumed to own any of ``partitions``: it does unless its heartbeat
    lists its partitions without them.
    """
    if owned is None:
        return True
    return any(not numbers.isdisjoint(owned.get(one, ())) for one, numbers in partitions.items())
