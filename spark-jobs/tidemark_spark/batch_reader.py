"""Batch reads: from starting to ending offsets, both fixed when the query is planned."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidemark_spark.options import ReadOptions
from tidemark_spark.planner import Planner
from tidemark_spark.planning import Range, offsets_of, ranges_between, split
from tidemark_spark.pushdown import Pruning, absorb
from tidemark_spark.reading import OffsetsPartition, TaskReader


class _PushFilters:
    """``reader.pushFilters`` that Spark takes with ``spark.sql.python.filterPushdown.enabled`` and
    without.

    Spark refuses a reader that overrides ``pushFilters`` while the setting is off (its default),
    and knows one by the function behind the method. This says it is the base class's, which it is
    as far as that goes: whoever does not push filters gets the same rows.
    """

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push
        self.__func__ = DataSourceReader.pushFilters  # on the object: a class would bind it

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


class BatchReader(DataSourceReader):
    """One batch query's reader: plans on the driver, then travels to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._task = TaskReader.of(options, schema)
        self._pruning = Pruning()

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name
        """Narrow what is read; see tidemark_spark.pushdown."""
        return _PushFilters(self._push)

    def partitions(self) -> list[InputPartition]:
        """A task for each partition that has something to read, or more by minPartitions. Raises
        OptionError, DataLossError, SourceError.
        """
        with closing(Planner(self._options)) as planner:
            ranges = self._narrowed(planner, self._ranges(planner))
        pieces = split(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        # Spark makes a partition of its own out of none.
        return [OffsetsPartition(each) for each in pieces] or [OffsetsPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return self._task.read(partition)

    # ---- within

    def _push(self, filters: list[Filter]) -> Iterable[Filter]:
        self._pruning, rest = absorb(filters)
        return rest

    def _ranges(self, planner: Planner) -> list[Range]:
        topics = planner.topics()
        starting = offsets_of(topics, planner.starting(topics))
        return ranges_between(starting, offsets_of(topics, planner.ending(topics)))

    def _narrowed(self, planner: Planner, ranges: list[Range]) -> list[Range]:
        left = self._pruning.narrowed(ranges)
        if self._pruning.timestamp_ms is None:
            return left
        young = planner.positions([each.partition for each in left], self._pruning.timestamp_ms)
        return [
            each._replace(start=max(each.start, young[each.partition]))
            for each in left
            if 0 <= young[each.partition] < each.end
        ]
