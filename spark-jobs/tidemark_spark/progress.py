"""Progress of a streaming query: a line for each committed batch, and Prometheus metrics.

    progress = Progress("reshard")
    spark.streams.addListener(ProgressListener(progress, name="the query's name", echo=print))
    with metrics_served(progress, 9464):
        query.awaitTermination()

Spark reports a batch after its commit, so everything that is counted has been committed. Counts
start at zero when the query is restarted. A batch that is replayed is counted once, by the process
that committed it in Spark's checkpoint.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from tidemark.model.topics import TopicPartition

from tidemark_spark.errors import OptionError

PREFIX: Final = "tidemark_spark"
OBSERVED: Final = "tidemark"
"""Name of the observation with a job's own counts: ``df.observe(OBSERVED, ...)``."""
_EXECUTED: Final = "addBatch"
_LABELS: Final = ("query",)
_REASON: Final = re.compile(
    r"^(?:tidemark[\w.]*\.\w+Error: |.*\[USER_RAISED_EXCEPTION\] )(.*(?:\n  try: .*)?)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Spark's report of a committed batch."""

    batch_id: int
    records: int
    duration_ms: int
    phases_ms: Mapping[str, int]
    input_rate: float
    """Records that arrived at the source, per second."""
    rate: float
    """Records processed, per second of the batch's duration."""
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records between the query and the end of each source partition.

    Empty if the source has not reported the ends: Spark runs a batch that was planned before a
    restart again without asking for them.
    """
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counters of the job, observed by Spark."""

    @property
    def lag_records(self) -> int | None:
        """Sum of the lag over all partitions; None if it is not known."""
        return sum(self.lag.values()) if self.lag else None


def parse_report(report: Mapping[str, Any]) -> BatchReport | None:
    """Parse a StreamingQueryProgress in JSON; None if it reports no batch."""
    phases = report.get("durationMs") or {}
    if _EXECUTED not in phases:
        return None
    lag: Counter[TopicPartition] = Counter()
    for source in report.get("sources", ()):
        lag.update(_lag(source.get("endOffset"), source.get("latestOffset")))
    observed = (report.get("observedMetrics") or {}).get(OBSERVED) or {}
    return BatchReport(
        batch_id=int(report["batchId"]),
        records=int(report.get("numInputRows") or 0),
        duration_ms=int(phases.get("triggerExecution") or report.get("batchDuration") or 0),
        phases_ms={name: int(spent) for name, spent in phases.items()},
        input_rate=_rate(report.get("inputRowsPerSecond")),
        rate=_rate(report.get("processedRowsPerSecond")),
        lag=lag,
        counts={name: int(count or 0) for name, count in observed.items()},
    )


class Progress(Collector):
    """Progress of one query, and a collector of its metrics. Thread-safe.

    ``query`` is the label of the metrics.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self._lock = threading.Lock()
        self._last: BatchReport | None = None
        self._batches = 0
        self._records = 0
        self._counts: Counter[str] = Counter()

    def on_report(self, report: Mapping[str, Any]) -> BatchReport | None:
        """Count a report of Spark; return its batch, or None if it was counted before."""
        batch = parse_report(report)
        if batch is None:
            return None
        with self._lock:
            if self._last is not None and batch.batch_id <= self._last.batch_id:
                return None
            self._last = batch
            self._batches += 1
            self._records += batch.records
            self._counts.update(batch.counts)
        return batch

    @property
    def batches(self) -> int:
        """Number of batches committed by this process."""
        return self._batches

    @property
    def records(self) -> int:
        """Number of records in the batches committed by this process."""
        return self._records

    @property
    def counts(self) -> Mapping[str, int]:
        """Sums of the counts observed by the job."""
        with self._lock:
            return dict(self._counts)

    def line(self, batch: BatchReport) -> str:
        """Format a batch as a line, aligned with the lines of other batches."""
        extra = "".join(
            f"  {name.replace('_', ' ')} {count:,}"
            for name, count in sorted(batch.counts.items())
            if count
        )
        lag = "unknown" if batch.lag_records is None else f"{batch.lag_records:,}"
        return (
            f"batch {batch.batch_id:>6}  {batch.records:>10,} records"
            f"  {batch.duration_ms / 1_000:>7.2f} s  {batch.rate:>10,.0f}/s"
            f"  lag {lag:>12}"
            f"  committed {self.batches:>6,} batches  {self.records:>12,} records{extra}"
        )

    def summary(self) -> str:
        """Return one line that sums up the query."""
        last = "none" if self._last is None else str(self._last.batch_id)
        behind = None if self._last is None else self._last.lag_records
        lag = "" if behind is None else f", lag {behind:,}"
        extra = "".join(
            f", {name.replace('_', ' ')} {count:,}" for name, count in sorted(self.counts.items())
        )
        return (
            f"{self.query}: {self.batches:,} batches committed (last: {last}),"
            f" {self.records:,} records{lag}{extra}"
        )

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Called by a Prometheus registry."""
        with self._lock:
            last, batches, records = self._last, self._batches, self._records
            counts = dict(self._counts)
        yield _counter("batches", "batches committed", self.query, batches)
        yield _counter("records", "records of committed batches", self.query, records)
        observed = CounterMetricFamily(
            f"{PREFIX}_observed", "records counted by the job, by kind", labels=(*_LABELS, "kind")
        )
        for name, count in sorted(counts.items()):
            observed.add_metric((self.query, name), count)
        yield observed
        if last is not None:
            yield from _of_last_batch(self.query, last)


class ProgressListener(StreamingQueryListener):
    """Listener that passes Spark's reports to a Progress, and a line for each batch to ``echo``.

    If ``name`` is given, other queries of the session are ignored.
    """

    def __init__(
        self, progress: Progress, *, name: str | None = None, echo: Callable[[str], object]
    ) -> None:
        self._progress = progress
        self._echo = echo
        self._name = name
        self._run_id: str | None = None
        self._ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Remember the run id of the query."""
        if self._name is None or event.name == self._name:
            self._run_id = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Count a committed batch."""
        if str(event.progress.runId) != self._run_id:
            return
        batch = self._progress.on_report(json.loads(event.progress.json))
        if batch is not None:
            self._echo(self._progress.line(batch))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: an idle query has no batch to report."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Note the end of the query; Spark sends it after all other reports."""
        if str(event.runId) == self._run_id:
            self._ended.set()

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait until the last report of the query was counted; False on timeout."""
        return self._ended.wait(timeout_s)


@contextmanager
def metrics_served(progress: Progress, port: int, host: str = "0.0.0.0") -> Iterator[int]:
    """Serve /metrics on a port within the block; yield the port, which is a free one for 0.

    Raises OptionError if the port cannot be opened.
    """
    registry = CollectorRegistry()
    registry.register(progress)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as problem:
        raise OptionError(
            f"cannot serve metrics on {host}:{port}: {problem}", "use another port"
        ) from None
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reason_of(failure: str) -> str:
    """Extract the reason from Spark's message about a failed query.

    It is the error raised by the data source or by an expression of the job, or else the first
    line of the message.
    """
    found = _REASON.search(failure)
    return found[1].strip() if found else failure.strip().partition("\n")[0]


def _of_last_batch(query: str, last: BatchReport) -> Iterator[Metric]:
    yield _gauge("batch_id", "the last committed batch", query, last.batch_id)
    yield _gauge("batch_records", "records of the last batch", query, last.records)
    yield _gauge(
        "input_records_rate", "records arriving at the source, per second", query, last.input_rate
    )
    yield _gauge("processed_records_rate", "records processed, per second", query, last.rate)
    if (lag := last.lag_records) is not None:
        yield _gauge("lag_records", "records not yet read, over all partitions", query, lag)
    by_partition = GaugeMetricFamily(
        f"{PREFIX}_partition_lag_records",
        "records of a source partition not yet read",
        labels=(*_LABELS, "topic", "partition"),
    )
    for partition, behind in sorted(last.lag.items()):
        by_partition.add_metric((query, partition.topic, str(partition.partition)), behind)
    yield by_partition
    phases = GaugeMetricFamily(
        f"{PREFIX}_batch_seconds",
        "duration of the phases of the last batch, by Spark's name of the phase",
        labels=(*_LABELS, "phase"),
    )
    for phase, spent_ms in sorted(last.phases_ms.items()):
        phases.add_metric((query, phase), spent_ms / 1_000)
    yield phases


def _counter(name: str, doc: str, query: str, value: float) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", doc, labels=_LABELS)
    family.add_metric((query,), value)
    return family


def _gauge(name: str, doc: str, query: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", doc, labels=_LABELS)
    family.add_metric((query,), value)
    return family


def _rate(value: object) -> float:
    """Return a rate; 0 if Spark omits it or reports NaN or Infinity (as text) for no duration."""
    return float(value) if isinstance(value, int | float) else 0.0


def _lag(end: object, latest: object) -> dict[TopicPartition, int]:
    """Return the distance between two offsets of a source, for partitions that both contain."""
    ends, latests = _positions(end), _positions(latest)
    return {
        partition: max(0, latests[partition] - at)
        for partition, at in ends.items()
        if partition in latests
    }


def _positions(offsets: object) -> dict[TopicPartition, int]:
    """Parse offsets of this source or of Spark's Kafka source: JSON, as text or parsed.

    The result is empty for sources of other kinds, such as files.
    """
    parsed = json.loads(offsets) if isinstance(offsets, str) and offsets else offsets
    if not isinstance(parsed, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): int(at)
        for topic, entry in parsed.items()
        if isinstance(entry, Mapping)
        for partition, at in entry.get("offsets", entry).items()
        if partition.isdecimal()
    }
