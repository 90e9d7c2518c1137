"""Resets of offsets, of consumer groups and share groups. Pure: the bounds of the logs are
arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds


class Goal(Enum):
    """Kind of target."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()  # number: the offset
    SHIFT = auto()  # number: records forward, or back if negative
    TIME = auto()  # number: ms since 1970
    AGO = auto()  # number: ms before now
    CURRENT = auto()  # the committed offset, or the nearest in the log


class Target(NamedTuple):
    """Target of a reset."""

    goal: Goal
    number: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Change of one partition's committed offset; ``before`` is None if there was none."""

    partition: TopicPartition
    before: int | None
    after: int


def timestamp_for(target: Target, now_ms: int) -> int | None:
    """Return the time to look up in the logs; None if the target needs none."""
    if target.goal is Goal.TIME:
        return target.number
    return max(0, now_ms - target.number) if target.goal is Goal.AGO else None


def plan(
    target: Target,
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    found: Mapping[TopicPartition, int],
) -> list[Move]:
    """Return a move for each partition with known bounds, to an offset within the log. ``found``
    has the offsets for the target's time, -1 if no record is late enough.

    SHIFT and CURRENT need a committed offset: partitions without one do not change.
    """
    moves: list[Move] = []
    for partition, each in sorted(bounds.items()):
        before = committed.get(partition)
        wanted = _wanted(target, before, each, found.get(partition, -1))
        if wanted is not None:
            moves.append(Move(partition, before, min(max(wanted, each.start), each.end)))
    return moves


def _wanted(target: Target, before: int | None, bounds: Bounds, found: int) -> int | None:
    match target.goal:
        case Goal.EARLIEST:
            return bounds.start
        case Goal.LATEST:
            return bounds.end
        case Goal.OFFSET:
            return target.number
        case Goal.TIME | Goal.AGO:
            return found if found >= 0 else bounds.end
        case Goal.SHIFT:
            return None if before is None else before + target.number
        case Goal.CURRENT:
            return before
