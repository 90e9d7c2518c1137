"""Lag of a group in records and in time. Pure.

committed          last_stable       end
    |--- stable_lag ---|              |     records left for a read_committed consumer
    |-------------- lag --------------|     all records, open transactions included
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidemark.client.admin.group_types import GroupDescription, MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.model.topics import TopicPartition


class Bounds(NamedTuple):
    """Bounds of one partition's log at its leader; ``end`` is the high watermark."""

    start: int
    end: int
    last_stable: int


def owners(group: GroupDescription | None) -> dict[TopicPartition, MemberDescription]:
    """Return the member that reads each partition now."""
    members = () if group is None else group.members
    return {partition: member for member in members for partition in member.assignment}


def lag_of(committed: int | None, end: int) -> int | None:
    """Return the records between a committed offset and an end; None without a commit, 0 if the log
    was truncated or recreated since.
    """
    return None if committed is None else max(0, end - committed)


def first_unread(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: Mapping[TopicPartition, Bounds],
    *,
    stable: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of the first uncommitted record of each partition that has one."""
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
    """Return the age of the first uncommitted record; 0 if there is none, None if unknown."""
    if partition not in unread:
        return 0
    timestamp = timestamps.get(partition)
    return None if timestamp is None or timestamp < 0 else max(0, now_ms - timestamp)
