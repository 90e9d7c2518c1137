from tidemark.cli.group.lag import (
    Bounds,
    first_unread,
    lag_of,
    owners,
    partition_row,
    time_lag_ms,
)
from tidemark.client.admin.group_types import GroupDescription, MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberDescription("m", None, "client", "host", 3, (ZERO,))
GROUP = GroupDescription("g", "Consumer", "Stable", "uniform", (MEMBER,))


def test_lag_counts_to_the_end_and_to_the_last_stable_offset() -> None:
    row = partition_row(ZERO, OffsetAndMetadata(4), Bounds(0, 10, 6), owners(GROUP).get(ZERO))
    assert (row["lag"], row["stable_lag"]) == (6, 2)
    assert (row["member"], row["host"]) == ("m", "host")


def test_without_a_commit_or_a_log_there_is_no_lag() -> None:
    assert partition_row(ONE, None, Bounds(0, 10, 6), None)["lag"] is None
    assert partition_row(ONE, OffsetAndMetadata(4), None, None)["lag"] is None


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    assert lag_of(12, 10) == 0


def test_the_first_unread_record_is_in_the_log_and_stable_if_asked() -> None:
    committed = {ZERO: OffsetAndMetadata(2), ONE: OffsetAndMetadata(6)}
    bounds = {ZERO: Bounds(5, 10, 10), ONE: Bounds(0, 10, 6)}
    assert first_unread(committed, bounds, stable=False) == {ZERO: 5, ONE: 6}
    assert first_unread(committed, bounds, stable=True) == {ZERO: 5}


def test_time_lag_is_the_age_of_the_first_unread_record() -> None:
    assert time_lag_ms(ZERO, {ZERO: 5}, {ZERO: 700}, 1_000) == 300
    assert time_lag_ms(ZERO, {}, {}, 1_000) == 0
    assert time_lag_ms(ZERO, {ZERO: 5}, {}, 1_000) is None
