"""The streaming writer: Spark's commit protocol onto sink batches."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tidemark.client.sink_batches import BatchId

from tidemark_spark.commit_protocol import TaskName, TaskReport
from tidemark_spark.sink_driver import abort_batch, commit_batch
from tidemark_spark.sink_errors import SinkError
from tidemark_spark.sink_schema import SinkSchema
from tidemark_spark.task_writer import SinkJob, write_task
from tidemark_spark.write_options import WriteOptions, write_options

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class SinkMessage(WriterCommitMessage):
    """A task's report, as Spark carries it to the driver."""

    report: TaskReport


class StreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver for each micro-batch, and sent to its tasks; made anew for its commit.

    Raises OptionError and SchemaError.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
    ) -> None:
        # In output mode complete Spark says overwrite: as with Spark's Kafka sink the whole result
        # is appended, and a compacted topic keeps the newest of each key.
        del overwrite
        read = write_options(options, streaming=True)
        self.job = SinkJob(read, sink_schema(schema, read), uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkMessage:
        """In a task: one attempt's rows."""
        context = current_task()
        query_id = context.getLocalProperty(_QUERY_ID)
        batch_id = context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise SinkError(
                "Spark did not say which batch of which query this task is of",
                f"a Spark that sets the local properties {_QUERY_ID} and {_BATCH_ID} (4.0 on)",
            )
        batch = BatchId(self.job.options.sink_id or query_id, query_id, int(batch_id))
        return SinkMessage(write_task(self.job, batch, task_name(self.job, context), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: all tasks have reported."""
        reports = reports_of(messages)
        assert all(report.batch.batch_id == batchId for report in reports), (batchId, reports)
        commit_batch(self.job.options, reports)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: some task failed for good, or ``commit`` raised."""
        abort_batch(self.job.options, reports_of(messages))


def sink_schema(schema: StructType, options: WriteOptions) -> SinkSchema:
    """Of a DataFrame's columns. Raises SchemaError."""
    return SinkSchema.of(
        [(each.name, each.dataType.simpleString()) for each in schema.fields], options
    )


def current_task() -> TaskContext:
    """Of this process."""
    context = TaskContext.get()
    assert context is not None, "a task of Spark"
    return context


def task_name(job: SinkJob, context: TaskContext) -> TaskName:
    """Of this attempt."""
    return TaskName(
        job.token, context.partitionId(), context.attemptNumber(), context.taskAttemptId()
    )


def reports_of(messages: list[WriterCommitMessage | None]) -> list[TaskReport]:
    """Those there are: a task that failed has none, and only an abort meets that."""
    return [message.report for message in messages if isinstance(message, SinkMessage)]
