"""Filters of a query that narrow the ranges of offsets to read. Pure.

Filters on topic, partition and offset are fully applied by narrowing the ranges. A lower bound of
the timestamp moves the start of a range to the first record that satisfies it; older records may
follow, so Spark still applies the filter. An upper bound cannot be looked up.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from tidemark_spark.source.offset_ranges import Range

_NEVER_NULL: Final = frozenset(("topic", "partition", "offset", "timestamp", "timestampType"))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Restrictions on what is read; None: no restriction. ``end`` is exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int | None = None
    timestamp_ms: int | None = None
    """Minimum timestamp of the first record of a range."""

    def narrowed(self, ranges: Iterable[Range]) -> list[Range]:
        """Apply the restrictions on topic, partition and offset to ranges."""
        left = []
        for each in ranges:
            topic, partition = each.partition
            end = each.end if self.end is None else min(each.end, self.end)
            cut = each._replace(start=max(each.start, self.start), end=end)
            if (
                (self.topics is None or topic in self.topics)
                and (self.partitions is None or partition in self.partitions)
                and cut.start < cut.end
            ):
                left.append(cut)
        return left


def absorb(filters: Iterable[Filter]) -> tuple[Pruning, list[Filter]]:
    """Turn filters, which are combined with AND, into restrictions.

    Return them and the filters that Spark must still apply.
    """
    pruning = Pruning()
    rest: list[Filter] = []
    for each in filters:
        narrowed, is_done = _absorbed(pruning, each)
        pruning = narrowed
        if not is_done:
            rest.append(each)
    return pruning, rest


def _absorbed(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    if isinstance(one, IsNotNull):
        return pruning, column in _NEVER_NULL
    if column == "topic":
        return _by_topic(pruning, one)
    if column == "partition":
        return _by_partition(pruning, one)
    if column == "offset":
        return _by_offset(pruning, one)
    if column == "timestamp":
        return _by_timestamp(pruning, one), False
    return pruning, False


def _values(one: Filter) -> frozenset[Any] | None:
    if isinstance(one, EqualTo):
        return frozenset((one.value,))
    return frozenset(one.value) if isinstance(one, In) else None


def _by_topic(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    wanted = _values(one)
    if wanted is None:
        return pruning, False
    before = pruning.topics
    return replace(pruning, topics=wanted if before is None else wanted & before), True


def _by_partition(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    wanted = _values(one)
    if wanted is None:
        return pruning, False
    before = pruning.partitions
    return replace(pruning, partitions=wanted if before is None else wanted & before), True


_Bounds = tuple[int, int | None]
_OFFSETS: Final[Mapping[type[Filter], Callable[[int], _Bounds]]] = {
    EqualTo: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, None),
    GreaterThanOrEqual: lambda value: (value, None),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


def _by_offset(pruning: Pruning, one: Filter) -> tuple[Pruning, bool]:
    bounds_of = _OFFSETS.get(type(one))
    value = getattr(one, "value", None)
    if bounds_of is None or not isinstance(value, int):
        return pruning, False
    start, end = bounds_of(value)
    if pruning.end is not None:
        end = pruning.end if end is None else min(end, pruning.end)
    return replace(pruning, start=max(start, pruning.start), end=end), True


def _by_timestamp(pruning: Pruning, one: Filter) -> Pruning:
    value = getattr(one, "value", None)
    lower = isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual)
    if not lower or not isinstance(value, datetime) or value.tzinfo is None:
        return pruning
    since_epoch = value - _EPOCH
    timestamp_ms = (since_epoch.days * 86_400 + since_epoch.seconds) * 1_000
    timestamp_ms += since_epoch.microseconds // 1_000
    if timestamp_ms < 0:
        return pruning  # records without a timestamp (-1) may match, and no lookup finds them
    return replace(pruning, timestamp_ms=max(timestamp_ms, pruning.timestamp_ms or 0))
