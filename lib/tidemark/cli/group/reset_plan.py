"""Targets of ``group reset`` and ``share reset``. Pure: the bounds of the logs are arguments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.cli.group.lag import Bounds
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_SCOPE: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)(?::(?P<partitions>\d+(?:,\d+)*))?")


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
    """Target chosen on the command line."""

    goal: Goal
    number: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Change of one partition's committed offset; ``before`` is None if there was none."""

    partition: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Partitions of a topic; all if none are named."""

    topic: str
    partitions: tuple[int, ...] = ()


def choose(choices: Mapping[str, Target | None]) -> Target:
    """Return the only given target of the options. Raises CommandError for none or several."""
    given = {name: target for name, target in choices.items() if target is not None}
    if len(given) != 1:
        named = " and ".join(given) if given else "none"
        raise CommandError(
            f"name exactly one target, not {named}",
            hint=", ".join(choices),
            code=ExitCode.USAGE,
        )
    return next(iter(given.values()))


def target_of(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    others: Mapping[str, Target | None] = MappingProxyType({}),
) -> Target:
    """Return the only given target of a reset's options; ``others`` are those of one command.
    Raises CommandError.
    """
    return choose(
        {
            "--to-earliest": Target(Goal.EARLIEST) if to_earliest else None,
            "--to-latest": Target(Goal.LATEST) if to_latest else None,
            "--to-offset": None if to_offset is None else Target(Goal.OFFSET, to_offset),
            "--to-datetime": Target(Goal.TIME, parse_time(to_datetime)) if to_datetime else None,
            "--by-duration": Target(Goal.AGO, parse_duration(by_duration)) if by_duration else None,
            **others,
        }
    )


def parse_scope(text: str) -> Scope:
    """Read ``topic`` or ``topic:0,1,2``. Raises CommandError."""
    match = _SCOPE.fullmatch(text)
    if match is None:
        raise CommandError(
            f"--topic {text!r} is not a topic", hint="TOPIC or TOPIC:0,1,2", code=ExitCode.USAGE
        )
    numbers = match["partitions"]
    return Scope(match["topic"], tuple(map(int, numbers.split(","))) if numbers else ())


def parse_time(text: str) -> int:
    """Return ms since 1970 for an ISO 8601 time (by default UTC) or @ms. Raises CommandError."""
    if re.fullmatch(r"@\d+", text):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--to-datetime {text!r} is not a time",
            hint="2026-03-01T12:00:00, with +02:00 or UTC, or @milliseconds",
            code=ExitCode.USAGE,
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


def parse_duration(text: str) -> int:
    """Return an ISO 8601 duration (``P1DT2H30M``) in ms. Raises CommandError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise CommandError(
            f"--by-duration {text!r} is not a duration",
            hint="P7D, PT90M, PT30S",
            code=ExitCode.USAGE,
        )
    parts = {name: float(count) for name, count in match.groupdict().items() if count}
    return int(1_000 * sum(_SECONDS[name] * count for name, count in parts.items()))


def timestamp_for(target: Target, now_ms: int) -> int | None:
    """Return the time to look up in the logs; None if the target needs none."""
    if target.goal is Goal.TIME:
        return target.number
    return now_ms - target.number if target.goal is Goal.AGO else None


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
