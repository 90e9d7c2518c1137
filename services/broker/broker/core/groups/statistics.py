"""Figures of the groups of one shard, for metrics."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemark.model.topics import TopicPartition

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.group_rules import AnyGroup
from broker.core.groups.offsets import Committed
from broker.core.groups.shard import GroupShard


class GroupFigures(NamedTuple):
    """One group: its members and committed offsets. ``positions`` is the shard's own mapping."""

    group_id: str
    member_count: int
    positions: Mapping[TopicPartition, Committed]


def figures(shard: GroupShard) -> Iterator[GroupFigures]:
    """Yield every group of the shard, in no particular order."""
    groups, offsets = shard.state
    for group_id in groups.keys() | set(offsets.group_ids()):
        yield GroupFigures(
            group_id, _member_count(groups.get(group_id)), offsets.of_group(group_id)
        )


def _member_count(group: AnyGroup | None) -> int:
    if group is None:
        return 0
    return len(group.members) if isinstance(group, ClassicGroup) else group.member_count
