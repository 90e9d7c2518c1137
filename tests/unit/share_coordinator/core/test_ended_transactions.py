from share_coordinator.core.ended_transactions import (
    KEPT_MS,
    NOTICE_PARTITIONS_MAX,
    SETTLED_MS,
    EndedTransactions,
)
from tidemark.codec.share_transaction_records import (
    EndNotice,
    TransactionEndRecord,
    TransactionEndValue,
)
from tidemark.model.ids import ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import SharePartitionKey, TransactionKey

ONE = ProducerId(1)


def key(epoch: int, producer_id: ProducerId = ONE) -> TransactionKey:
    return TransactionKey(producer_id, ProducerEpoch(epoch))


def ended(open_from: int = 5, ended_at: int = 1_000) -> EndedTransactions:
    found = EndedTransactions()
    value = TransactionEndValue(open_from=open_from, commits=True, ended_at=ended_at)
    found.replay(TransactionEndRecord(ONE, value))
    return found


def test_epochs_below_the_end_have_ended_and_the_next_one_is_open() -> None:
    found = ended()
    assert [found.is_ended(key(epoch)) for epoch in (3, 4, 5)] == [True, True, False]
    assert not found.is_ended(key(0, ProducerId(2)))


def test_an_end_is_forgotten_long_after_it() -> None:
    found = ended()
    assert found.expired(1_000 + KEPT_MS - 1) == []
    (tombstone,) = found.expired(1_000 + KEPT_MS)
    found.replay(tombstone)
    assert (len(found), found.record_of(ONE)) == (0, None)


def test_a_copy_of_the_record_says_the_same() -> None:
    copy = EndedTransactions()
    record = ended().record_of(ONE)
    assert record is not None
    copy.replay(record)
    assert copy.facts() == ended().facts()


def test_notices_of_earlier_ends_are_bounded_and_the_newest_are_kept() -> None:
    held = tuple(SharePartitionKey("g", TopicId(b"t" * 16), one) for one in range(100))
    found, count = EndedTransactions(), NOTICE_PARTITIONS_MAX // 100 + 3
    for epoch in range(count):
        notice = EndNotice(ProducerEpoch(epoch), commits=True, ended_at=1, held=held)
        found.replay(
            TransactionEndRecord(
                ONE, found.end_of(ONE, epoch + 1, (notice,), commits=True, wall_ms=1)
            )
        )
    epochs = [one.producer_epoch for one, _ in found.unanswered(1)]
    assert epochs == list(range(2, count))


def test_an_end_that_expires_is_not_written_again() -> None:
    held = (SharePartitionKey("g", TopicId(b"t" * 16), 0),)
    found = EndedTransactions()
    notice = EndNotice(ProducerEpoch(4), commits=True, ended_at=1, held=held)
    end = found.end_of(ONE, 5, (notice,), commits=True, wall_ms=1)
    found.replay(TransactionEndRecord(ONE, end))
    found.notified(key(4))
    assert found.settled(SETTLED_MS) == []
    (record,) = found.settled(1 + SETTLED_MS)
    assert record.value == TransactionEndValue(open_from=5, commits=True, ended_at=1)
    assert found.settled(1 + KEPT_MS) == []
