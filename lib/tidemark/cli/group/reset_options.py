"""Options of ``group reset`` and ``share reset``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidemark.cli.failure import CommandError
from tidemark.cli.times import parse_ms
from tidemark.plans.offset_reset import Goal, Target
from tidemark.runtime.exit_codes import ExitCode

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_SCOPE: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)(?::(?P<partitions>\d+(?:,\d+)*))?")


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
    try:
        return parse_ms(text)
    except ValueError:
        raise CommandError(
            f"--to-datetime {text!r} is not a time",
            hint="2026-03-01T12:00:00, with +02:00 or UTC, or @milliseconds; from 1970 on",
            code=ExitCode.USAGE,
        ) from None


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
