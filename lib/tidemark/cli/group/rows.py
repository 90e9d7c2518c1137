"""Rows of ``tidemark group``."""

from typing import Any

from tidemark.client.admin.group_types import MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds, lag_of

Row = dict[str, Any]


def partition_row(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    bounds: Bounds | None,
    member: MemberDescription | None,
) -> Row:
    """Return one line of ``group describe``, without its time lag."""
    offset = None if committed is None else committed.offset
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": offset,
        "end": None if bounds is None else bounds.end,
        "last_stable": None if bounds is None else bounds.last_stable,
        "lag": None if bounds is None else lag_of(offset, bounds.end),
        "stable_lag": None if bounds is None else lag_of(offset, bounds.last_stable),
        "member": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }
