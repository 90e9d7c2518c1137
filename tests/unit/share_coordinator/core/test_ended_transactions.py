from share_coordinator.core.ended_transactions import KEPT_MS, EndedTransactions
from tidemark.codec.share_transaction_records import TransactionEndRecord, TransactionEndValue
from tidemark.model.ids import ProducerEpoch, ProducerId
from tidemark.model.share_state import TransactionKey

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
