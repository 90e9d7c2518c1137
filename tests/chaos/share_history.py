"""What the members of a share group saw, and the promises about it. Pure.

The simulator checks the same promises with the brokers' view of locks and terms
(``sim.cluster.share_history``). Here only answers are known. A member may receive a record late,
after its lock has ended and another one has accepted it; so a record comes again only where a
consumer receives it that was made after the answer: all that it receives was acquired later.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos.history import Partition

DELIVERIES_MAX: Final = 10
"""Delivery limit of the group."""
UNSEEN_MAX: Final = 5
"""Deliveries of one record that may be lost on the way; a record that was seen fewer times than the
rest of the limit was not exhausted.
"""


class Place(NamedTuple):
    """Of one record."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


class Delivery(NamedTuple):
    """One record that a consumer received."""

    place: Place
    delivery_count: int
    consumer_made_at: float


@dataclass
class ShareHistory:
    """All that members saw and did. Times are of one monotonic clock."""

    deliveries: list[Delivery] = field(default_factory=list)
    finishing: set[Place] = field(default_factory=set)
    """Records that a member has accepted or rejected, whatever the answer."""
    finished_at: dict[Place, float] = field(default_factory=dict)
    """Records whose acceptance or rejection was answered without an error, and the first time."""

    def finished(self, place: Place, at: float) -> None:
        """Record an answer."""
        self.finished_at.setdefault(place, at)


PROMISES: Final = (
    "finished records delivered again",
    "share records lost",
    "deliveries out of bounds",
)
COPY_PROMISES: Final = ("share records copied twice", "share records not copied")


def check_shares(
    history: ShareHistory, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> dict[str, list[str]]:
    """Return evidence by promise. ``starts``: of the group, once nobody writes and all is healed;
    ``ends``: of the log.
    """
    again, lost, bounds = PROMISES
    return {
        again: list(_again(history)),
        lost: list(_lost(history, starts, ends)),
        bounds: [
            f"{one.place}: delivery {one.delivery_count} of at most {DELIVERIES_MAX}"
            for one in history.deliveries
            if not 1 <= one.delivery_count <= DELIVERIES_MAX
        ],
    }


def check_copies(
    history: ShareHistory,
    copies: Sequence[bytes],
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
) -> dict[str, list[str]]:
    """Return evidence by promise about a member that copies and acknowledges in one transaction.
    ``copies``: what is committed, a record's place each; ``starts`` and ``ends`` as above.
    """
    twice, missing = COPY_PROMISES
    counts = Counter(copies)
    copied = ShareHistory(
        history.deliveries,
        finishing={
            place
            for partition, end in ends.items()
            for place in (Place(partition, offset) for offset in range(end))
            if str(place).encode() in counts
        },
    )
    return {
        twice: [f"{place.decode()}: {count} times" for place, count in counts.items() if count > 1],
        missing: list(_lost(copied, starts, ends)),
    }


def _again(history: ShareHistory) -> Iterator[str]:
    for one in history.deliveries:
        finished_at = history.finished_at.get(one.place)
        if finished_at is not None and finished_at < one.consumer_made_at:
            yield (
                f"{one.place}: finished at {finished_at:.1f}, delivered to a consumer made at"
                f" {one.consumer_made_at:.1f}"
            )


def _lost(
    history: ShareHistory, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> Iterator[str]:
    counts: dict[Place, int] = defaultdict(int)
    for one in history.deliveries:
        counts[one.place] = max(counts[one.place], one.delivery_count)
    for partition, end in ends.items():
        start = starts.get(partition, 0)
        if start < end:
            yield f"{partition}: the group's start is {start}, the end {end}"
        for offset in range(min(start, end)):
            place = Place(partition, offset)
            is_exhausted = counts[place] >= DELIVERIES_MAX - UNSEEN_MAX
            if place not in history.finishing and not is_exhausted:
                yield f"{place}: passed by, after delivery {counts[place]}"
