"""The states of a group of the classic protocol, and the table of moves between them."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupState(Enum):
    """Values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun; waits for the leader's assignment."""
    STABLE = "Stable"
    """Everyone's assignment is in the log."""
    DEAD = "Dead"
    """Deleted."""


class Cause(Enum):
    """Why a group moves."""

    DISTURBED = "a member came, left, or changed what it reads"
    JOINED = "the members of the next generation are known"
    DESERTED = "no member joined the next generation"
    ASSIGNED = "the leader's assignment is in the log"
    DELETED = "the group is deleted"


# fmt: off
NEXT_STATE: Final[Mapping[tuple[GroupState, Cause], GroupState]] = MappingProxyType({
    (GroupState.EMPTY,                Cause.DISTURBED): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, Cause.DISTURBED): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE,               Cause.DISTURBED): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE,  Cause.JOINED):    GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE,  Cause.DESERTED):  GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, Cause.ASSIGNED):  GroupState.STABLE,
    (GroupState.EMPTY,                Cause.DELETED):   GroupState.DEAD,
})
# fmt: on
