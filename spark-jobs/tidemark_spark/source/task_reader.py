"""The work of a task: read one range of offsets as Arrow record batches."""

import logging
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tidemark.client.consumer.range_reader import RangeLostError, RawBatch
from tidemark.client.errors import ClientError, UnknownTopicOrPartitionError
from tidemark.client.sync.range_reader import RangeReader
from tidemark.codec.records import RecordsError

from tidemark_spark import worker_clients
from tidemark_spark.errors import DataLossError, SchemaError, SourceError
from tidemark_spark.source.decode import decode, grouped
from tidemark_spark.source.offset_lookup import LOSS_HINT, as_source_error
from tidemark_spark.source.offset_ranges import Range
from tidemark_spark.source.read_options import ReadOptions
from tidemark_spark.source.schema import HEADERS_FIELD, SOURCE_FIELDS

_log = logging.getLogger(__name__)


class OffsetsPartition(InputPartition):
    """The range that a task reads; None: nothing."""

    def __init__(self, offsets: Range | None) -> None:
        super().__init__(offsets)
        self.offsets = offsets


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reader of ranges in tasks. Pickled to the executors with each task."""

    bootstrap_servers: str
    client: tuple[tuple[str, Any], ...]
    """Settings of RangeReader, sorted by name."""
    read_committed: bool
    fail_on_data_loss: bool
    records_per_batch: int
    schema: pa.Schema

    @classmethod
    def of(cls, options: ReadOptions, schema: StructType) -> "TaskReader":
        """Create a reader. Raises SchemaError for columns that the source does not provide."""
        return cls(
            options.bootstrap_servers,
            tuple(sorted(options.client.items())),
            options.read_committed,
            options.fail_on_data_loss,
            options.records_per_batch,
            arrow_schema(schema, include_headers=options.include_headers),
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a range. Raises DataLossError, SourceError."""
        assert isinstance(partition, OffsetsPartition), partition
        if partition.offsets is not None:
            yield from self._read(partition.offsets)

    def _read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        partition = wanted.partition
        with as_source_error(f"reading {partition}"):
            for group in grouped(self._batches(wanted)):
                try:
                    rows = decode(group, partition, self.schema)
                except RecordsError as problem:
                    first, last = group[0].header.base_offset, group[-1].header.last_offset
                    raise SourceError(
                        f"cannot decode offsets {first} to {last} of {partition}: {problem}",
                        "skip them with startingOffsets and endingOffsets",
                    ) from None
                for start in range(0, rows.num_rows, self.records_per_batch):
                    yield rows.slice(start, self.records_per_batch)

    def _batches(self, wanted: Range) -> Iterator[RawBatch]:
        """Yield the batches of a range, without lost records if failOnDataLoss is false."""
        start = wanted.start
        while start < wanted.end:
            try:
                yield from self._reader().read(
                    wanted.partition,
                    start,
                    wanted.end,
                    read_committed=self.read_committed,
                    topic_id=bytes.fromhex(wanted.topic_id),
                )
            except RangeLostError as lost:
                self._report(str(lost).partition("; ")[0])
                # If the end of the log was cut off, nothing is left; otherwise go on at its start.
                start = lost.log_start if lost.log_start > lost.position else wanted.end
            except UnknownTopicOrPartitionError as gone:
                self._report(str(gone).partition("; ")[0])
                return
            except ClientError:
                # The next attempt opens a new client, whatever was wrong with this one.
                worker_clients.discard(self._client_key)
                raise
            else:
                return

    def _report(self, loss: str) -> None:
        if self.fail_on_data_loss:
            raise DataLossError(f"records were lost before they were read: {loss}", LOSS_HINT)
        _log.warning("records were lost before they were read (failOnDataLoss is false): %s", loss)

    @property
    def _client_key(self) -> Hashable:
        return ("RangeReader", self.bootstrap_servers, self.client)

    def _reader(self) -> RangeReader:
        """Return this process's client, which it keeps for later tasks."""
        return worker_clients.client(self._client_key, self._open)

    def _open(self) -> RangeReader:
        return RangeReader(self.bootstrap_servers, transport="grpc", **dict(self.client))


def arrow_schema(schema: StructType, *, include_headers: bool) -> pa.Schema:
    """Convert the schema of a query, which may have some or all columns of the source, to Arrow.

    Raises SchemaError.
    """
    known = {field.name: field.type for field in SOURCE_FIELDS}
    if include_headers:
        known[HEADERS_FIELD.name] = HEADERS_FIELD.type
    asked = to_arrow_schema(schema, timezone="UTC")
    for field in asked:
        if field.name not in known:
            hint = "includeHeaders=true" if field.name == "headers" else ", ".join(known)
            raise SchemaError(f"the source has no column {field.name!r}", hint)
        if field.type != known[field.name]:
            raise SchemaError(
                f"column {field.name!r} is {known[field.name]}, not {field.type}",
                "leave out the schema and cast in the query",
            )
    return asked
