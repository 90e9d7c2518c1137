"""States of a group of the classic protocol, and the table of moves between them."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupState(Enum):
    """State of a group; values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for members to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun; waiting for the leader's assignment."""
    STABLE = "Stable"
    """All assignments are in the log."""
    DEAD = "Dead"
    """Deleted."""


class Cause(Enum):
    """Cause of a move to another state."""

    MEMBERS_CHANGED = "a member came, left, or changed what it reads"
    JOINED = "the members of the next generation are known"
    NO_MEMBERS = "no member joined the next generation"
    ASSIGNED = "the leader's assignment is in the log"
    DELETED = "the group is deleted"


# fmt: off
NEXT_STATE: Final[Mapping[tuple[GroupState, Cause], GroupState]] = MappingProxyType({
    (GroupState.EMPTY,                Cause.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, Cause.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE,               Cause.MEMBERS_CHANGED): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE,  Cause.JOINED):          GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE,  Cause.NO_MEMBERS):      GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Cause.ASSIGNED):        GroupState.STABLE,
    (GroupState.EMPTY,                Cause.DELETED):         GroupState.DEAD,
})
# fmt: on
