"""Writer of micro-batches for ``foreachBatch``: one Spark job writes a batch, and the driver's own
process commits it.

For each batch of ``writeStream.format("tidemark")`` Spark starts two Python processes on the
driver, one that creates the writer and one that commits, each with new connections. Here both
happen in the process that runs the query, whose connections stay open. The protocol is the same.
"""

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType
from tidemark.client.transactions.sink_batches import BatchId

from tidemark_spark.sink.commit_protocol import TaskReport, Totals
from tidemark_spark.sink.driver import abort_named, commit_batch
from tidemark_spark.sink.stream_writer import current_task, sink_schema, task_name
from tidemark_spark.sink.task_writer import SinkJob, write_task
from tidemark_spark.sink.write_options import write_options

_REPORT: Final = "report"
_MESSAGE: Final = pa.schema([pa.field(_REPORT, pa.binary())])
_MESSAGE_DDL: Final = f"{_REPORT} binary"

Prepare = Callable[[pa.RecordBatch], pa.RecordBatch]
"""A function that changes rows in the task, before they are written. It keeps the columns, the
number of rows and their order, and gives the same result in each attempt. It is pickled.
"""


class ForeachBatchWriter:
    """Function for ``DataStreamWriter.foreachBatch`` that writes each batch exactly once.

    ``options`` are those of a streaming write. ``query_id`` is the id of the query: the batch's
    name in the cluster, which must be the same after a restart from the same checkpoint.
    Raises OptionError.
    """

    def __init__(
        self, options: Mapping[str, str], query_id: str, *, prepare: Prepare | None = None
    ) -> None:
        self._options = write_options(options, streaming=True)
        self._query_id = query_id
        self._prepare = prepare

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write and commit a batch; abort it if that fails. Raises SchemaError, SinkError."""
        job = SinkJob(self._options, sink_schema(rows.schema, self._options), uuid.uuid4().hex)
        batch = BatchId(self._options.sink_id or self._query_id, self._query_id, batch_id)
        committed = False
        try:
            written = _map_in_arrow(rows, _Task(job, batch, self._prepare)).collect()
            # A batch without partitions has no task.
            reports = [_parsed(row[_REPORT]) for row in written] or [
                TaskReport(batch, None, Totals())
            ]
            commit_batch(self._options, reports)
            committed = True
        finally:
            if not committed:
                abort_named(self._options, batch)


@dataclass(frozen=True, slots=True)
class _Task:
    """The work of a task, pickled to the executors: write the rows, return the report as a row."""

    job: SinkJob
    batch: BatchId
    prepare: Prepare | None

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepared: Iterable[pa.RecordBatch] = map(self.prepare, rows) if self.prepare else rows
        report = write_task(self.job, self.batch, task_name(self.job, current_task()), prepared)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)])], schema=_MESSAGE)


def _map_in_arrow(rows: DataFrame, task: _Task) -> DataFrame:
    """Return ``rows.mapInArrow``, which in PySpark's own form needs pandas without using it."""
    function = UserDefinedFunction(
        task, _MESSAGE_DDL, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = function(*(rows[name] for name in rows.columns))
    mapped = rows._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001, FBT003
    return DataFrame(mapped, rows.sparkSession)


def _parsed(message: bytes) -> TaskReport:
    """Return the report that a task of this query pickled; Spark has authenticated its worker."""
    report = pickle.loads(message)
    assert isinstance(report, TaskReport), report
    return report
