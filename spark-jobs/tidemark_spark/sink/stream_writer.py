"""Writer of streaming queries: maps Spark's commit protocol to sink batches."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tidemark.client.transactions.sink_batches import BatchId

from tidemark_spark.sink.commit_protocol import TaskName, TaskReport
from tidemark_spark.sink.driver import abort_batch, commit_batch
from tidemark_spark.sink.errors import SinkError
from tidemark_spark.sink.schema import SinkSchema
from tidemark_spark.sink.task_writer import SinkJob, write_task
from tidemark_spark.sink.write_options import WriteOptions, write_options

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class SinkMessage(WriterCommitMessage):
    """A task's report, in the message that Spark passes to the driver."""

    report: TaskReport


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of one micro-batch: created on the driver, pickled to the tasks.

    Spark creates another one for the commit. Raises OptionError and SchemaError.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
    ) -> None:
        # Spark sets overwrite in output mode complete. As in Spark's Kafka sink, the whole result
        # is appended, and a compacted topic keeps the newest record of each key.
        del overwrite
        read = write_options(options, streaming=True)
        self.job = SinkJob(read, sink_schema(schema, read), uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """Write the rows of one task attempt. Runs in the task."""
        context = current_task()
        query_id = context.getLocalProperty(_QUERY_ID)
        batch_id = context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise SinkError(
                "Spark has not set the query id and the batch id of this task",
                f"use Spark 4.0 or newer, which sets the local properties {_QUERY_ID} and"
                f" {_BATCH_ID}",
            )
        batch = BatchId(self.job.options.sink_id or query_id, query_id, int(batch_id))
        return SinkMessage(write_task(self.job, batch, task_name(self.job, context), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the batch. Runs on the driver after all tasks have reported."""
        reports = reports_of(messages)
        assert all(report.batch.batch_id == batchId for report in reports), (batchId, reports)
        commit_batch(self.job.options, reports)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the batch. Runs on the driver after a task has failed or ``commit`` has raised."""
        abort_batch(self.job.options, reports_of(messages))


def sink_schema(schema: StructType, options: WriteOptions) -> SinkSchema:
    """Check the columns of a DataFrame. Raises SchemaError."""
    return SinkSchema.of(
        [(each.name, each.dataType.simpleString()) for each in schema.fields], options
    )


def current_task() -> TaskContext:
    """Return the context of the task that runs in this process."""
    context = TaskContext.get()
    assert context is not None, "called outside of a Spark task"
    return context


def task_name(job: SinkJob, context: TaskContext) -> TaskName:
    """Return the name of this task attempt."""
    return TaskName(
        job.token, context.partitionId(), context.attemptNumber(), context.taskAttemptId()
    )


def reports_of(messages: list[WriterCommitMessage | None]) -> list[TaskReport]:
    """Return the reports in messages. A failed task has no message, which only aborts see."""
    return [message.report for message in messages if isinstance(message, SinkMessage)]
