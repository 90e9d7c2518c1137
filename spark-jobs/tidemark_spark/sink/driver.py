"""The driver's part of a batch: commit or abort what the tasks have reported."""

import logging
from collections.abc import Sequence

from tidemark.client.errors import ClientError
from tidemark.client.transactions.sink_batches import (
    BatchId,
    BatchOutcome,
    RetiredQueryError,
    StaleBatchError,
)

from tidemark_spark.sink.clients import sink_of, translate_client_errors
from tidemark_spark.sink.commit_protocol import (
    CommitPlan,
    TaskReport,
    check_replay,
    note_of,
    plan_commit,
)
from tidemark_spark.sink.errors import ReplayMismatchError
from tidemark_spark.sink.failpoints import Step, hit
from tidemark_spark.sink.write_options import Delivery, ReplayMismatch, WriteOptions

_log = logging.getLogger(__name__)


def commit_batch(options: WriteOptions, reports: Sequence[TaskReport]) -> BatchOutcome | None:
    """Commit the writers in the reports, and compare a replayed batch with its first commit.

    None with delivery=at-least-once, where records are already visible. Raises SinkError and its
    subclasses.
    """
    plan = plan_commit(reports)
    facts = plan.batch._asdict()
    hit(Step.COMMIT_BEFORE, **facts)
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return None
    _warn_of_takeover(options, plan)
    offsets = plan.totals.offsets
    with translate_client_errors(f"committing {plan.batch}"):
        outcome = sink_of(options).commit(
            plan.batch,
            plan.receipts,
            note=note_of(plan.totals),
            group_offsets=(options.group_id, offsets) if options.group_id and offsets else None,
            offsets_written=lambda: hit(Step.OFFSETS, **facts),
            timeout_ms=options.transaction_timeout_ms,
        )
    hit(Step.COMMIT_SENT, **facts)
    if not outcome.first and not outcome.same_writers:
        _on_committed_before(options, plan, outcome)
    hit(Step.COMMIT_AFTER, **facts)
    return outcome


def abort_batch(options: WriteOptions, reports: Sequence[TaskReport | None]) -> None:
    """Abort the batch in the reports, unless it is committed.

    Spark also calls this after a commit that raised, even if the commit took effect; then nothing
    changes. Without any report the batch is not known; its transaction ends when the batch is run
    again, or by its timeout.
    """
    for batch in {report.batch for report in reports if report is not None}:
        abort_named(options, batch)


def abort_named(options: WriteOptions, batch: BatchId) -> None:
    """Abort a batch, unless it is committed. A failure is logged."""
    hit(Step.ABORT, **batch._asdict())
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return
    try:
        sink_of(options).abort(batch)
    except (RetiredQueryError, StaleBatchError) as problem:
        _log.info("%s was not aborted, because it is not open: %s", batch, problem)
    except ClientError as problem:
        # The transaction ends by its timeout, and Spark reports the error that made it abort.
        _log.warning("aborting %s failed; it will time out: %s", batch, problem)


def close_batch(options: WriteOptions, batch: BatchId) -> None:
    """End a batch that will not be run again, by committing it without any writer.

    A task that Spark has given up on may still be running. After an abort it could open the batch
    again and keep it open until its timeout; after this commit it gets BatchCommittedError.
    """
    hit(Step.ABORT, **batch._asdict())
    try:
        sink_of(options).commit(batch, ())
    except ClientError as problem:
        _log.warning("closing %s failed; it will time out: %s", batch, problem)


def _warn_of_takeover(options: WriteOptions, plan: CommitPlan) -> None:
    if plan.former is None:
        return
    last = plan.former.batch_id
    unless = (
        f", unless it starts at the offsets committed by group {options.group_id!r}"
        if options.group_id
        else ""
    )
    _log.warning(
        "sink %r was written by query %r (last committed batch: %s) and is taken over by query"
        " %r, which starts with its batch %d. If the checkpoint was deleted, everything that is"
        " still in the source is written AGAIN%s. The former query can no longer write to this"
        " sink.",
        plan.batch.sink_id,
        plan.former.query_id,
        "unknown" if last is None else last,
        plan.batch.query_id,
        plan.batch.batch_id,
        unless,
    )


def _on_committed_before(options: WriteOptions, plan: CommitPlan, outcome: BatchOutcome) -> None:
    try:
        check_replay(plan.batch, plan.totals, outcome.note)
    except ReplayMismatchError as problem:
        if options.replay_mismatch is ReplayMismatch.FAIL:
            raise
        _log.warning("batch skipped (replay.mismatch=skip): %s", problem.what)
    else:
        _log.info("%s is already committed; nothing was written", plan.batch)
