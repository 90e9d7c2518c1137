"""The part of one batch that compaction keeps: its records and its header."""

from typing import Any

import pytest
from broker.storage.batch_filter import Retention, filter_batch, map_key
from tidemark.codec.compression import CODEC_NAMES
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import (
    DELETE_HORIZON_BIT,
    crc_matches,
    read_header,
    set_log_append_time,
)
from tidemark.codec.records import (
    Record,
    assemble_batch,
    build_batch,
    encode_record,
    read_records,
)

NOW = 1_000_000
INPUTS = [
    (500, b"a", b"1", (("h", b"x"),)),
    (900, b"b", None, ()),
    (700, b"c", b"3", ()),
]


def retention(**changes: Any) -> Retention:
    defaults = Retention(
        offsets={},
        clean_end=1_000,
        aborted=False,
        keep_empty=False,
        now_ms=NOW,
        delete_retention_ms=60_000,
    )
    return defaults._replace(**changes)


def filtered(batch: bytes, **changes: Any) -> tuple[bytes, list[Record]]:
    result = filter_batch(memoryview(batch), read_header(batch), retention(**changes)).batch
    assert result is not None
    header = read_header(result)
    assert crc_matches(memoryview(result), header)
    return result, read_records(result, header)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_superseded_records_go_and_the_others_are_as_they_were(codec: int) -> None:
    batch = build_batch(INPUTS, base_offset=10, compression=codec, producer_id=5, base_sequence=9)
    result, records = filtered(batch, offsets={b"a": 11, b"b": 40})
    before, after = read_header(batch), read_header(result)
    assert records == read_records(batch, before)[2:]
    assert (after.base_offset, after.last_offset, after.record_count) == (10, 12, 1)
    assert (after.producer_id, after.base_sequence, after.compression) == (5, 9, codec)
    assert (before.max_timestamp, after.max_timestamp) == (900, 700)


def test_a_batch_that_keeps_all_stays_byte_for_byte() -> None:
    batch = build_batch([INPUTS[0], INPUTS[2]], base_offset=10)
    assert filtered(batch, offsets={b"a": 10, b"c": 11})[0] == batch


def test_records_beyond_the_round_stay() -> None:
    batch = build_batch([INPUTS[0], INPUTS[2]], base_offset=10)
    _, records = filtered(batch, offsets={b"a": 99, b"c": 99}, clean_end=11)
    assert [record.key for record in records] == [b"c"]


def test_a_tombstone_sets_the_horizon_and_no_timestamp_changes() -> None:
    batch = build_batch(INPUTS, base_offset=10)
    result, records = filtered(batch)
    assert records == read_records(batch, read_header(batch))
    header = read_header(result)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + 60_000
    assert header.max_timestamp == 900
    assert filtered(result, now_ms=NOW + 59_999)[0] == result
    later, left = filtered(result, now_ms=NOW + 60_000)
    assert [(record.key, record.timestamp) for record in left] == [(b"a", 500), (b"c", 700)]
    assert read_header(later).max_timestamp == 700


def test_tombstones_that_stay_for_ever_have_the_last_horizon_there_is() -> None:
    batch = build_batch(INPUTS, base_offset=10)
    result, records = filtered(batch, delete_retention_ms=2**63 - 1)
    assert records == read_records(batch, read_header(batch))
    assert read_header(result).base_timestamp == 2**63 - 1
    assert filtered(result, now_ms=NOW + 10**15)[0] == result


def test_log_append_time_stays() -> None:
    batch = bytearray(build_batch(INPUTS, base_offset=10))
    set_log_append_time(batch, 5_000)
    _, records = filtered(bytes(batch), offsets={b"a": 99})
    assert [(record.key, record.timestamp) for record in records] == [(b"b", 5_000), (b"c", 5_000)]


def test_nothing_left_is_nothing_or_an_empty_batch() -> None:
    batch = build_batch(INPUTS, base_offset=10, compression=4, producer_id=5, producer_epoch=1)
    gone = {b"a": 99, b"b": 99, b"c": 99}
    assert (
        filter_batch(memoryview(batch), read_header(batch), retention(offsets=gone)).batch is None
    )
    empty, records = filtered(batch, offsets=gone, keep_empty=True)
    header = read_header(empty)
    assert records == []
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 12, 0)
    assert (header.producer_id, header.producer_epoch, header.compression) == (5, 1, 0)
    assert filtered(empty, keep_empty=True)[0] == empty


def test_aborted_records_go_even_beyond_the_round() -> None:
    batch = build_batch(INPUTS, base_offset=10)
    result = filter_batch(
        memoryview(batch), read_header(batch), retention(aborted=True, clean_end=0)
    )
    assert result.batch is None


def test_records_without_a_key_are_counted_and_go() -> None:
    batch = build_batch([(0, None, b"x", ()), INPUTS[0]])
    result = filter_batch(memoryview(batch), read_header(batch), retention())
    assert (result.records_kept, result.records_without_key) == (1, 1)


def test_markers_stay() -> None:
    marker = build_marker(EndTxnMarker(True, 1), producer_id=5, producer_epoch=1, timestamp=0)
    assert filtered(marker, offsets={b"\x00\x00\x00\x01": 99})[0] == marker


def test_a_batch_that_cannot_be_read_stays_as_it_is_unless_it_was_aborted() -> None:
    header = read_header(build_batch(INPUTS))._replace(attributes=DELETE_HORIZON_BIT)
    broken = assemble_batch(header, b"\x7f")
    view = memoryview(broken)
    assert filter_batch(view, header, retention()) == (broken, header.record_count, 0, False)
    assert filter_batch(view, header, retention(aborted=True)) == (None, 0, 0, False)


@pytest.mark.parametrize(
    ("base_timestamp", "deltas"),
    [
        pytest.param(-(2**62), (2**62, -(2**63)), id="a record's timestamp"),
        pytest.param(2**62, (0, 2**63 - 1), id="and beyond the other end"),
        pytest.param(0, (0, -(2**63)), id="its distance from the horizon"),
    ],
)
def test_a_batch_with_times_beyond_64_bits_stays_as_it_is(
    base_timestamp: int, deltas: tuple[int, int]
) -> None:
    header = read_header(build_batch(INPUTS[:2], base_offset=10))
    records = encode_record(deltas[0], 0, b"a", b"") + encode_record(deltas[1], 1, b"b", None)
    batch = assemble_batch(header._replace(base_timestamp=base_timestamp), records)
    result = filter_batch(memoryview(batch), read_header(batch), retention(offsets={b"a": 40}))
    assert (result.batch, result.is_readable) == (batch, False)


def test_a_long_key_cannot_be_forged() -> None:
    digest = map_key(b"long" * 20)
    assert len(digest) == 32
    assert map_key(digest) != digest
    assert map_key(b"short") == b"short"
    assert len(map_key(bytes(31))) == 31
