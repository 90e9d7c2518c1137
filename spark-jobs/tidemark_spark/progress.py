"""How a streaming query gets on: a line per committed batch on the console, and metrics.

    progress = Progress("reshard")
    spark.streams.addListener(ProgressListener(progress, name="the query's name", tell=print))
    with metrics_served(progress, 9464):
        query.awaitTermination()

Spark reports a batch after its commit, so that what is counted here has been committed. A restarted
query counts from nothing; a batch that it replays is counted by the process that committed it to
Spark's own log, however often the sink was asked.
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
"""The name under which a job observes its counts: ``df.observe(OBSERVED, ...)``."""
_EXECUTED: Final = "addBatch"
_LABELS: Final = ("query",)
_REASON: Final = re.compile(
    r"^(?:tidemark[\w.]*\.\w+Error: |.*\[USER_RAISED_EXCEPTION\] )(.*(?:\n  try: .*)?)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What Spark says of one committed batch."""

    batch_id: int
    records: int
    duration_ms: int
    phases_ms: Mapping[str, int]
    input_rate: float
    """Records that became available, per second."""
    rate: float
    """Records done, per second of the batch."""
    lag: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Records behind the end of each source partition. Empty where the source says nothing: a batch
    that was planned before a restart is run again without a look at the topic's ends.
    """
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the job observed of the batch."""

    @property
    def lag_records(self) -> int | None:
        """Behind the end of the source, in all; None: not known."""
        return sum(self.lag.values()) if self.lag else None


def parse_report(report: Mapping[str, Any]) -> BatchReport | None:
    """Of a StreamingQueryProgress as JSON; None where it tells of no batch."""
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
    """All that is known of one query; metrics when asked. Safe between threads.

    ``query`` labels the metrics.
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self._lock = threading.Lock()
        self._last: BatchReport | None = None
        self._batches = 0
        self._records = 0
        self._counts: Counter[str] = Counter()

    def on_report(self, report: Mapping[str, Any]) -> BatchReport | None:
        """Take what Spark reports; the batch if it is one that was not counted yet."""
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
        """Committed by this process."""
        return self._batches

    @property
    def records(self) -> int:
        """Of the batches committed by this process."""
        return self._records

    @property
    def counts(self) -> Mapping[str, int]:
        """What the job observed, summed."""
        with self._lock:
            return dict(self._counts)

    def line(self, batch: BatchReport) -> str:
        """One line that lines up under the one before it."""
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
        """What was done, for the end."""
        last = "none" if self._last is None else str(self._last.batch_id)
        behind = None if self._last is None else self._last.lag_records
        lag = "" if behind is None else f", lag {behind:,}"
        extra = "".join(
            f", {name.replace('_', ' ')} {count:,}" for name, count in sorted(self.counts.items())
        )
        return (
            f"{self.query}: {self.batches:,} batches committed (the last: {last}),"
            f" {self.records:,} records{lag}{extra}"
        )

    def collect(self) -> Iterable[Metric]:
        """For a Prometheus registry."""
        with self._lock:
            last, batches, records = self._last, self._batches, self._records
            counts = dict(self._counts)
        yield _counter("batches", "batches committed", self.query, batches)
        yield _counter("records", "records of committed batches", self.query, records)
        observed = CounterMetricFamily(
            f"{PREFIX}_observed", "records of a kind, counted by the job", labels=(*_LABELS, "kind")
        )
        for name, count in sorted(counts.items()):
            observed.add_metric((self.query, name), count)
        yield observed
        if last is not None:
            yield from _of_last_batch(self.query, last)


class ProgressListener(StreamingQueryListener):
    """Takes Spark's reports. ``tell`` gets the lines; ``name`` is the only query listened to."""

    def __init__(
        self, progress: Progress, *, name: str | None = None, tell: Callable[[str], object]
    ) -> None:
        self._progress = progress
        self._tell = tell
        self._name = name
        self._run_id: str | None = None
        self._ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A query of the session began."""
        if self._name is None or event.name == self._name:
            self._run_id = str(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch was committed, or nothing happened for a while."""
        if str(event.progress.runId) != self._run_id:
            return
        batch = self._progress.on_report(json.loads(event.progress.json))
        if batch is not None:
            self._tell(self._progress.line(batch))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to read: nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """All reports of the query came before this."""
        if str(event.runId) == self._run_id:
            self._ended.set()

    def wait_ended(self, timeout_s: float) -> bool:
        """Until the query's last report was taken; False where that takes longer."""
        return self._ended.wait(timeout_s)


@contextmanager
def metrics_served(progress: Progress, port: int, host: str = "0.0.0.0") -> Iterator[int]:
    """Answer /metrics on this port within the block; 0 is any free port, which it gives.

    Raises OptionError where the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(progress)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as problem:
        raise OptionError(f"no metrics on {host}:{port}: {problem}", "another port") from None
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reason_of(failure: str) -> str:
    """Why a query failed, of all that Spark says about it: what the data source raised, or an
    expression of the job; else its first line.
    """
    found = _REASON.search(failure)
    return found[1].strip() if found else failure.strip().partition("\n")[0]


def _of_last_batch(query: str, last: BatchReport) -> Iterator[Metric]:
    yield _gauge("batch_id", "the last committed batch", query, last.batch_id)
    yield _gauge("batch_records", "records of the last batch", query, last.records)
    yield _gauge("input_records_rate", "records available, per second", query, last.input_rate)
    yield _gauge("processed_records_rate", "records done, per second", query, last.rate)
    if (lag := last.lag_records) is not None:
        yield _gauge("lag_records", "records not read, of all partitions", query, lag)
    by_partition = GaugeMetricFamily(
        f"{PREFIX}_partition_lag_records",
        "records of a source partition not read",
        labels=(*_LABELS, "topic", "partition"),
    )
    for partition, behind in sorted(last.lag.items()):
        by_partition.add_metric((query, partition.topic, str(partition.partition)), behind)
    yield by_partition
    phases = GaugeMetricFamily(
        f"{PREFIX}_batch_seconds",
        "time of the last batch by phase, in Spark's names",
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
    """Spark leaves a rate out, or says NaN or Infinity as text, where no time has passed."""
    return float(value) if isinstance(value, int | float) else 0.0


def _lag(end: object, latest: object) -> dict[TopicPartition, int]:
    """What lies between two offsets of the source, for the partitions that both name."""
    ends, latests = _positions(end), _positions(latest)
    return {
        partition: max(0, latests[partition] - at)
        for partition, at in ends.items()
        if partition in latests
    }


def _positions(offsets: object) -> dict[TopicPartition, int]:
    """Of offsets as a Spark source writes them: JSON, as text or parsed. A source of another
    kind (a file's, a rate's) has none.
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
