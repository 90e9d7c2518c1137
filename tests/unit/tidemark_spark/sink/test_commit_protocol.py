import json
import pickle

import pytest
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import BatchId
from tidemark.model.topics import TopicPartition
from tidemark_spark.sink.commit_protocol import (
    NOTE_BYTES_MAX,
    FormerQuery,
    TaskName,
    TaskReport,
    Totals,
    check_replay,
    note_of,
    plan_commit,
)
from tidemark_spark.sink.errors import ReplayMismatchError, SinkError

BATCH = BatchId("sink", "query", 3)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
RECEIPTS = [WriterReceipt(f"w{number}", number, 0) for number in range(2)]


def mismatch(now: Totals, note: str) -> ReplayMismatchError | None:
    """Refusal of a batch that comes again, if it is refused."""
    try:
        check_replay(BATCH, now, note)
    except ReplayMismatchError as refusal:
        return refusal
    return None


def test_each_attempt_has_a_slot_of_its_own() -> None:
    assert TaskName("run", 1, 0, 17).writer == "run.1.0.17"


def test_a_commit_names_the_reports_receipts_and_adds_up() -> None:
    reports = [
        TaskReport(BATCH, str(RECEIPTS[0]), Totals(1, 10, {A0: 5})),
        TaskReport(BATCH, None, Totals(2, 20, {A0: 3, A1: 9})),
        TaskReport(BATCH, str(RECEIPTS[1]), Totals()),
    ]
    plan = plan_commit(reports)
    assert plan.receipts == tuple(RECEIPTS)
    assert plan.totals == Totals(3, 30, {A0: 5, A1: 9})


def test_the_former_query_is_told_with_its_last_batch_where_known() -> None:
    formers = [None, FormerQuery("old", None), FormerQuery("old", 7)]
    reports = [TaskReport(BATCH, None, Totals(), former) for former in formers]
    assert plan_commit(reports).former == FormerQuery("old", 7)


def test_reports_travel() -> None:
    report = TaskReport(BATCH, "r", Totals(1, 2, {A0: 3}), FormerQuery("old", 1))
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_note_says_what_was_written() -> None:
    note = note_of(Totals(3, 30, {A1: 9, A0: 5}))
    assert json.loads(note) == {"rows": 3, "bytes": 30, "offsets": {"a": {"0": 5, "1": 9}}}


def test_a_note_of_very_many_partitions_has_their_digest() -> None:
    many = Totals(1, 1, {TopicPartition("topic", number): number for number in range(5_000)})
    assert len(note_of(many)) <= NOTE_BYTES_MAX
    assert mismatch(many, note_of(many)) is None
    other = Totals(1, 1, {**many.offsets, TopicPartition("topic", 7): 8})
    assert "offsets sha256" in str(mismatch(other, note_of(many)))


def test_the_same_rows_with_other_bytes_are_the_same_batch() -> None:
    assert mismatch(Totals(3, 31, {A0: 5}), note_of(Totals(3, 30, {A0: 5}))) is None


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (Totals(4, 30, {A0: 5}), "rows 3 then, 4 now"),
        (Totals(3, 30, {A0: 6}), "offsets {'a': {'0': 5}} then, {'a': {'0': 6}} now"),
        (Totals(3, 30), "then, none now"),
    ],
)
def test_other_rows_or_offsets_are_another_batch(now: Totals, says: str) -> None:
    refusal = mismatch(now, note_of(Totals(3, 30, {A0: 5})))
    assert refusal is not None
    assert says in str(refusal)
    assert "replay.mismatch=skip" in refusal.hint


@pytest.mark.parametrize("note", ["", "hello", "[]"])
def test_a_note_of_another_program_is_told(note: str) -> None:
    with pytest.raises(SinkError, match="did not write"):
        check_replay(BATCH, Totals(), note)
