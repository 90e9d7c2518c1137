"""The batch writer, for ``df.write``: one transaction a write.

A write of its own has a query id of its own, and nothing of it is remembered once it is committed.
With ``sink.id``, ``query.id`` and ``batch.id`` a write may be repeated, by a job that is run again
or in ``foreachBatch``, and takes effect once.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tidemark.client.errors import ClientError
from tidemark.client.sink_batches import BatchId

from tidemark_spark.errors import OptionError
from tidemark_spark.sink_clients import sink_of
from tidemark_spark.sink_driver import abort_batch, close_batch, commit_batch
from tidemark_spark.stream_writer import (
    SinkMessage,
    current_task,
    reports_of,
    sink_schema,
    task_name,
)
from tidemark_spark.task_writer import SinkJob, write_task
from tidemark_spark.write_options import Delivery, WriteOptions, write_options

_log = logging.getLogger(__name__)


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver once a write; pickled to its tasks, and for its commit.

    Raises OptionError and SchemaError.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
    ) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten", 'mode("append")')
        read = write_options(options, streaming=False)
        self.job = SinkJob(read, sink_schema(schema, read), uuid.uuid4().hex)
        self.batch = _batch_of(read, self.job.token)
        self.forgotten_after = read.sink_id is None and read.delivery is Delivery.EXACTLY_ONCE

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """In a task: one attempt's rows."""
        task = task_name(self.job, current_task())
        return SinkMessage(write_task(self.job, self.batch, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: all tasks have reported."""
        commit_batch(self.job.options, reports_of(messages))
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: some task failed for good, or ``commit`` raised."""
        if self.forgotten_after:
            close_batch(self.job.options, self.batch)
        else:
            abort_batch(self.job.options, reports_of(messages))

    def _forget(self) -> None:
        """A sink that nobody will ask for again."""
        if not self.forgotten_after:
            return
        try:
            sink_of(self.job.options).forget(self.batch.sink_id, abort_open=True)
        except ClientError as problem:
            _log.warning("forgetting sink %r: %s", self.batch.sink_id, problem)


def _batch_of(options: WriteOptions, token: str) -> BatchId:
    sink_id = options.sink_id or f"spark-batch-{token}"
    if options.batch is None:
        return BatchId(sink_id, token, 0)
    return BatchId(sink_id, *options.batch)
