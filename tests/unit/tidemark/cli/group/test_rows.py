from tidemark.cli.group.rows import partition_row
from tidemark.client.admin.group_types import MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = MemberDescription("m", None, "client", "host", 3, (ZERO,))


def test_lag_counts_to_the_end_and_to_the_last_stable_offset() -> None:
    row = partition_row(ZERO, OffsetAndMetadata(4), Bounds(0, 10, 6), MEMBER)
    assert (row["lag"], row["stable_lag"]) == (6, 2)
    assert (row["member"], row["host"]) == ("m", "host")


def test_without_a_commit_or_a_log_there_is_no_lag() -> None:
    assert partition_row(ONE, None, Bounds(0, 10, 6), None)["lag"] is None
    assert partition_row(ONE, OffsetAndMetadata(4), None, None)["lag"] is None
