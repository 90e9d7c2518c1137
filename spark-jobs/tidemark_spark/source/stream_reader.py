"""Reader of streaming queries: plans the offsets of each batch."""

import itertools
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType
from tidemark.client.errors import UnknownTopicOrPartitionError
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

from tidemark_spark.errors import SourceError
from tidemark_spark.source.offset_lookup import OffsetLookup, Positions
from tidemark_spark.source.offset_ranges import (
    Advance,
    Offsets,
    Topic,
    advance,
    as_start,
    ends_up_to,
    newcomers,
    offsets_from_json,
    offsets_of,
    offsets_to_json,
    partitions_of,
    positions_beyond,
    ranges_between,
    same_positions,
    split,
    with_start,
)
from tidemark_spark.source.read_options import ReadOptions
from tidemark_spark.source.task_reader import OffsetsPartition, TaskReader

_log = logging.getLogger(__name__)
Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one streaming query.

    On the driver it lives as long as the query, in a process of its own. Each task gets a copy.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = TaskReader.of(options, schema)
        self._lookup = OffsetLookup(options)
        self._clock = Clock()
        self._ceiling: Positions | None = None
        """With Trigger.AvailableNow: the offset at which this run ends, for each partition."""
        self._moved_at_ms: int | None = None

    def __getstate__(self) -> Json:
        """Return the state for a task, without what only the driver needs."""
        return {"_task": self._task}

    def __setstate__(self, state: Json) -> None:
        self.__dict__.update(state)

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return the offsets at which a query without a checkpoint starts.

        Spark also calls this when it replays the first batch; ``partitions`` then takes the start
        that is stored in the end of the batch.
        """
        topics = self._lookup.topics()
        return offsets_to_json(as_start(offsets_of(topics, self._lookup.starting(topics))))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit set by maxOffsetsPerTrigger or minOffsetsPerTrigger.

        If both are given, ``latestOffset`` applies the latter.
        """
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return the end of the next batch; ``start`` if there is nothing, or too little, to read.

        Raises DataLossError, SourceError.
        """
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        began = offsets_from_json(start)
        found = self._advanced(began, rows_max)
        self._lookup.report_losses(found.losses)
        if self._waits(found.available, limit):
            return start
        self._moved_at_ms = self._clock.now_ms()
        if same_positions(began, found.offsets):
            return start
        return offsets_to_json(with_start(began, found.offsets))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return the current ends of the logs, which progress reports compare with the query."""
        try:
            topics = self._lookup.topics(known=self._names())
            positions = self._lookup.latest(partitions_of(topics))
        except SourceError as problem:
            _log.warning("cannot look up the latest offsets for the progress report: %s", problem)
            return None
        return offsets_to_json(offsets_of(topics, positions))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run at the current ends of the logs."""
        topics = self._lookup.topics(known=self._names())
        self._ceiling = self._lookup.latest(partitions_of(topics))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan a task for each partition with offsets to read, or more for minPartitions."""
        ranges = ranges_between(offsets_from_json(start), offsets_from_json(end))
        pieces = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        return [OffsetsPartition(each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        return self._task.read(partition)

    def commit(self, end: Json) -> None:
        """Do nothing: the position of the query is in Spark's checkpoint only."""

    def stop(self) -> None:
        """Close connections."""
        self._lookup.close()

    def _names(self) -> tuple[str, ...]:
        """Topics selected by name. If one does not exist, it may have been deleted."""
        return getattr(self._options.selection, "topics", ())

    def _advanced(self, began: Offsets, rows_max: int | None) -> Advance:
        """Plan a batch. Losses count only if brokers report them for the whole grace period."""
        grace = self._lookup.grace()
        for tried in itertools.count(1):
            try:
                found = self._advanced_now(began, rows_max)
            except SourceError as problem:
                # A topic was deleted between two requests; the next lookup will not contain it.
                deleted = isinstance(problem.__cause__, UnknownTopicOrPartitionError)
                if not deleted or (tried > 1 and not grace.wait()):
                    raise
            else:
                if not found.losses or not grace.wait():
                    return found
        raise AssertionError("unreachable")

    def _advanced_now(self, began: Offsets, rows_max: int | None) -> Advance:
        topics = self._topics(began)
        return advance(
            began,
            topics,
            latest=self._latest(began, topics),
            earliest=self._lookup.earliest(self._entering(began, topics)),
            rows_max=rows_max,
        )

    def _topics(self, began: Offsets) -> dict[str, Topic]:
        """Describe the selected topics. A deleted one is reported once as a loss, then ignored."""
        known = set(began)
        if not self._options.fail_on_data_loss:
            known.update(self._names())
        return self._lookup.topics(known=known)

    def _latest(self, began: Offsets, topics: Mapping[str, Topic]) -> Mapping[TopicPartition, int]:
        latest = self._lookup.latest(partitions_of(topics))
        ahead = positions_beyond(latest, began, topics)
        if ahead and self._options.read_committed:
            # Behind the last stable offset is not lost: those records are not readable yet.
            ends = self._lookup.high_watermarks(ahead)
            latest |= {partition: min(at, ends[partition]) for partition, at in ahead.items()}
        return latest if self._ceiling is None else ends_up_to(self._ceiling, latest, began, topics)

    def _entering(self, began: Offsets, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """Partitions that are new to the query.

        With Trigger.AvailableNow only those that existed when the run started.
        """
        found = newcomers(began, topics)
        if self._ceiling is None:
            return found
        return [partition for partition in found if partition in self._ceiling]

    def _waits(self, available: int, limit: ReadLimit) -> bool:
        """True if the batch should wait for minOffsetsPerTrigger, for at most maxTriggerDelay."""
        least = self._options.offsets_per_trigger_min
        if least is None or isinstance(limit, ReadAllAvailable) or self._ceiling is not None:
            return False
        if self._moved_at_ms is None:
            self._moved_at_ms = self._clock.now_ms()
        waited_ms = self._clock.now_ms() - self._moved_at_ms
        return available < least and waited_ms < self._options.trigger_delay_ms_max
