"""Places in partitions, given to members: so many in each partition, evenly over the members, and
close to what they had.

Three passes: take away what a partition has too much, from the fullest members first; fill up what
it has too little, by the emptiest members first; then move places from full members to emptier
ones until no move makes two members more alike. Members that may all read the same partitions
differ by one place at most after that.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tidemark.model.ids import TopicId

Partition = tuple[TopicId, int]

_SMALLEST_GAP: Final = 2
"""Between two members, for a move to make it smaller."""


def balance(
    previous: Mapping[str, Collection[Partition]],
    readers: Mapping[Partition, Sequence[str]],
    wanted: Mapping[Partition, int],
) -> dict[str, set[Partition]]:
    """The places of each member. ``previous`` has every member, with partitions of ``readers`` that
    it may read; ``wanted`` is within 1 and the number of readers.
    """
    places = _Places(previous, readers)
    for at in readers:
        places.trim(at, wanted[at])
    for at in sorted(readers, key=lambda one: (len(readers[one]), one)):
        places.fill(at, wanted[at])
    places.level()
    return places.of_member


class _Places:
    """An assignment in the making. Invariant: both directions have the same places."""

    def __init__(
        self,
        previous: Mapping[str, Collection[Partition]],
        readers: Mapping[Partition, Sequence[str]],
    ) -> None:
        self.of_member = {member_id: set(previous[member_id]) for member_id in sorted(previous)}
        self._readers = readers
        self._members: dict[Partition, set[str]] = {at: set() for at in readers}
        for member_id, partitions in self.of_member.items():
            for at in partitions:
                self._members[at].add(member_id)
        self._emptiest: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        """For each set of readers a queue by load. An entry with another load than its member has
        is out of date; each member has one that is not too high.
        """

    def _load(self, member_id: str) -> int:
        return len(self.of_member[member_id])

    def _put(self, at: Partition, member_id: str) -> None:
        self._members[at].add(member_id)
        self.of_member[member_id].add(at)

    def _take(self, at: Partition, member_id: str) -> None:
        self._members[at].remove(member_id)
        self.of_member[member_id].remove(at)

    def trim(self, at: Partition, wanted: int) -> None:
        """Take a partition from members until it has no more than ``wanted``."""
        surplus = len(self._members[at]) - wanted
        if surplus > 0:
            fullest = sorted(self._members[at], key=lambda one: (-self._load(one), one))
            for member_id in fullest[:surplus]:
                self._take(at, member_id)

    def fill(self, at: Partition, wanted: int) -> None:
        """Give a partition to members until it has ``wanted``. After all trimming: a load that fell
        would leave the queue's entries too high.
        """
        while len(self._members[at]) < wanted:
            self._put(at, self._emptiest_without(at))

    def _emptiest_without(self, at: Partition) -> str:
        readers = tuple(self._readers[at])
        queue = self._emptiest.get(readers)
        if queue is None:
            queue = self._emptiest[readers] = [(self._load(one), one) for one in readers]
            heapq.heapify(queue)
        passed_over: list[tuple[int, str]] = []
        while True:
            load, member_id = heapq.heappop(queue)
            now = self._load(member_id)
            if load != now:
                heapq.heappush(queue, (now, member_id))
            elif at in self.of_member[member_id]:
                passed_over.append((load, member_id))
            else:
                break
        for entry in (*passed_over, (load, member_id)):
            heapq.heappush(queue, entry)
        return member_id

    def level(self) -> None:
        """Move places until no move helps. Every move makes the sum of squares of the loads
        smaller: so it ends.
        """
        is_level = False
        while not is_level:
            is_level = True
            fullest = sorted(self.of_member, key=lambda one: (-self._load(one), one))
            for member_id in fullest:
                while self._move_one(member_id):
                    is_level = False

    def _move_one(self, giver: str) -> bool:
        """Move one of a member's places to the emptiest member that may have it; False: none of the
        moves would make the two more alike.
        """
        best = self._load(giver) - _SMALLEST_GAP
        if best < min(map(len, self.of_member.values())):
            return False
        found: tuple[int, str, Partition] | None = None
        for at in sorted(self.of_member[giver]):
            for taker in self._readers[at]:
                load = self._load(taker)
                if load <= best and at not in self.of_member[taker]:
                    entry = load, taker, at
                    found = entry if found is None else min(found, entry)
        if found is None:
            return False
        _, taker, at = found
        self._take(at, giver)
        self._put(at, taker)
        return True
