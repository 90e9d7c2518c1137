"""The uniform assignor's algorithm: even, with as few moves as possible.

If all members subscribe to the same topics, quotas suffice. Otherwise subscriptions limit evenness.
Then partitions are passed along chains of members until no chain leads from a member to one that
has at least two less. Without such a chain no assignment is more even (optimal semi-matching:
Harvey, Ladner, Lovász, Tamir 2003).
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.model.ids import TopicId

Partition = tuple[TopicId, int]

_DIRECTLY: Final = ("", TopicId(b""))


def assign_evenly(
    subscriptions: Mapping[str, frozenset[TopicId]],
    kept: Mapping[str, Sequence[Partition]],
    free: Sequence[Partition],
) -> dict[str, list[Partition]]:
    """Return the partitions of each member: those ``kept`` as far as evenness allows, and all of
    ``free``. Every free partition's topic has a subscriber.
    """
    if len(set(subscriptions.values())) <= 1:
        return _by_quota(kept, free)
    return _Balance(subscriptions, kept).spread(free)


def _by_quota(
    kept: Mapping[str, Sequence[Partition]], free: Sequence[Partition]
) -> dict[str, list[Partition]]:
    """Assign by quota, since any member may have any partition. The members that get one more than
    the others are those that have most already, which saves moves.
    """
    if not kept:
        return {}
    total = len(free) + sum(len(partitions) for partitions in kept.values())
    size, longer = divmod(total, len(kept))
    most_first = sorted(kept, key=lambda member_id: (-len(kept[member_id]), member_id))
    quotas = {member_id: size + (place < longer) for place, member_id in enumerate(most_first)}
    assigned: dict[str, list[Partition]] = {}
    loose: list[Partition] = []
    for member_id, partitions in kept.items():
        assigned[member_id] = list(partitions[: quotas[member_id]])
        loose.extend(partitions[quotas[member_id] :])
    supply = iter(sorted([*free, *loose]))
    for member_id, partitions in assigned.items():
        for _ in range(quotas[member_id] - len(partitions)):
            partitions.append(next(supply))
    assert next(supply, None) is None, "quotas add up to all partitions"
    return assigned


class _Balance:
    """An assignment under construction, for unequal subscriptions.

    Invariant: ``sizes`` counts the partitions in ``held``; a member holds only what it subscribes
    to.
    """

    def __init__(
        self,
        subscriptions: Mapping[str, frozenset[TopicId]],
        kept: Mapping[str, Sequence[Partition]],
    ) -> None:
        self.held: dict[str, dict[TopicId, list[int]]] = {}
        self.sizes: dict[str, int] = {}
        self.subscribers: dict[TopicId, list[str]] = {}
        for member_id in sorted(subscriptions):
            self.held[member_id] = {}
            self.sizes[member_id] = 0
            for topic_id in subscriptions[member_id]:
                self.subscribers.setdefault(topic_id, []).append(member_id)
            for topic_id, partition in kept.get(member_id, ()):
                self._give(member_id, topic_id, partition)

    def spread(self, free: Sequence[Partition]) -> dict[str, list[Partition]]:
        """Assign the free partitions, then even out."""
        self._give_out(free)
        self._even_out()
        return {
            member_id: [
                (topic_id, partition)
                for topic_id in sorted(topics)
                for partition in sorted(topics[topic_id])
            ]
            for member_id, topics in self.held.items()
        }

    def _give_out(self, free: Sequence[Partition]) -> None:
        """Assign topics with the fewest subscribers first, each partition to the least loaded."""
        waiting: dict[TopicId, list[int]] = {}
        for topic_id, partition in free:
            waiting.setdefault(topic_id, []).append(partition)
        for topic_id in sorted(waiting, key=lambda one: (len(self.subscribers[one]), one)):
            takers = [
                (self.sizes[member_id], member_id) for member_id in self.subscribers[topic_id]
            ]
            heapq.heapify(takers)
            for partition in waiting[topic_id]:
                size, member_id = takers[0]
                self._give(member_id, topic_id, partition)
                heapq.heapreplace(takers, (size + 1, member_id))

    def _even_out(self) -> None:
        """Pass partitions on from the fullest members as long as that makes the assignment more
        even. A member that can pass nothing on stays so: moves between others open no better chain.
        """
        fullest = [(-size, member_id) for member_id, size in self.sizes.items()]
        heapq.heapify(fullest)
        settled: set[str] = set()
        while fullest:
            size, member_id = heapq.heappop(fullest)
            if member_id in settled:
                continue
            if -size == self.sizes[member_id]:
                chain = self._chain_from(member_id)
                if isinstance(chain, set):
                    # Members in this set lead to no others, and have no more partitions than this
                    # one.
                    settled.update(reached for reached in chain if self.sizes[reached] <= -size)
                    continue
                self._pass_along(member_id, chain)
            heapq.heappush(fullest, (-self.sizes[member_id], member_id))

    def _chain_from(self, giver: str) -> list[tuple[TopicId, str]] | set[str]:
        """Return the shortest chain of (topic, taker) to a member with at least two less than the
        giver; among chains of that length, one to a member with least. If there is none, return all
        members that chains lead to, including the giver.
        """
        enough = self.sizes[giver] - 2
        came_from: dict[str, tuple[str, TopicId]] = {giver: _DIRECTLY}
        seen_topics: set[TopicId] = set()
        layer = [giver]
        while layer:
            following: list[str] = []
            for member_id in layer:
                for topic_id in sorted(self.held[member_id].keys() - seen_topics):
                    seen_topics.add(topic_id)
                    for taker in self.subscribers[topic_id]:
                        if taker not in came_from:
                            came_from[taker] = (member_id, topic_id)
                            following.append(taker)
            best = min(following, key=lambda one: (self.sizes[one], one), default=None)
            if best is not None and self.sizes[best] <= enough:
                return _unwound(came_from, best)
            layer = following
        return set(came_from)

    def _pass_along(self, giver: str, chain: Sequence[tuple[TopicId, str]]) -> None:
        for topic_id, taker in chain:
            self._give(taker, topic_id, self._take(giver, topic_id))
            giver = taker

    def _give(self, member_id: str, topic_id: TopicId, partition: int) -> None:
        self.held[member_id].setdefault(topic_id, []).append(partition)
        self.sizes[member_id] += 1

    def _take(self, member_id: str, topic_id: TopicId) -> int:
        partitions = self.held[member_id][topic_id]
        partition = partitions.pop()
        if not partitions:
            del self.held[member_id][topic_id]
        self.sizes[member_id] -= 1
        return partition


def _unwound(came_from: Mapping[str, tuple[str, TopicId]], last: str) -> list[tuple[TopicId, str]]:
    chain: list[tuple[TopicId, str]] = []
    taker = last
    while came_from[taker] is not _DIRECTLY:
        giver, topic_id = came_from[taker]
        chain.append((topic_id, taker))
        taker = giver
    chain.reverse()
    return chain
