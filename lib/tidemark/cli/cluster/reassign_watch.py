"""Progress of moves: remaining changes, the lag of each new replica, and the end."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidemark.cli.admin_client import open_admin
from tidemark.cli.cluster import reassign_throttle
from tidemark.cli.cluster.replica_bounds import bounds_of
from tidemark.client.admin.admin import Admin, Reassignment, ReplicaBounds
from tidemark.model.topics import TopicPartition

SETTLE_S: Final = 2.0
LOOKS_AGAIN: Final = 8

Replicas = tuple[int, ...]
Bounds = Mapping[tuple[TopicPartition, int], ReplicaBounds]
"""Bounds by partition and broker, without those that a broker does not report."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One new replica: offsets by which it is behind the leader's end, and percentage of the log
    that it has; None if unknown.
    """

    broker: int
    behind: int | None
    percent: int | None


class MoveState(NamedTuple):
    """One partition that moves."""

    partition: TopicPartition
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    copies: tuple[Copy, ...]

    def row(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "replicas": list(self.replicas),
            "adding": list(self.adding),
            "removing": list(self.removing),
            "copies": [
                {"broker": one.broker, "behind": one.behind, "percent": one.percent}
                for one in self.copies
            ],
        }


class Watch(NamedTuple):
    """Moves to watch; without a target all. With ``keep_throttle`` throttles stay at the end."""

    target: Mapping[TopicPartition, Replicas] | None
    interval_s: float
    keep_throttle: bool = False


class Ending(NamedTuple):
    """State after the moves: partitions that are not at their target, and resources from which
    throttles were removed.
    """

    elsewhere: dict[TopicPartition, Replicas]
    unthrottled: list[str]


async def watch(
    bootstrap: str, asked: Watch, show: Callable[[Sequence[MoveState]], Awaitable[None]]
) -> Ending:
    """Show the moves every interval until none is left."""
    wanted = None if asked.target is None else set(asked.target)
    seen: dict[TopicPartition, Replicas] = dict(asked.target or {})
    looks_left = LOOKS_AGAIN
    async with open_admin(bootstrap) as admin:
        while True:
            ongoing = await admin.list_partition_reassignments()
            moving = {k: v for k, v in ongoing.items() if wanted is None or k in wanted}
            if asked.target is None:
                seen |= {name: move.target for name, move in moving.items()}
            if moving:
                await show(await _states(admin, moving))
            if moving:
                await asyncio.sleep(asked.interval_s)
                continue
            elsewhere = await _elsewhere(admin, seen)
            # The metadata of the queried broker may be older than a change at another broker.
            if not elsewhere or looks_left == 0:
                break
            looks_left -= 1
            await asyncio.sleep(SETTLE_S / LOOKS_AGAIN)
        unthrottled: list[str] = []
        if not asked.keep_throttle:
            topics = None if asked.target is None else {name.topic for name in asked.target}
            unthrottled = await reassign_throttle.clear_when_still(admin, topics)
    return Ending(elsewhere, unthrottled)


async def _elsewhere(
    admin: Admin, target: Mapping[TopicPartition, Replicas]
) -> dict[TopicPartition, Replicas]:
    """Return the partitions that are not at their target; none are left of a deleted topic."""
    known = set(await admin.list_topics(internal=True))
    topics = await admin.describe_topics(sorted({one.topic for one in target} & known))
    found = {
        TopicPartition(name, one.partition): one.replicas
        for name, topic in topics.items()
        for one in topic.partitions
    }
    return {name: found.get(name, ()) for name in target if found.get(name) != target[name]}


# -- progress


async def _states(
    admin: Admin, moving: Mapping[TopicPartition, Reassignment]
) -> tuple[MoveState, ...]:
    topics = await admin.describe_topics(sorted({name.topic for name in moving}))
    leaders = {
        TopicPartition(name, one.partition): one.leader
        for name, topic in topics.items()
        for one in topic.partitions
    }
    asked: dict[int, list[TopicPartition]] = defaultdict(list)
    for name, move in moving.items():
        for broker in {leaders.get(name, -1), *move.adding} - {-1}:
            asked[broker].append(name)
    bounds: dict[tuple[TopicPartition, int], ReplicaBounds] = {}
    for broker, names in asked.items():
        for name, each in (await bounds_of(admin, broker, names)).items():
            bounds[name, broker] = each
    return states(moving, leaders, bounds)


def states(
    moving: Mapping[TopicPartition, Reassignment],
    leaders: Mapping[TopicPartition, int],
    bounds: Bounds,
) -> tuple[MoveState, ...]:
    """Return the states of the moves, sorted by partition."""
    return tuple(
        MoveState(
            name,
            move.replicas,
            move.adding,
            move.removing,
            tuple(
                copy_of(one, bounds.get((name, leaders.get(name, -1))), bounds.get((name, one)))
                for one in move.adding
            ),
        )
        for name, move in sorted(moving.items())
    )


def copy_of(broker: int, leader: ReplicaBounds | None, own: ReplicaBounds | None) -> Copy:
    """Return the progress of one new replica, which begins at its leader's log start."""
    if leader is None or own is None:
        return Copy(broker, None, None)
    size = leader.log_end - leader.log_start
    has = min(max(own.log_end - leader.log_start, 0), size)
    return Copy(broker, size - has, 100 if not size else 100 * has // size)


def percent(moves: Sequence[MoveState]) -> int:
    """Return the mean percentage of all copies whose progress is known."""
    known = [one.percent for move in moves for one in move.copies if one.percent is not None]
    return sum(known) // len(known) if known else 0
