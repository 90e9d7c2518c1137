"""Counts of a shard of share groups, for metrics."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from share_coordinator.core.group_state import ShareGroupState
from share_coordinator.core.share_states import ShareStates
from share_coordinator.core.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class ShareStatistics:
    """Counts of one shard at one moment."""

    groups_by_state: dict[str, int]
    members: int
    states: int
    """Share-partitions that have a state."""
    records_live: int
    """Records that no later one replaces, updates not counted."""
    records_needed: int
    """Offsets from the oldest live record on."""


def statistics_of(
    groups: Collection[ShareGroupState], states: ShareStates, upkeep: Upkeep
) -> ShareStatistics:
    """Return the counts of a shard."""
    existing = [group for group in groups if group.exists]
    return ShareStatistics(
        dict(Counter(group.title for group in existing)),
        sum(len(group.members) for group in existing),
        states.count,
        upkeep.records_live,
        upkeep.records_needed,
    )
