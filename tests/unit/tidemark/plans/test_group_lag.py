from tidemark.client.admin.group_types import GroupDescription, MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds, first_unread, lag_of, owners, time_lag_ms

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberDescription("m", None, "client", "host", 3, (ZERO,))
GROUP = GroupDescription("g", "Consumer", "Stable", "uniform", (MEMBER,))


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


def test_a_partition_is_read_by_the_member_that_has_it() -> None:
    assert owners(GROUP) == {ZERO: MEMBER}
    assert owners(None) == {}
