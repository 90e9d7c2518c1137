"""How far a group is behind, in records and in time. Pure.

committed          last_stable       end
    |--- stable_lag ---|              |     what a read_committed consumer has yet to read
    |-------------- lag --------------|     what is there, open transactions included
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemark.client.admin.group_types import GroupDescription, MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition

Row = dict[str, Any]


class Bounds(NamedTuple):
    """Of one partition's log, as its leader tells; ``end`` is the high watermark."""

    start: int
    end: int
    last_stable: int


def owners(group: GroupDescription | None) -> dict[TopicPartition, MemberDescription]:
    """Who reads each partition now."""
    members = () if group is None else group.members
    return {partition: member for member in members for partition in member.assignment}


def lag_of(committed: int | None, end: int) -> int | None:
    """Records between a committed offset and an end; None without a commit, 0 when the log was cut
    or recreated since.
    """
    return None if committed is None else max(0, end - committed)


def first_unread(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    stable: bool,
) -> dict[TopicPartition, int]:
    """Where the first record not yet committed is, of each partition that has one."""
    found: dict[TopicPartition, int] = {}
    for partition, each in committed.items():
        known = bounds.get(partition)
        if known is None:
            continue
        first = max(each.offset, known.start)
        if first < (known.last_stable if stable else known.end):
            found[partition] = first
    return found


def time_lag_ms(
    partition: TopicPartition,
    unread: Mapping[TopicPartition, int],
    timestamps: Mapping[TopicPartition, int],
    now_ms: int,
) -> int | None:
    """Age of the first record not yet committed: 0 when there is none, None when it is not
    known.
    """
    if partition not in unread:
        return 0
    timestamp = timestamps.get(partition)
    return None if timestamp is None or timestamp < 0 else max(0, now_ms - timestamp)


def partition_row(
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    bounds: Bounds | None,
    member: MemberDescription | None,
) -> Row:
    """One line of ``group describe``, still without its time lag."""
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
