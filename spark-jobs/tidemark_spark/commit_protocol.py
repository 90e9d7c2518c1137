"""What the sink's tasks tell the driver, and what the driver makes of it. Pure.

A batch is (sink, query, batch id). Each task attempt writes under a slot of its own; the attempts
that Spark counts are named in one commit, all else is aborted. The commit carries a *note*, which
says how much was written: when the batch comes again, after a crash between the commit and Spark's
own note of it, the two are compared.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidemark.client.sink_batches import BatchId
from tidemark.client.transaction_handle import WriterReceipt
from tidemark.model.topics import TopicPartition

from tidemark_spark.sink_errors import ReplayMismatchError, SinkError

NOTE_BYTES_MAX: Final = 4_096
_DIGEST_CHARACTERS: Final = 32


class TaskName(NamedTuple):
    """Which attempt of which task, of which run of a batch."""

    token: str
    """Made on the driver for each run of a batch: a run after a crash has another."""
    partition_id: int
    attempt: int
    task_attempt_id: int

    @property
    def writer(self) -> str:
        """The name of the attempt's slot."""
        return f"{self.token}.{self.partition_id}.{self.attempt}.{self.task_attempt_id}"


@dataclass(frozen=True, slots=True)
class Totals:
    """What a task, or a batch, wrote: rows, bytes of keys and values, and the offsets that the
    source's group reads next.
    """

    rows: int = 0
    size_bytes: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def plus(self, other: "Totals") -> "Totals":
        """Both; of an offset known to both the higher."""
        offsets = dict(self.offsets)
        for partition, offset in other.offsets.items():
            offsets[partition] = max(offset, offsets.get(partition, 0))
        return Totals(self.rows + other.rows, self.size_bytes + other.size_bytes, offsets)


class FormerQuery(NamedTuple):
    """Whom the query took the sink over from, and the last batch that it committed, if known."""

    query_id: str
    batch_id: int | None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task attempt tells the driver."""

    batch: BatchId
    receipt: str | None
    """None: the task wrote nothing, because the batch was committed before."""
    totals: Totals
    former: FormerQuery | None = None
    """Until the query's first commit."""


class CommitPlan(NamedTuple):
    """What the driver asks the coordinator for."""

    batch: BatchId
    receipts: tuple[WriterReceipt, ...]
    totals: Totals
    former: FormerQuery | None


def plan_commit(reports: Sequence[TaskReport]) -> CommitPlan:
    """One commit of all tasks' writers. At least one task runs in every batch, a batch without rows
    included.
    """
    assert reports, "a batch without tasks"
    batches = {report.batch for report in reports}
    assert len(batches) == 1, batches
    totals = Totals()
    for report in reports:
        totals = totals.plus(report.totals)
    receipts = tuple(WriterReceipt.parse(each.receipt) for each in reports if each.receipt)
    formers = [each.former for each in reports if each.former is not None]
    # Only the task that took the sink over could still see what the former query had committed.
    formers.sort(key=lambda former: former.batch_id is None)
    return CommitPlan(reports[0].batch, receipts, totals, formers[0] if formers else None)


def note_of(totals: Totals) -> str:
    """At most NOTE_BYTES_MAX: offsets of very many partitions are shortened to their digest."""
    known: dict[str, Any] = {"rows": totals.rows, "bytes": totals.size_bytes}
    if totals.offsets:
        known["offsets"] = _nested(totals.offsets)
    note = _json(known)
    if len(note.encode()) <= NOTE_BYTES_MAX:
        return note
    return _json({**known, "offsets": _digest(known["offsets"])})


def check_replay(batch: BatchId, totals: Totals, note: str) -> None:
    """Raise ReplayMismatchError when a committed batch came again with other rows than its note
    says.

    Rows and source offsets are compared. Bytes are not: a query that stamps its rows writes other
    bytes each time, and what counts is in the log once.
    """
    committed, now = _read(batch, note), _read(batch, note_of(totals))
    different = [
        f"{name} {_brief(committed.get(name))} then, {_brief(now.get(name))} now"
        for name in ("rows", "offsets")
        if committed.get(name) != now.get(name)
    ]
    if different:
        raise ReplayMismatchError(
            f"{batch} is committed, and came again with something else: {'; '.join(different)}",
            "the checkpoint planned this batch anew, or the query changed: what is new in it would"
            " be missing in the topic. Restore the checkpoint that was there, or take"
            " replay.mismatch=skip to leave the batch as it was committed and go on",
        )


def _read(batch: BatchId, note: str) -> dict[str, Any]:
    try:
        known = json.loads(note)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise SinkError(
            f"{batch} is committed with a note that this sink did not write: {note[:80]!r}",
            "use a sink id that no other program commits under",
        )
    return known


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return nested


def _digest(offsets: Mapping[str, Mapping[str, int]]) -> str:
    return "sha256:" + hashlib.sha256(_json(offsets).encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _json(known: Mapping[str, Any]) -> str:
    return json.dumps(known, separators=(",", ":"))


def _brief(known: object) -> str:
    text = "none" if known is None else str(known)
    return text if len(text) <= 200 else f"{text[:200]}..."
