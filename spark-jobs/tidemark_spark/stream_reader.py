"""Streaming reads: batch after batch of offsets, as fast as maxOffsetsPerTrigger allows."""

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
from tidemark_spark.options import ReadOptions
from tidemark_spark.planner import Planner, Positions
from tidemark_spark.planning import (
    Advance,
    Offsets,
    Topic,
    advance,
    newcomers,
    offsets_from_json,
    offsets_of,
    offsets_to_json,
    partitions_of,
    ranges_between,
    split,
)
from tidemark_spark.reading import OffsetsPartition, TaskReader

_log = logging.getLogger(__name__)
Json = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's reader. On the driver it lives as long as the query, in a process of
    its own; a copy goes to each task.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = TaskReader.of(options, schema)
        self._planner = Planner(options)
        self._clock = Clock()
        self._ceiling: Positions | None = None
        """With Trigger.AvailableNow: where each partition ends for this run."""
        self._moved_at_ms: int | None = None

    def __getstate__(self) -> Json:
        """For a task: nothing of the driver's."""
        return {"_task": self._task}

    def __setstate__(self, state: Json) -> None:
        self.__dict__.update(state)

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint starts."""
        topics = self._planner.topics()
        return offsets_to_json(offsets_of(topics, self._planner.starting(topics)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger, minOffsetsPerTrigger; where both are given, the latter is looked at
        in ``latestOffset``.
        """
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the next batch ends; ``start`` when there is nothing (or not enough) to read.
        Raises DataLossError, SourceError.
        """
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        found = self._advanced(offsets_from_json(start), rows_max)
        self._planner.report_losses(found.losses)
        if self._waits(found.available, limit):
            return start
        self._moved_at_ms = self._clock.now_ms()
        return offsets_to_json(found.offsets)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Where the logs end now: what a progress report sets against the query's offsets."""
        try:
            topics = self._planner.topics(known=self._names())
            positions = self._planner.latest(partitions_of(topics))
        except SourceError as problem:
            _log.warning("where the logs end is not known now: %s", problem)
            return None
        return offsets_to_json(offsets_of(topics, positions))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where this run ends: at what there is now."""
        topics = self._planner.topics(known=self._names())
        self._ceiling = self._planner.latest(partitions_of(topics))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """A task for each partition that has something to read, or more by minPartitions."""
        ranges = ranges_between(offsets_from_json(start), offsets_from_json(end))
        pieces = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        return [OffsetsPartition(each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._task.read(partition)

    def commit(self, end: Json) -> None:
        """Spark's checkpoint is what says where the query is; nothing is told to the cluster."""

    def stop(self) -> None:
        """Let go of connections."""
        self._planner.close()

    # ---- within

    def _names(self) -> tuple[str, ...]:
        """Topics that may be gone without being a wrong name: those that are named."""
        return getattr(self._options.selection, "topics", ())

    def _advanced(self, began: Offsets, rows_max: int | None) -> Advance:
        """What is lost counts once brokers have said so for a while."""
        grace = self._planner.grace()
        for tried in itertools.count(1):
            try:
                found = self._advanced_now(began, rows_max)
            except SourceError as problem:
                # Deleted between two questions: the next answer is without it.
                deleted = isinstance(problem.__cause__, UnknownTopicOrPartitionError)
                if not deleted or (tried > 1 and not grace.wait()):
                    raise
            else:
                if not found.losses or not grace.wait():
                    return found
        raise AssertionError("counted to the end")

    def _advanced_now(self, began: Offsets, rows_max: int | None) -> Advance:
        topics = self._topics(began)
        return advance(
            began,
            topics,
            latest=self._latest(partitions_of(topics)),
            earliest=self._planner.earliest(self._entering(began, topics)),
            rows_max=rows_max,
        )

    def _topics(self, began: Offsets) -> dict[str, Topic]:
        """A topic that is gone is a loss once; where losses are allowed, nothing after that."""
        known = set(began)
        if not self._options.fail_on_data_loss:
            known.update(self._names())
        return self._planner.topics(known=known)

    def _latest(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        latest = self._planner.latest(partitions)
        if self._ceiling is None:
            return latest
        return {
            partition: min(at, self._ceiling.get(partition, 0)) for partition, at in latest.items()
        }

    def _entering(self, began: Offsets, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """Partitions that come in now; with Trigger.AvailableNow only those that were there when
        the run began.
        """
        found = newcomers(began, topics)
        if self._ceiling is None:
            return found
        return [partition for partition in found if partition in self._ceiling]

    def _waits(self, available: int, limit: ReadLimit) -> bool:
        """Whether to let records gather, by minOffsetsPerTrigger and at most maxTriggerDelay."""
        least = self._options.offsets_per_trigger_min
        if least is None or isinstance(limit, ReadAllAvailable) or self._ceiling is not None:
            return False
        if self._moved_at_ms is None:
            self._moved_at_ms = self._clock.now_ms()
        waited_ms = self._clock.now_ms() - self._moved_at_ms
        return available < least and waited_ms < self._options.trigger_delay_ms_max
