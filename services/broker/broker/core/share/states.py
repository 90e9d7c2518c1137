"""States of a record in a share group, of a share-partition, and the moves between them."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidemark.model.share_state import DeliveryState

AVAILABLE: Final = DeliveryState.AVAILABLE
ACQUIRED: Final = DeliveryState.ACQUIRED
ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
ARCHIVING: Final = DeliveryState.ARCHIVING
ARCHIVED: Final = DeliveryState.ARCHIVED


class Cause(Enum):
    """Reason of a record's move."""

    FETCHED = 0
    ACCEPTED = 1
    RELEASED = 2
    LOCK_ENDED = 3
    """Expired, or its member left."""
    REJECTED = 4
    EXHAUSTED = 5
    """Given back at the limit of deliveries."""
    NO_RECORD = 6
    """The offset has no record for the group: removed by compaction, a marker, or aborted."""
    DEAD_LETTERED = 7
    """Rejected or exhausted, where the group has a dead-letter queue."""
    COPIED = 8
    """The dead-letter queue has it."""
    NO_QUEUE = 9
    """The group names no dead-letter queue any longer."""


# fmt: off
NEXT_DELIVERY: Final[Mapping[tuple[DeliveryState, Cause], DeliveryState]] = {
    (AVAILABLE, Cause.FETCHED):       ACQUIRED,
    (AVAILABLE, Cause.NO_RECORD):     ARCHIVED,
    (AVAILABLE, Cause.EXHAUSTED):     ARCHIVED,   # the limit was lowered
    (AVAILABLE, Cause.DEAD_LETTERED): ARCHIVING,  # likewise
    (ACQUIRED,  Cause.ACCEPTED):      ACKNOWLEDGED,
    (ACQUIRED,  Cause.RELEASED):      AVAILABLE,
    (ACQUIRED,  Cause.LOCK_ENDED):    AVAILABLE,
    (ACQUIRED,  Cause.REJECTED):      ARCHIVED,
    (ACQUIRED,  Cause.EXHAUSTED):     ARCHIVED,
    (ACQUIRED,  Cause.NO_RECORD):     ARCHIVED,   # reported by the member
    (ACQUIRED,  Cause.DEAD_LETTERED): ARCHIVING,
    (ARCHIVING, Cause.COPIED):        ARCHIVED,
    (ARCHIVING, Cause.NO_QUEUE):      ARCHIVED,
}
# fmt: on


class Phase(Enum):
    """Life of a share-partition at one leader."""

    EMPTY = "Empty"
    """Its state has not been read."""
    INITIALIZING = "Initializing"
    """Its state is being read, or its first start offset written."""
    ACTIVE = "Active"
    FAILED = "Failed"
    """Its state could not be read, or is not a state."""
    FENCED = "Fenced"
    """Another leader or another state epoch has taken over, or the state was deleted."""


class PhaseCause(Enum):
    """Reason of a share-partition's move."""

    READ = 0
    LOADED = 1
    UNREAD = 2
    """The state could not be read for now."""
    UNREADABLE = 3
    OVERTAKEN = 4


# fmt: off
NEXT_PHASE: Final[Mapping[tuple[Phase, PhaseCause], Phase]] = {
    (Phase.EMPTY,        PhaseCause.READ):       Phase.INITIALIZING,
    (Phase.EMPTY,        PhaseCause.OVERTAKEN):  Phase.FENCED,
    (Phase.INITIALIZING, PhaseCause.LOADED):     Phase.ACTIVE,
    (Phase.INITIALIZING, PhaseCause.UNREAD):     Phase.EMPTY,
    (Phase.INITIALIZING, PhaseCause.UNREADABLE): Phase.FAILED,
    (Phase.INITIALIZING, PhaseCause.OVERTAKEN):  Phase.FENCED,
    (Phase.ACTIVE,       PhaseCause.OVERTAKEN):  Phase.FENCED,
    (Phase.FAILED,       PhaseCause.OVERTAKEN):  Phase.FENCED,
    (Phase.FENCED,       PhaseCause.OVERTAKEN):  Phase.FENCED,
}
# fmt: on
