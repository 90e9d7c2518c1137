"""Reader of batch queries: the range of offsets is fixed when the query is planned."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidemark_spark.errors import DataLossError
from tidemark_spark.source.offset_lookup import OffsetLookup
from tidemark_spark.source.offset_ranges import Range, Topic, offsets_of, ranges_between, split
from tidemark_spark.source.pushdown import Pruning, absorb
from tidemark_spark.source.read_options import ReadOptions
from tidemark_spark.source.task_reader import OffsetsPartition, TaskReader


class _PushFilters:
    """``pushFilters`` that Spark accepts whether or not filter pushdown is enabled.

    Spark rejects a reader that overrides ``pushFilters`` while
    ``spark.sql.python.filterPushdown.enabled`` is off, which is the default. It detects an override
    by the function behind the method, so this object presents the one of the base class. That is
    safe because the rows are the same with and without pushdown.
    """

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push
        self.__func__ = (
            DataSourceReader.pushFilters
        )  # an attribute of the object, because one of the class would be bound

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


class BatchReader(DataSourceReader):
    """Reader of one batch query: plans on the driver, then is pickled to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = TaskReader.of(options, schema)
        self._pruning = Pruning()

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Narrow the ranges by filters: see tidemark_spark.source.pushdown."""
        return _PushFilters(self._push)

    def partitions(self) -> list[InputPartition]:
        """Plan a task for each partition with offsets to read, or more for minPartitions.

        Raises OptionError, DataLossError, SourceError.
        """
        with closing(OffsetLookup(self._options)) as lookup:
            ranges = self._narrowed(lookup, self._ranges(lookup))
        pieces = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        # For an empty list Spark would create a partition of its own.
        return [OffsetsPartition(each) for each in pieces] or [OffsetsPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        return self._task.read(partition)

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pruning, rest = absorb(filters)
        return rest

    def _ranges(self, lookup: OffsetLookup) -> list[Range]:
        topics = lookup.topics()
        self._check_ids(topics)
        starting = offsets_of(topics, lookup.starting(topics))
        return ranges_between(starting, offsets_of(topics, lookup.ending(topics)))

    def _check_ids(self, topics: Mapping[str, Topic]) -> None:
        for name, wanted in self._options.topic_ids.items():
            if name in topics and topics[name].topic_id != wanted:
                raise DataLossError(
                    f"topic {name!r} was deleted and created again: its id is"
                    f" {topics[name].topic_id}, it was {wanted}",
                    "plan the query again: offsets of the former topic mean nothing in this one",
                )

    def _narrowed(self, lookup: OffsetLookup, ranges: list[Range]) -> list[Range]:
        left = self._pruning.narrowed(ranges)
        if self._pruning.timestamp_ms is None:
            return left
        young = lookup.positions([each.partition for each in left], self._pruning.timestamp_ms)
        return [
            each._replace(start=max(each.start, young[each.partition]))
            for each in left
            if 0 <= young[each.partition] < each.end
        ]
