"""Metrics of the groups that this broker coordinates, under the names of kafka_exporter."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from tidemark.runtime.exposition import LabelValues, ManySamples

from broker.shell.groups.group_lag import GroupLag, PositionLag

_LABELS: Final = ("consumergroup", "topic", "partition")
_SUM_LABELS: Final = ("consumergroup", "topic")


def families(lag: GroupLag) -> Iterator[Metric]:
    """Yield all families, from the figures that were computed last."""
    figures = lag.figures
    known = [one for one in figures.positions if one.lag is not None]
    yield ManySamples(
        "kafka_consumergroup_members",
        "members of a group",
        ("consumergroup",),
        lambda: (((group_id,), count) for group_id, count in figures.members),
    )
    yield ManySamples(
        "kafka_consumergroup_current_offset",
        "committed offset of a group in a partition",
        _LABELS,
        lambda: ((_names(one), one.offset) for one in figures.positions),
    )
    yield ManySamples(
        "kafka_consumergroup_lag",
        "committed records of a partition that a group has not committed an offset for",
        _LABELS,
        lambda: ((_names(one), one.lag or 0) for one in known),
    )
    # The sums are of unknown type: Prometheus keeps the ending _sum of kafka_exporter's names for
    # histograms.
    offset_sums: Counter[LabelValues] = Counter()
    lag_sums: Counter[LabelValues] = Counter()
    for one in known:
        of_topic = (one.group_id, one.at.topic)
        offset_sums[of_topic] += one.offset
        lag_sums[of_topic] += one.lag or 0
    yield ManySamples(
        "kafka_consumergroup_current_offset_sum",
        "sum of a group's committed offsets in a topic",
        _SUM_LABELS,
        lambda: offset_sums.items(),
        kind="unknown",
    )
    yield ManySamples(
        "kafka_consumergroup_lag_sum",
        "sum of a group's lag in a topic",
        _SUM_LABELS,
        lambda: lag_sums.items(),
        kind="unknown",
    )
    unknown = len(figures.positions) - len(known)
    for name, value, doc in (
        ("groups", len(figures.members), "groups that this broker coordinates"),
        ("group_positions_cut", figures.cut, "offsets left out: metrics.group.positions.max"),
        ("group_lag_unknown", unknown, "offsets without lag: the leader has not answered"),
        ("group_lag_age_seconds", (lag.age_ms or 0) / 1_000, "age of the figures of groups"),
    ):
        yield GaugeMetricFamily(f"tidemark_{name}", doc, value=value)


def _names(position: PositionLag) -> LabelValues:
    return position.group_id, position.at.topic, str(position.at.partition)
