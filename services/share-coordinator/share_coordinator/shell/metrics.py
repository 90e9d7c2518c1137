"""Metrics of a share-coordinator."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tidemark.runtime.coordinator.metrics import measure_shards
from tidemark.runtime.coordinator.shards import Shards
from tidemark.runtime.metrics import LabelValues, Metrics

from share_coordinator.core.statistics import ShareStatistics
from share_coordinator.shell.shard_life import ShardLife

PREFIX: Final = "tidemark_share"


def measure(shards: Shards[ShardLife], metrics: Metrics) -> None:
    """Register the metrics that are computed when /metrics is read."""
    measure_shards(shards, metrics, PREFIX)
    metrics.computed(
        f"{PREFIX}_groups",
        lambda: _by_state(_statistics(shards)),
        "share groups of the shards served, by state",
        ("state",),
    )
    metrics.computed_one(
        f"{PREFIX}_members",
        lambda: sum(one.members for one in _statistics(shards)),
        "members of the share groups of the shards served",
    )
    metrics.computed_one(
        f"{PREFIX}_states",
        lambda: sum(one.states for one in _statistics(shards)),
        "share-partitions of the shards served that have a state",
    )
    metrics.computed_one(
        f"{PREFIX}_state_records_live",
        lambda: sum(one.records_live for one in _statistics(shards)),
        "records of the state topic that no later one replaces, updates not counted",
    )
    metrics.computed_one(
        f"{PREFIX}_state_records_needed",
        lambda: sum(one.records_needed for one in _statistics(shards)),
        "records of the state topic from the oldest live one on; those before it are deleted",
    )


def _statistics(shards: Shards[ShardLife]) -> Sequence[ShareStatistics]:
    all_shards = (life.statistics() for life in shards.serving().values())
    return [one for one in all_shards if one is not None]


def _by_state(statistics: Iterable[ShareStatistics]) -> Iterable[tuple[LabelValues, float]]:
    total: Counter[str] = Counter()
    for one in statistics:
        total.update(one.groups_by_state)
    return [((state,), float(count)) for state, count in sorted(total.items())]
