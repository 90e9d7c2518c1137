"""States of one transaction marker on its way to a partition, and the moves between them.

A marker is parked until its partition has a leader, queued for that broker, sent, and written.
``docs/states/marker.mmd`` is drawn from the table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition

from txn_coordinator.core.effects import SendMarkers


class MarkerState(Enum):
    """Place of a marker."""

    PARKED = "Parked"
    """Waits for the metadata to change, or for its delay to end."""
    QUEUED = "Queued"
    """Waits for a request to the broker that leads its partition."""
    SENT = "Sent"
    """Part of a request that has no answer yet."""
    WRITTEN = "Written"
    """Written to the partition, or no longer needed there."""
    DROPPED = "Dropped"
    """No longer needed by the shard."""


class Cause(Enum):
    """Reason of a move."""

    LEADER_FOUND = 0
    NO_LEADER = 1
    PARTITION_GONE = 2
    TAKEN = 3
    ACKNOWLEDGED = 4
    UNANSWERED = 5
    """Refused for now, or the call failed or was abandoned: the marker may have been written."""
    CALLED_OFF = 6


PARKED: Final = MarkerState.PARKED
QUEUED: Final = MarkerState.QUEUED
SENT: Final = MarkerState.SENT
WRITTEN: Final = MarkerState.WRITTEN
DROPPED: Final = MarkerState.DROPPED

# fmt: off
NEXT_STATE: Final[Mapping[tuple[MarkerState, Cause], MarkerState]] = {
    (PARKED, Cause.LEADER_FOUND):   QUEUED,
    (PARKED, Cause.NO_LEADER):      PARKED,
    (PARKED, Cause.PARTITION_GONE): WRITTEN,
    (PARKED, Cause.CALLED_OFF):     DROPPED,
    (QUEUED, Cause.LEADER_FOUND):   QUEUED,  # of another broker
    (QUEUED, Cause.NO_LEADER):      PARKED,
    (QUEUED, Cause.PARTITION_GONE): WRITTEN,
    (QUEUED, Cause.TAKEN):          SENT,
    (QUEUED, Cause.CALLED_OFF):     DROPPED,
    (SENT,   Cause.ACKNOWLEDGED):   WRITTEN,
    (SENT,   Cause.UNANSWERED):     PARKED,
    (SENT,   Cause.CALLED_OFF):     DROPPED,
}
# fmt: on

UNDER_WAY: Final = frozenset({PARKED, QUEUED, SENT})


@dataclass(eq=False, slots=True)
class Ending:
    """Markers of one effect. Invariant: ``unwritten`` markers are not WRITTEN; ``is_over`` when
    there are none, or once the effect was dropped.
    """

    shard: int
    owner_epoch: int
    effect: SendMarkers
    since: InstantMs
    failures: int = 0
    is_over: bool = False
    markers: dict[TopicPartition, MarkerState] = field(default_factory=dict)
    unwritten: int = 0

    def __post_init__(self) -> None:
        self.markers = dict.fromkeys(self.effect.partitions, PARKED)
        self.unwritten = len(self.markers)

    def move(self, partitions: Iterable[TopicPartition], cause: Cause) -> None:
        """Move these markers."""
        for partition in partitions:
            after = NEXT_STATE[self.markers[partition], cause]
            self.markers[partition] = after
            self.unwritten -= after is WRITTEN

    def drop(self) -> None:
        """Drop the markers that are under way."""
        self.is_over = True
        under_way = [at for at, state in self.markers.items() if state in UNDER_WAY]
        self.move(under_way, Cause.CALLED_OFF)

    def check(self) -> None:
        """Assert every invariant."""
        states = list(self.markers.values())
        assert self.unwritten == len(states) - states.count(WRITTEN), "the count follows the states"
        assert self.is_over == (not self.unwritten or DROPPED in states), "over is over"
