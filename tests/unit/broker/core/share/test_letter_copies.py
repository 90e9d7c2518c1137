"""Copies of dead letters, as a worker makes them."""

import tracemalloc
from collections.abc import Sequence

import pytest
from broker.core.share import letter_copies
from broker.core.share.letter_copies import Copies, CopyOrder, copies
from tidemark.codec.record_batch import TRANSACTIONAL_BIT, read_header
from tidemark.codec.records import (
    Headers,
    RecordInput,
    RecordsError,
    assemble_batch,
    build_batch,
    encode_record,
    read_records,
)
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
    assert others == [3, (), (), None]
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
    assert copies([], ORDER) == ((), 0, (), (), None)


def test_damaged_records_are_named_and_hold_up_no_others() -> None:
    batch = bytearray(stored(10, 3))
    batch[-3:] = b"\xff\xff\xff"
    with pytest.raises(RecordsError):
        read_records(batch, read_header(batch))
    found = copies([bytes(batch), stored(13)], ORDER)
    assert (found.records, found.too_large, found.unreadable) == (2, (), (12,))
    batch[-20:] = b"\xff" * 20
    found = copies([bytes(batch), stored(13)], ORDER)
    assert (found.records, found.too_large, found.unreadable) == (1, (), (11, 12)), "no records"


MANY_HEADERS: Headers = [("", None)] * 200_000
"""They take 0.4 MB in a batch, a few bytes compressed, and some 20 MB as objects."""


def peak_of(stored: Sequence[bytes], order: CopyOrder) -> tuple[Copies, int]:
    """The copies, and the most memory that was used at a time."""
    tracemalloc.start()
    try:
        found = copies(stored, order)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("has_record", [False, True])
def test_a_batch_costs_no_memory_for_records_that_are_no_letters(*, has_record: bool) -> None:
    records: list[RecordInput] = [
        (5, b"k", b"v", [("h", b"x")]),
        (5, None, None, MANY_HEADERS),
    ]
    batch = build_batch(records, base_offset=10, compression=4)
    order = ORDER._replace(letters=[(Offset(10), Offset(10), 1)], has_record=has_record)
    found, peak = peak_of([batch], order)
    assert found.records == 1
    assert peak < 4 * 1024 * 1024


def test_a_letter_that_is_too_large_is_not_read() -> None:
    batch = build_batch([(5, None, None, MANY_HEADERS)], base_offset=11, compression=4)
    found, peak = peak_of([batch], ORDER)
    assert (found.records, found.too_large) == (0, (11,))
    assert peak < 4 * 1024 * 1024
    without = copies([batch], ORDER._replace(has_record=False))
    assert (without.records, without.too_large) == (1, ()), "its copy is small"


def test_copies_end_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_copies, "COPIES_BYTES_MAX", 1_000)
    batches = [stored(0), stored(5)]
    order = ORDER._replace(letters=[(Offset(0), Offset(9), 1)])
    offsets = []
    while order.letters:
        found = copies(batches, order)
        for batch in found.batches:
            offsets += [
                int(dict(one.headers)["__dlq.errors.offset"] or b"")
                for one in read_records(batch, read_header(batch))
            ]
        order = order._replace(letters=[] if found.end is None else [(found.end, Offset(9), 1)])
    assert offsets == list(range(10))


def test_a_letter_larger_than_all_copies_of_a_transaction_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letter_copies, "COPIES_BYTES_MAX", 1)
    found = copies([stored()], ORDER)
    assert (found.records, found.end) == (1, 12)


def test_records_whose_offsets_do_not_ascend_are_damaged() -> None:
    """What is left for the next transaction would not be known by its first offset."""
    record = encode_record(0, 1, b"k", b"v")
    header = read_header(build_batch([(5, b"k", b"v", ())] * 2, base_offset=11))
    found = copies([assemble_batch(header, record + record)], ORDER)
    assert (found.records, found.unreadable) == (0, (11, 12))
