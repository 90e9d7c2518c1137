"""Metrics of share groups at the leaders of partitions."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from tidemark.model.ids import Offset

from broker.core.share.inspection import counts
from broker.core.share.states import Phase
from broker.shell.share.share_partitions import SharePartitions

_LABELS = ["group", "topic", "partition"]


def families(shares: SharePartitions) -> Iterator[Metric]:
    """Yield all families of share groups."""
    yield from _of_broker(shares)
    lag = GaugeMetricFamily(
        "tidemark_share_lag_records",
        "records whose delivery is not complete: available, acquired, archiving, and those behind"
        " the window",
        labels=_LABELS,
    )
    starts = GaugeMetricFamily(
        "tidemark_share_start_offset", "first offset that is not finished", labels=_LABELS
    )
    records = GaugeMetricFamily(
        "tidemark_share_records",
        "records by state; behind: readable and never delivered",
        labels=[*_LABELS, "state"],
    )
    blocked = GaugeMetricFamily(
        "tidemark_share_dead_letters_blocked",
        "records that cannot be copied to the dead-letter queue for now",
        labels=_LABELS,
    )
    for held in tuple(shares):
        if held.share.phase is not Phase.ACTIVE or not held.is_led:
            continue
        topic_partition = held.hosted.topic_partition
        labels = [held.group_id, topic_partition.topic, str(topic_partition.partition)]
        counted = counts(held.share.window, Offset(held.readable_end))
        lag.add_metric(labels, counted.lag)
        starts.add_metric(labels, counted.start)
        for state in ("available", "acquired", "acknowledged", "archiving", "archived", "behind"):
            records.add_metric([*labels, state], getattr(counted, state))
        if held.letters.problem is not None:
            blocked.add_metric(labels, held.letters.waiting)
    yield from (lag, starts, records, blocked)


def _of_broker(shares: SharePartitions) -> Iterator[Metric]:
    for name, value, doc in (
        ("share_partitions", len(shares), "share-partitions with a window in memory"),
        ("share_sessions", len(shares.sessions), "share sessions"),
        ("share_session_partitions", shares.sessions.partition_count, "partitions of all sessions"),
        ("share_fetches_waiting", len(shares.turns.queue), "share fetches that wait for records"),
    ):
        yield GaugeMetricFamily(f"tidemark_{name}", doc, value=value)
    for name, value, doc in (
        ("share_state_writes", shares.persister.writes, "writes of a share-partition's state"),
        (
            "share_state_writes_failed",
            shares.persister.failed_writes,
            "writes of a share-partition's state that failed or were not answered in time",
        ),
        ("share_dead_letters", shares.copier.copied, "records copied to dead-letter queues"),
        (
            "share_dead_letters_failed",
            shares.copier.failures,
            "transactions that were to copy records to dead-letter queues and failed",
        ),
    ):
        yield CounterMetricFamily(f"tidemark_{name}", doc, value=value)
