from tidemark.cli.txn.rows import holder_row
from tidemark.client.admin.group_types import TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.model.topics import TopicPartition
from tidemark.plans.hanging_transactions import OpenTransaction

ZERO = TopicPartition("t", 0)
NOW_MS = 1_000_000


def test_the_holder_of_the_last_stable_offset_is_shown_with_its_age() -> None:
    producer = ProducerState(7, 0, 1, NOW_MS - 100, 0, 5)
    known = TransactionDescription("x", "Ongoing", 7, 0, 60_000, NOW_MS - 500, (ZERO,))
    found = OpenTransaction(ZERO, producer)
    row = holder_row(found, known, held_since_ms=NOW_MS - 400, now_ms=NOW_MS)
    assert (row["transactional_id"], row["start_offset"]) == ("x", 5)
    assert (row["held_ms"], row["open_ms"], row["idle_ms"]) == (400, 500, 100)
