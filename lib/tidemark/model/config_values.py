"""Kinds of configuration values, parsed and refused as in Kafka."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)


class InvalidConfigError(ValueError):
    """An invalid configuration value. The message names it and the valid values."""


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """One kind of value.

    ``type_number`` is that of DescribeConfigs: 1 boolean, 2 string, 3 int, 5 long, 6 double,
    7 list.
    """

    type_number: int
    parse: Callable[[str], object]


def boolean() -> ConfigKind:
    """Return the kind of ``true`` and ``false``, in any case."""

    def parse(text: str) -> bool:
        lowered = text.strip().lower()
        if lowered not in ("true", "false"):
            raise InvalidConfigError("expected value to be either true or false")
        return lowered == "true"

    return ConfigKind(1, parse)


def integer(
    low: int, high: int = INT_MAX, *, long: bool = False, or_else: int | None = None
) -> ConfigKind:
    """Return the kind of whole numbers within [low, high], or equal to ``or_else``."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[+-]?\d+", text.strip()) is None:
            raise InvalidConfigError("not a number of type " + ("LONG" if long else "INT"))
        bounds = f"value must be at least {low} and at most {high}"
        if or_else is not None:
            bounds += f", or {or_else}"
        try:
            number = int(text)
        except ValueError:  # more digits than Python reads
            raise InvalidConfigError(bounds) from None
        if not low <= number <= high and number != or_else:
            raise InvalidConfigError(bounds)
        return number

    return ConfigKind(5 if long else 3, parse)


def long(low: int) -> ConfigKind:
    """Return the kind of 64-bit whole numbers from ``low`` on."""
    return integer(low, LONG_MAX, long=True)


def double(low: float, high: float) -> ConfigKind:
    """Return the kind of numbers within [low, high]."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise InvalidConfigError("not a number of type DOUBLE") from None
        if not low <= number <= high:
            raise InvalidConfigError(f"value must be at least {low} and at most {high}")
        return number

    return ConfigKind(6, parse)


def one_of(*choices: str) -> ConfigKind:
    """Return the kind that is one of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise InvalidConfigError(f"string must be one of: {', '.join(choices)}")
        return text

    return ConfigKind(2, parse)


def string() -> ConfigKind:
    """Return the kind of any text."""
    return ConfigKind(2, str)


def list_of(*choices: str) -> ConfigKind:
    """Return the kind of comma-separated words, each one of ``choices`` (any word if empty)."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        unknown = [word for word in words if choices and word not in choices]
        if unknown:
            raise InvalidConfigError(
                f"{unknown[0]!r}: entries must be one of: {', '.join(choices)}"
            )
        return words

    return ConfigKind(7, parse)


_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
ALL_REPLICAS: Final = "*"


def replicas() -> ConfigKind:
    """Return the kind of lists of replicas, ``partition:broker`` each, or ``*`` for all."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        if words != (ALL_REPLICAS,) and not all(map(_REPLICA.fullmatch, words)):
            raise InvalidConfigError(
                "must be the literal '*' or a list of replicas in the following format:"
                " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
        return words

    return ConfigKind(7, parse)


_UNITS_MS: Final = {".minutes": 60_000, ".hours": 3_600_000}


def in_ms(setting: str, synonym: str, value: str) -> str:
    """Return the value of a synonym in the unit of its setting: ``log.retention.hours`` gives
    ``retention.ms``.
    """
    unit_ms = next((ms for end, ms in _UNITS_MS.items() if synonym.endswith(end)), 1)
    if unit_ms == 1 or not setting.endswith(".ms"):
        return value
    return str(max(-1, int(value) * unit_ms))
