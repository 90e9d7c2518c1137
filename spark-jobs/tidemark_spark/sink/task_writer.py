"""A task attempt of the sink: enlists in the batch, sends its rows and reports what it wrote."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from tidemark.client.producer.batches import EncodedRecords
from tidemark.client.sync.sink_batches import BatchWriter, SinkBatches
from tidemark.client.transactions.sink_batches import BatchCommittedError, BatchId
from tidemark.runtime.clock import Clock

from tidemark_spark.sink.clients import (
    discard_producer,
    last_batch_of_another,
    producer_of,
    sink_of,
    translate_client_errors,
)
from tidemark_spark.sink.commit_protocol import FormerQuery, TaskName, TaskReport, Totals
from tidemark_spark.sink.encode import Encoder, Limits
from tidemark_spark.sink.failpoints import Step, hit
from tidemark_spark.sink.schema import SinkSchema, payload_bytes
from tidemark_spark.sink.write_options import Delivery, WriteOptions

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Arrow batches are joined up to this size, so that fewer and larger record batches are sent."""
PIECE_BYTES_MAX: Final = 8 * PIECE_BYTES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkJob:
    """A write, as pickled from the driver to the tasks."""

    options: WriteOptions
    schema: SinkSchema
    token: str
    """Token of this run; part of the names of all its writers."""


class _Output(Protocol):
    """Destination of a task's records: a writer of the batch, or a producer."""

    def send_encoded_many(self, batches: Sequence[EncodedRecords]) -> None: ...

    def partitions_for(self, topic: str) -> tuple[int, ...]: ...

    def flush(self) -> None: ...


def write_task(
    job: SinkJob, batch: BatchId, task: TaskName, rows: Iterable[pa.RecordBatch]
) -> TaskReport:
    """Write the rows of one task attempt. Raises SinkError and its subclasses."""
    doing = f"writing partition {task.partition_id} of {batch}"
    facts = {**batch._asdict(), "partition_id": task.partition_id, "writer": task.writer}
    with translate_client_errors(doing):
        if job.options.delivery is Delivery.AT_LEAST_ONCE:
            report = TaskReport(batch, None, _write_plainly(job, task, rows, facts))
        else:
            report = _write_once(job, batch, task, rows, facts)
    hit(Step.MESSAGE, **facts)
    return report


def _write_plainly(
    job: SinkJob, task: TaskName, rows: Iterable[pa.RecordBatch], facts: dict[str, object]
) -> Totals:
    sent = False
    try:
        totals = _send(job, task, producer_of(job.options), rows, facts)
        sent = True
    finally:
        if not sent:
            discard_producer(job.options)
    return totals


def _write_once(
    job: SinkJob,
    batch: BatchId,
    task: TaskName,
    rows: Iterable[pa.RecordBatch],
    facts: dict[str, object],
) -> TaskReport:
    sink = sink_of(job.options)
    may_take_over = batch.batch_id == 0 and batch.sink_id != batch.query_id
    former_batch = last_batch_of_another(sink, batch) if may_take_over else None
    try:
        writer = _enlisted(job.options, sink, batch, task)
    except BatchCommittedError:
        # The batch is replayed after a crash. Its rows are counted for the driver to compare.
        return TaskReport(batch, None, _count(job.schema, rows))
    former = None
    if writer.retired_query_id:
        former = FormerQuery(writer.retired_query_id, former_batch)
    with writer:
        totals = _send(job, task, writer, rows, facts)
        return TaskReport(batch, str(writer.receipt()), totals, former)


def _enlisted(
    options: WriteOptions, sink: SinkBatches, batch: BatchId, task: TaskName
) -> BatchWriter:
    return sink.enlist(
        batch, task.writer, options.config, timeout_ms=options.transaction_timeout_ms
    )


def _send(
    job: SinkJob,
    task: TaskName,
    output: _Output,
    rows: Iterable[pa.RecordBatch],
    facts: dict[str, object],
) -> Totals:
    hit(Step.ENLIST, **facts)
    encoder = _encoder(job.options, output, task)
    totals, sent = Totals(), False
    for piece in pieces(rows):
        columns = job.schema.columns(piece)
        totals = totals.plus(
            Totals(piece.num_rows, payload_bytes(columns), job.schema.next_offsets(piece))
        )
        output.send_encoded_many(encoder.encode(columns))
        if not sent:
            sent = True
            hit(Step.SEND, **facts)
    output.flush()
    hit(Step.FLUSH, **facts)
    return totals


def _encoder(options: WriteOptions, output: _Output, task: TaskName) -> Encoder:
    known: dict[str, int] = {}

    def partition_count(topic: str) -> int:
        if topic not in known:
            known[topic] = len(output.partitions_for(topic))
        return known[topic]

    config = options.config
    return Encoder(
        partition_count,
        limits=Limits(min(config.batch_size, config.max_request_size), config.max_request_size),
        now_ms=Clock().wall_ms,
        first_partition=task.partition_id,
    )


def _count(schema: SinkSchema, rows: Iterable[pa.RecordBatch]) -> Totals:
    totals = Totals()
    for each in rows:
        columns = schema.columns(each)
        totals = totals.plus(
            Totals(each.num_rows, payload_bytes(columns), schema.next_offsets(each))
        )
    return totals


def pieces(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join and split batches into non-empty pieces of about PIECE_BYTES."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        for part in _cut(batch):
            held.append(part)
            size += part.nbytes
            if size >= PIECE_BYTES:
                yield from _joined(held)
                held, size = [], 0
    if held:
        yield from _joined(held)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into parts of at most about PIECE_BYTES_MAX."""
    count = batch.num_rows
    parts = 1 + batch.nbytes // PIECE_BYTES_MAX
    rows_each = max(1, -(-count // parts))
    for start in range(0, count, rows_each):
        yield batch.slice(start, rows_each)


def _joined(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(parts) == 1:
        return parts
    joined: list[pa.RecordBatch] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return joined
