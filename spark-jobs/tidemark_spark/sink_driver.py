"""What the driver does with its tasks' reports: one commit, or none."""

import logging
from collections.abc import Sequence

from tidemark.client.errors import ClientError
from tidemark.client.sink_batches import BatchId, BatchOutcome, RetiredQueryError, StaleBatchError

from tidemark_spark.commit_protocol import (
    CommitPlan,
    TaskReport,
    check_replay,
    note_of,
    plan_commit,
)
from tidemark_spark.sink_clients import said_clearly, sink_of
from tidemark_spark.sink_errors import ReplayMismatchError
from tidemark_spark.steps import Step, reached
from tidemark_spark.write_options import Delivery, ReplayMismatch, WriteOptions

_log = logging.getLogger(__name__)


def commit_batch(options: WriteOptions, reports: Sequence[TaskReport]) -> BatchOutcome | None:
    """Commit what the reports name, once; None where there is nothing to decide, because the
    records are visible already (at-least-once). Raises SinkError and its kinds.
    """
    plan = plan_commit(reports)
    facts = plan.batch._asdict()
    reached(Step.COMMIT_BEFORE, **facts)
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return None
    _warn_of_takeover(options, plan)
    offsets = plan.totals.offsets
    with said_clearly(f"committing {plan.batch}"):
        outcome = sink_of(options).commit(
            plan.batch,
            plan.receipts,
            note=note_of(plan.totals),
            group_offsets=(options.group_id, offsets) if options.group_id and offsets else None,
            offsets_written=lambda: reached(Step.OFFSETS, **facts),
            timeout_ms=options.transaction_timeout_ms,
        )
    reached(Step.COMMIT_SENT, **facts)
    if not outcome.first and not outcome.same_writers:
        _on_committed_before(options, plan, outcome)
    reached(Step.COMMIT_AFTER, **facts)
    return outcome


def abort_batch(options: WriteOptions, reports: Sequence[TaskReport | None]) -> None:
    """Give up what was not committed. Spark calls it after a commit that raised too, even if it had
    landed: then it changes nothing.

    Without any report there is nothing to name the batch by: its transaction ends when the batch is
    run again, or by its timeout.
    """
    batches = {report.batch for report in reports if report is not None}
    for batch in batches:
        reached(Step.ABORT, **batch._asdict())
        if options.delivery is Delivery.AT_LEAST_ONCE:
            continue
        try:
            sink_of(options).abort(batch)
        except (RetiredQueryError, StaleBatchError) as problem:
            _log.info("%s needs no abort: %s", batch, problem)
        except ClientError as problem:
            # The transaction ends by itself; what made Spark abort is the error to show.
            _log.warning("aborting %s failed, it ends by its timeout: %s", batch, problem)


def close_batch(options: WriteOptions, batch: BatchId) -> None:
    """End a batch that nobody will run again: it is committed with nothing that its tasks wrote.

    A task that Spark gave up may still be at work. An abort would let it open the batch once more,
    for as long as its timeout; so it hears that the batch is done.
    """
    reached(Step.ABORT, **batch._asdict())
    try:
        sink_of(options).commit(batch, ())
    except ClientError as problem:
        _log.warning("closing %s failed, it ends by its timeout: %s", batch, problem)


def _warn_of_takeover(options: WriteOptions, plan: CommitPlan) -> None:
    if plan.former is None:
        return
    last = plan.former.batch_id
    unless = (
        f", unless it starts where group {options.group_id!r} committed" if options.group_id else ""
    )
    _log.warning(
        "sink %r was written by query %r (last committed batch: %s) and is now written by query"
        " %r, which starts at its batch %d. If its checkpoint was deleted, everything that the"
        " source still has is written AGAIN%s. The former query is refused from now on.",
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
        _log.warning("skipped: %s", problem.what)
    else:
        _log.info("%s was committed before: nothing was written", plan.batch)
