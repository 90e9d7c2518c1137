"""Metrics of a txn-coordinator."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.model.errors import ErrorCode
from tidemark.runtime.coordinator import metrics as coordinator_metrics
from tidemark.runtime.metrics import LabelValues, Metrics, TallyFamily, Timings

from txn_coordinator.core.requests import BatchRefusal, EnlistInBatchReply, FinishBatchReply
from txn_coordinator.core.table import TxnStatistics

if TYPE_CHECKING:
    from txn_coordinator.shell.node import TxnCoordinatorNode

_PREFIX = "tidemark_txn"
_ABORTED, _COMMITTED, _KNOWN = _OUTCOMES = ("aborted", "committed", "known")


class RequestStats(coordinator_metrics.RequestStats):
    """Counts of requests, and times of requests, markers and loads."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics, _PREFIX)
        self.marker_seconds: Timings = metrics.timings(
            f"{_PREFIX}_marker_seconds",
            "seconds from a decided outcome to the last of its markers",
        ).at()
        self._batches: TallyFamily = metrics.counter(
            f"{_PREFIX}_sink_batches",
            "finished batches of sinks, by outcome; known: committed before",
            ("outcome",),
        )
        self._refusals: TallyFamily = metrics.counter(
            f"{_PREFIX}_sink_refusals",
            "requests for batches of sinks that were refused, by reason",
            ("reason",),
        )
        # From 0 on: Prometheus sees no increase in a series whose first value is 1.
        for outcome in _OUTCOMES:
            self._batches.at(outcome)
        for refusal in BatchRefusal:
            if refusal is not BatchRefusal.NONE:
                self._refusals.at(_reason(refusal))

    def count_enlisted(self, reply: EnlistInBatchReply) -> None:
        """Count a reply to a writer of a batch."""
        if reply.refusal is not BatchRefusal.NONE:
            self._refusals.at(_reason(reply.refusal)).value += 1

    def count_finished(self, reply: FinishBatchReply) -> None:
        """Count a reply to the end of a batch."""
        if reply.refusal is not BatchRefusal.NONE:
            self._refusals.at(_reason(reply.refusal)).value += 1
        elif reply.error_code is ErrorCode.NONE:
            outcome = _ABORTED if not reply.committed else _COMMITTED if reply.first else _KNOWN
            self._batches.at(outcome).value += 1


def _reason(refusal: BatchRefusal) -> str:
    return refusal.name.lower()


def measure(node: "TxnCoordinatorNode", metrics: Metrics) -> None:
    """Register the metrics that are computed when /metrics is read."""
    markers = node.markers
    coordinator_metrics.measure_shards(node.shards, metrics, _PREFIX)
    metrics.computed(
        f"{_PREFIX}_transactions",
        lambda: _by_state(node),
        "transactional ids of the shards served, by the state of their transaction",
        ("state",),
    )
    metrics.computed_one(
        f"{_PREFIX}_sinks",
        lambda: sum(one.sinks for one in _statistics(node)),
        "transactional ids of the shards served that are sinks of batches",
    )
    metrics.computed_one(
        f"{_PREFIX}_endings",
        lambda: markers.ending_count,
        "decided transactions of one producer whose markers are not all written",
    )
    metrics.computed_one(
        f"{_PREFIX}_oldest_open_seconds",
        lambda: _oldest_open_s(node),
        "age of the oldest open transaction; 0: none is open",
    )
    metrics.computed(
        f"{_PREFIX}_markers_queued",
        lambda: _queued(node),
        "markers that wait for the request in flight to a broker",
        ("broker",),
    )
    metrics.computed_one(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        lambda: markers.parked_count,
        "markers that wait for a leader or for a retry",
    )
    metrics.computed_one(
        f"{_PREFIX}_producer_ids_left",
        lambda: node.producer_ids.left_count,
        "producer ids available without a request to the controller",
    )


def _statistics(node: "TxnCoordinatorNode") -> Iterable[TxnStatistics]:
    all_shards = (life.statistics() for life in node.shards.serving().values())
    return [one for one in all_shards if one is not None]


def _by_state(node: "TxnCoordinatorNode") -> Iterable[tuple[LabelValues, float]]:
    total: Counter[str] = Counter()
    for one in _statistics(node):
        total.update({state.title: count for state, count in one.by_state.items()})
    return [((state,), float(count)) for state, count in sorted(total.items())]


def _oldest_open_s(node: "TxnCoordinatorNode") -> float:
    started = [one.oldest_open_started_at for one in _statistics(node)]
    oldest = min((at for at in started if at >= 0), default=None)
    return 0.0 if oldest is None else max(0, node.clock.wall_ms() - oldest) / 1_000


def _queued(node: "TxnCoordinatorNode") -> Iterable[tuple[LabelValues, float]]:
    counts = node.markers.queued_counts()
    return [((str(broker),), float(count)) for broker, count in sorted(counts.items())]
