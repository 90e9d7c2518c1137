"""Reports of the sink's tasks, and the commit that the driver plans from them. Pure.

A batch is identified by (sink id, query id, batch id). Each task attempt writes as a writer of its
own. The commit names the writers of the attempts that Spark counts; all others are aborted. The
commit also stores a *note* of how much was written. If the driver crashes before Spark has noted
the commit in its checkpoint, the batch is replayed, and the replay is compared with the note.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import BatchId
from tidemark.model.topics import TopicPartition

from tidemark_spark.sink.errors import ReplayMismatchError, SinkError

NOTE_BYTES_MAX: Final = 4_096
_DIGEST_CHARACTERS: Final = 32


class TaskName(NamedTuple):
    """Identity of a task attempt in a run of a batch."""

    token: str
    """Created on the driver for each run of a batch; a run after a crash has another one."""
    partition_id: int
    attempt: int
    task_attempt_id: int

    @property
    def writer(self) -> str:
        """Name of the attempt's writer in the transaction."""
        return f"{self.token}.{self.partition_id}.{self.attempt}.{self.task_attempt_id}"


@dataclass(frozen=True, slots=True)
class Totals:
    """Amounts written by a task or a batch, and the source offsets after it.

    ``size_bytes`` counts keys and values.
    """

    rows: int = 0
    size_bytes: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def plus(self, other: "Totals") -> "Totals":
        """Add two totals; of two offsets of a partition the higher one is kept."""
        offsets = dict(self.offsets)
        for partition, offset in other.offsets.items():
            offsets[partition] = max(offset, offsets.get(partition, 0))
        return Totals(self.rows + other.rows, self.size_bytes + other.size_bytes, offsets)


class FormerQuery(NamedTuple):
    """The query from which the sink was taken over, and its last committed batch, if known."""

    query_id: str
    batch_id: int | None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task attempt's report to the driver."""

    batch: BatchId
    receipt: str | None
    """None: the task wrote nothing, because the batch is already committed."""
    totals: Totals
    former: FormerQuery | None = None
    """Set until the query's first commit, if it took over the sink."""


class CommitPlan(NamedTuple):
    """The commit that the driver requests from the coordinator."""

    batch: BatchId
    receipts: tuple[WriterReceipt, ...]
    totals: Totals
    former: FormerQuery | None


def plan_commit(reports: Sequence[TaskReport]) -> CommitPlan:
    """Plan the commit of all tasks' writers. Even a batch without rows has at least one task."""
    assert reports, "a batch without tasks"
    batches = {report.batch for report in reports}
    assert len(batches) == 1, batches
    totals = Totals()
    for report in reports:
        totals = totals.plus(report.totals)
    receipts = tuple(WriterReceipt.parse(each.receipt) for each in reports if each.receipt)
    formers = [each.former for each in reports if each.former is not None]
    # Only the task that took over the sink could still look up the former query's last batch.
    formers.sort(key=lambda former: former.batch_id is None)
    return CommitPlan(reports[0].batch, receipts, totals, formers[0] if formers else None)


def note_of(totals: Totals) -> str:
    """Encode totals as a note of at most NOTE_BYTES_MAX.

    Offsets of very many partitions are replaced by their digest.
    """
    known: dict[str, Any] = {"rows": totals.rows, "bytes": totals.size_bytes}
    if totals.offsets:
        known["offsets"] = _nested(totals.offsets)
    note = _json(known)
    if len(note.encode()) <= NOTE_BYTES_MAX:
        return note
    return _json({**known, "offsets": _digest(known["offsets"])})


def check_replay(batch: BatchId, totals: Totals, note: str) -> None:
    """Raise ReplayMismatchError if a replayed batch differs from the note of its commit.

    Row counts and source offsets are compared. Sizes are not, because a query that adds the current
    time to its rows writes other bytes in each run.
    """
    committed, now = _read(batch, note), _read(batch, note_of(totals))
    different = [
        f"{name} {_brief(committed.get(name))} then, {_brief(now.get(name))} now"
        for name in ("rows", "offsets")
        if committed.get(name) != now.get(name)
    ]
    if different:
        raise ReplayMismatchError(
            f"{batch} is already committed, and was replayed with other rows:"
            f" {'; '.join(different)}",
            "restore the checkpoint that this batch was planned with: the checkpoint or the query"
            " has changed, and records that are new in the batch would be missing in the topic. Or"
            " set replay.mismatch=skip to keep the batch as it was committed and continue",
        )


def _read(batch: BatchId, note: str) -> dict[str, Any]:
    try:
        known = json.loads(note)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise SinkError(
            f"{batch} was committed with a note that this sink did not write: {note[:80]!r}",
            "use a sink.id that no other program uses",
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
