"""Writer of batch queries (``df.write``): one transaction for each write.

Without further options a write gets a new query id, and the sink is forgotten after the commit.
After a failure its state stays, to refuse tasks that are still running, and expires.
With ``sink.id``, ``query.id`` and ``batch.id`` a write can be repeated, by a job that is run again
or in ``foreachBatch``, and takes effect once.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tidemark.client.errors import ClientError
from tidemark.client.transactions.sink_batches import BatchId

from tidemark_spark.errors import OptionError
from tidemark_spark.sink.clients import sink_of
from tidemark_spark.sink.driver import abort_batch, close_batch, commit_batch
from tidemark_spark.sink.stream_writer import (
    SinkMessage,
    current_task,
    reports_of,
    sink_schema,
    task_name,
)
from tidemark_spark.sink.task_writer import SinkJob, write_task
from tidemark_spark.sink.write_options import Delivery, WriteOptions, write_options

_log = logging.getLogger(__name__)


class BatchWriter(DataSourceArrowWriter):
    """Writer of one write: created on the driver, pickled to the tasks and for the commit.

    Raises OptionError and SchemaError.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
    ) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten", 'use mode("append")')
        read = write_options(options, streaming=False)
        self.job = SinkJob(read, sink_schema(schema, read), uuid.uuid4().hex)
        self.batch = _batch_of(read, self.job.token)
        self.forgotten_after = read.sink_id is None and read.delivery is Delivery.EXACTLY_ONCE

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Write the rows of one task attempt. Runs in the task."""
        task = task_name(self.job, current_task())
        return SinkMessage(write_task(self.job, self.batch, task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write. Runs on the driver after all tasks have reported."""
        commit_batch(self.job.options, reports_of(messages))
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write. Runs on the driver after a task has failed or ``commit`` has raised."""
        if self.forgotten_after:
            close_batch(self.job.options, self.batch)
        else:
            abort_batch(self.job.options, reports_of(messages))

    def _forget(self) -> None:
        """Remove the state of a sink whose id is never used again."""
        if not self.forgotten_after:
            return
        try:
            sink_of(self.job.options).forget(self.batch.sink_id, abort_open=True)
        except ClientError as problem:
            _log.warning("forgetting sink %r failed: %s", self.batch.sink_id, problem)


def _batch_of(options: WriteOptions, token: str) -> BatchId:
    if options.sink_id is None:
        return BatchId(f"spark-batch-{token}", token, 0, expires=True)
    if options.batch is None:
        return BatchId(options.sink_id, token, 0)
    return BatchId(options.sink_id, *options.batch)
