"""The data source driven as Spark drives it, but in the test's own process: what needs no JVM is
tested in milliseconds.
"""

import json
import pickle
from collections.abc import Iterable
from typing import Any

from e2e.clusters import Cluster
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tidemark_spark import TidemarkDataSource
from tidemark_spark.source.stream_reader import StreamReader

Row = dict[str, Any]
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}
PLAIN = tuple(COLUMNS)[:-1]


def schema_of(names: Iterable[str] = PLAIN) -> StructType:
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def source(cluster: Cluster, **options: str) -> TidemarkDataSource:
    given = {"bootstrap.servers": cluster.grpc()} | options
    return TidemarkDataSource(CaseInsensitiveDict(given))


def batch_reader(cluster: Cluster, topic: str, **options: str) -> DataSourceReader:
    named = {"subscribe": topic} if topic else {}
    return source(cluster, **(named | options)).reader(schema_of())


def rows_of(
    reader: DataSourceReader | DataSourceStreamReader, partitions: Iterable[InputPartition]
) -> list[Row]:
    """What the tasks give, each by a reader that went through pickle."""
    sent = pickle.dumps((reader, list(partitions)))
    rows: list[Row] = []
    received, tasks = pickle.loads(sent)
    for task in tasks:
        for batch in received.read(task):
            rows += batch.to_pylist()
    return rows


def values(rows: Iterable[Row]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def read(cluster: Cluster, topic: str, **options: str) -> list[bytes]:
    """A whole batch query: its values, sorted."""
    reader = batch_reader(cluster, topic, **options)
    return values(rows_of(reader, reader.partitions()))


class Stream:
    """One streaming query's source between two batches. Offsets go through JSON as in Spark's
    checkpoint.
    """

    def __init__(self, cluster: Cluster, topic: str, **options: str) -> None:
        named = {"startingOffsets": "earliest"} | ({"subscribe": topic} if topic else {}) | options
        reader = source(cluster, **named).streamReader(schema_of())
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.offsets: Row = json.loads(json.dumps(reader.initialOffset()))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def plan(self, limit: ReadLimit | None = None) -> Row:
        """Where the next batch ends."""
        end = self.reader.latestOffset(self.offsets, limit or self.reader.getDefaultReadLimit())
        found: Row = json.loads(json.dumps(end))
        return found

    def batch(self, limit: ReadLimit | None = None) -> list[bytes]:
        """The next batch's values, sorted."""
        start, self.offsets = self.offsets, self.plan(limit)
        return values(rows_of(self.reader, self.reader.partitions(start, self.offsets)))

    def positions(self, topic: str) -> dict[str, int]:
        """Where the query is in a topic, by partition."""
        found: dict[str, int] = self.offsets[topic]["offsets"]
        return found
