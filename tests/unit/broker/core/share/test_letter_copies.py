"""Copies of dead letters, as a worker makes them."""

import pytest
from broker.core.share.letter_copies import CopyOrder, copies
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, read_header
from tidemark.codec.records import RecordsError, build_batch, read_records
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import TransactionKey
from tidemark.model.topics import TopicPartition

PRODUCER = TransactionKey(ProducerId(7), ProducerEpoch(3))
ORDER = CopyOrder(
    TopicPartition("jobs", 2),
    "mailers",
    [(Offset(11), Offset(12), 2), (Offset(14), Offset(14), 5)],
    deliveries_max=5,
    has_record=True,
    producer=PRODUCER,
    timestamp=1_000,
    batch_bytes_max=10_000,
)


def stored(first: int = 10, count: int = 5, *, bytes_each: int = 1) -> bytes:
    """A batch with a record at each offset."""
    records = [(5, b"k", b"%d" % number * bytes_each, [("h", b"x")]) for number in range(count)]
    return build_batch(records, base_offset=first)


def test_copies_have_the_record_and_where_it_came_from() -> None:
    (batch,), *others = copies([stored()], ORDER)
    assert others == [3, (), ()]
    first, _, last = read_records(batch, read_header(batch))
    assert (first.timestamp, first.key, first.value) == (1_000, b"k", b"1")
    assert first.headers == (
        ("h", b"x"),
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"11"),
        ("__dlq.errors.group", b"mailers"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert dict(last.headers)["__dlq.errors.message"] == b"Delivery count limit reached."


def test_copies_without_the_record_have_headers_only() -> None:
    (batch,), *_ = copies([stored()], ORDER._replace(has_record=False))
    found = read_records(batch, read_header(batch))
    assert {(one.key, one.value) for one in found} == {(None, None)}
    assert [dict(one.headers)["__dlq.errors.offset"] for one in found] == [b"11", b"12", b"14"]
    assert "h" not in dict(found[0].headers)


def test_batches_are_as_large_as_the_queue_allows_and_count_on() -> None:
    order = ORDER._replace(batch_bytes_max=700, letters=[(Offset(0), Offset(9), 1)])
    batches, count, *_ = copies([stored(0), stored(5)], order)
    headers = [read_header(batch) for batch in batches]
    assert (len(batches) > 1, count) == (True, 10)
    assert max(map(len, batches)) <= 700
    sequences = [header.base_sequence for header in headers]
    assert sequences == [
        sum(one.record_count for one in headers[:at]) for at in range(len(headers))
    ]
    assert {one.attributes & TRANSACTIONAL_BIT for one in headers} == {TRANSACTIONAL_BIT}
    assert {(one.producer_id, one.producer_epoch) for one in headers} == {PRODUCER}


def test_a_record_that_is_too_large_is_named_and_left_out() -> None:
    order = ORDER._replace(batch_bytes_max=700, letters=[(Offset(0), Offset(9), 1)])
    found = copies([stored(0), stored(5, 1, bytes_each=500), stored(6, 4)], order)
    assert (found.records, found.too_large) == (9, (5,))


def test_offsets_without_a_record_have_no_copy() -> None:
    assert copies([], ORDER) == ((), 0, (), ())


def test_damaged_records_are_named_and_hold_up_no_others() -> None:
    batch = bytearray(stored(10, 3))
    batch[-3:] = b"\xff\xff\xff"
    with pytest.raises(RecordsError):
        read_records(batch, read_header(batch))
    found = copies([bytes(batch), stored(13)], ORDER)
    assert (found.records, found.too_large, found.unreadable) == (1, (), (11, 12))
