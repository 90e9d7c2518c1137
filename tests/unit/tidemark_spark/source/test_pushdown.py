from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from tidemark.model.topics import TopicPartition
from tidemark_spark.source.offset_ranges import Range
from tidemark_spark.source.pushdown import Pruning, absorb

RANGES = [Range(TopicPartition(*each), "1d", 10, 20) for each in (("a", 0), ("a", 1), ("b", 0))]
NOON = datetime(2026, 1, 1, 12, microsecond=1_500, tzinfo=UTC)
NOON_MS = 1_767_268_800_001


def left(*filters: Filter) -> list[tuple[str, int, int, int]]:
    pruning, rest = absorb(filters)
    assert not rest
    return [(*each.partition, each.start, each.end) for each in pruning.narrowed(RANGES)]


def test_without_filters_all_is_read() -> None:
    assert absorb([]) == (Pruning(), [])


def test_by_topic() -> None:
    assert left(EqualTo(("topic",), "b")) == [("b", 0, 10, 20)]


def test_by_partition() -> None:
    assert left(In(("partition",), (1, 7))) == [("a", 1, 10, 20)]


def test_filters_must_all_hold() -> None:
    assert left(In(("partition",), (0, 1)), EqualTo(("partition",), 0), In(("topic",), ("a",))) == [
        ("a", 0, 10, 20)
    ]


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (EqualTo(("offset",), 12), 12, 13),
        (GreaterThan(("offset",), 12), 13, 20),
        (GreaterThanOrEqual(("offset",), 12), 12, 20),
        (LessThan(("offset",), 12), 10, 12),
        (LessThanOrEqual(("offset",), 12), 10, 13),
        (GreaterThan(("offset",), 3), 10, 20),
    ],
)
def test_by_offset(one: Filter, start: int, end: int) -> None:
    assert left(one, EqualTo(("topic",), "b")) == [("b", 0, start, end)]


def test_offsets_from_both_sides() -> None:
    both = (LessThan(("offset",), 15), GreaterThan(("offset",), 12), LessThan(("offset",), 18))
    assert left(*both, EqualTo(("topic",), "b")) == [("b", 0, 13, 15)]


def test_offsets_outside_leave_nothing() -> None:
    assert left(GreaterThan(("offset",), 30)) == []


def test_what_is_never_null_need_not_be_checked() -> None:
    assert len(left(IsNotNull(("topic",)), IsNotNull(("offset",)))) == len(RANGES)


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("key",), b"k"),
        IsNotNull(("value",)),
        Not(EqualTo(("partition",), 1)),
        GreaterThan(("partition",), 0),
        LessThan(("timestamp",), NOON),
        EqualTo(("headers", "key"), "x"),
        In(("offset",), (1, 2)),
    ],
)
def test_spark_filters_the_rest(one: Filter) -> None:
    assert absorb([one]) == (Pruning(), [one])


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_lower_bound_of_time_narrows_and_stays(kind: type[Filter]) -> None:
    one = kind(("timestamp",), NOON)  # type: ignore[call-arg]
    assert absorb([one]) == (Pruning(timestamp_ms=NOON_MS), [one])


def test_a_time_before_1970_does_not_leave_out_records_without_a_time() -> None:
    long_ago = GreaterThanOrEqual(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))
    assert absorb([long_ago]) == (Pruning(), [long_ago])


def test_of_two_times_the_later_counts() -> None:
    later = GreaterThan(("timestamp",), NOON)
    earlier = GreaterThan(("timestamp",), NOON.replace(hour=3))
    assert absorb([later, earlier])[0] == Pruning(timestamp_ms=NOON_MS)
