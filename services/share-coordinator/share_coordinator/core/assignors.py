"""Assignors of share groups (KIP-932): which members read which partitions.

Unlike a consumer group's, a partition may have several members. Pure and deterministic: the same
members, topics, lags and previous target give the same target, in whatever order they come.

* ``simple``: as even as the subscriptions allow. Every partition has at least one member, and where
  there are more members than partitions all partitions have equally many, so that no member is
  without one. Kafka's assignor of this name.
* ``load``: every partition has one member. On top of that one further place for each member goes
  to where most share lag falls to a member.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from tidemark.model.assignment import Assignment, by_topic
from tidemark.model.ids import TopicId

from share_coordinator.core.assignors_balance import Partition, balance


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[TopicId]
    """Subscribed topics that exist."""
    target: Assignment = field(default_factory=dict)
    """Its previous target."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Partitions to assign, and the work that waits in them."""

    partition_counts: Mapping[TopicId, int]
    lags: Mapping[Partition, int] = field(default_factory=dict)
    """Records that are to be delivered yet, where that has been measured."""


Assignor = Callable[[Sequence[AssignorMember], Demand], dict[str, Assignment]]
"""The target of each member, by member id."""


def assign_simple(members: Sequence[AssignorMember], demand: Demand) -> dict[str, Assignment]:
    """Even over members, whatever the lag."""
    readers = _readers(members, demand)
    return _assign(members, readers, _even_shares(members, readers, demand))


def assign_by_load(members: Sequence[AssignorMember], demand: Demand) -> dict[str, Assignment]:
    """More members where the share lag is; where none is known, as ``simple``."""
    readers = _readers(members, demand)
    return _assign(members, readers, wanted_by_load(members, demand))


BY_LOAD: Final = "load"
"""Assignor that needs lags."""
ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"simple": assign_simple, BY_LOAD: assign_by_load}
)


def wanted_by_load(members: Sequence[AssignorMember], demand: Demand) -> dict[Partition, int]:
    """Number of members that each partition should have by its lag: places go one by one to the
    partition with most lag for each member that it has already (D'Hondt's method).
    """
    readers = _readers(members, demand)
    wanted = dict.fromkeys(readers, 1)
    waiting = [(-lag, at) for at in readers if (lag := demand.lags.get(at, 0)) > 0]
    if not waiting:
        return _even_shares(members, readers, demand)
    heap = [(Fraction(lag), at) for lag, at in waiting]
    heapq.heapify(heap)
    places = sum(1 for member in members if member.topics)
    while places and heap:
        _, at = heapq.heappop(heap)
        if wanted[at] == len(readers[at]):
            continue  # it has all members that subscribe to it
        wanted[at] += 1
        places -= 1
        heapq.heappush(heap, (Fraction(-demand.lags[at], wanted[at]), at))
    return wanted


def _readers(members: Sequence[AssignorMember], demand: Demand) -> dict[Partition, tuple[str, ...]]:
    """Return the subscribers of each partition, in order; partitions without any are left out."""
    subscribers: dict[TopicId, list[str]] = {}
    for member in sorted(members, key=lambda one: one.member_id):
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    by_topic_id = {topic_id: tuple(subscribers[topic_id]) for topic_id in sorted(subscribers)}
    return {
        (topic_id, partition): member_ids
        for topic_id, member_ids in by_topic_id.items()
        for partition in range(demand.partition_counts.get(topic_id, 0))
    }


def _even_shares(
    members: Sequence[AssignorMember],
    readers: Mapping[Partition, tuple[str, ...]],
    demand: Demand,
) -> dict[Partition, int]:
    """Members for each partition if every member spread itself over all that it subscribes to."""
    shares: dict[TopicId, Fraction] = {}
    spread = {topics: _spread(topics, demand) for topics in {one.topics for one in members}}
    for member in members:
        for topic_id in member.topics:
            shares[topic_id] = shares.get(topic_id, Fraction(0)) + spread[member.topics]
    rounded = {topic_id: max(1, -(-share // 1)) for topic_id, share in shares.items()}
    return {at: min(rounded[at[0]], len(member_ids)) for at, member_ids in readers.items()}


def _spread(topics: frozenset[TopicId], demand: Demand) -> Fraction:
    total = sum(demand.partition_counts.get(topic_id, 0) for topic_id in topics)
    return Fraction(1, total) if total else Fraction(0)


def _assign(
    members: Sequence[AssignorMember],
    readers: Mapping[Partition, tuple[str, ...]],
    wanted: Mapping[Partition, int],
) -> dict[str, Assignment]:
    previous = {
        member.member_id: {
            (topic_id, partition)
            for topic_id, partitions in member.target.items()
            if topic_id in member.topics
            for partition in partitions
            if (topic_id, partition) in readers
        }
        for member in members
    }
    placed = balance(previous, readers, wanted)
    return {member_id: by_topic(partitions) for member_id, partitions in placed.items()}
