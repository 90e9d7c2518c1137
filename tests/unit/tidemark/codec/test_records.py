"""Records in a batch: round trips through every codec, hostile payloads, lookup by timestamp."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.compression import CODEC_NAMES, GZIP, ZSTD
from tidemark.codec.record_batch import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_matches,
    read_header,
    set_log_append_time,
)
from tidemark.codec.records import (
    BatchBuilder,
    Record,
    RecordsError,
    assemble_batch,
    build_batch,
    encode_record,
    first_at_or_after,
    read_records,
    rebase_record,
    record_bytes_max,
    records_payload,
    scan_chunks,
    scan_records,
    sequence_after,
)
from tidemark.codec.varint import encode_varint

Input = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

nullable = st.none() | st.binary(max_size=12) | st.integers(0, 9_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
timestamps = st.integers(0, 2**42) | st.integers(-1, 10)
inputs = st.lists(
    st.tuples(timestamps, nullable, nullable, headers.map(tuple)), min_size=1, max_size=8
)


def _read(batch: bytes) -> list[Record]:
    header = read_header(batch)
    assert crc_matches(memoryview(batch), header)
    assert header.size_bytes == len(batch)
    return read_records(memoryview(batch), header)


@pytest.mark.feature("A12")
@settings(max_examples=25, deadline=None)
@given(inputs, st.sampled_from(list(CODEC_NAMES)), st.integers(0, 2**62))
def test_what_was_built_is_read(records: list[Input], codec: int, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    assert _read(batch) == [
        Record(base_offset + index, timestamp, key, value, tuple(names))
        for index, (timestamp, key, value, names) in enumerate(records)
    ]
    header = read_header(batch)
    assert header.record_count == len(records) == header.last_offset_delta + 1
    assert header.base_timestamp == records[0][0]
    assert header.max_timestamp == max(record[0] for record in records)


@settings(max_examples=25, deadline=None)
@given(inputs)
def test_spans_say_what_records_say(records: list[Input]) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    payload = records_payload(batch, header)
    spans = list(scan_records(payload, header.record_count))
    assert [(s.offset_delta, s.key, s.has_value) for s in spans] == [
        (r.offset, r.key, r.value is not None) for r in _read(batch)
    ]
    assert b"".join(payload[s.start : s.end] for s in spans) == payload


@settings(max_examples=60, deadline=None)
@given(inputs, st.lists(st.integers(1, 40), min_size=1))
def test_a_walk_over_pieces_sees_what_a_walk_over_the_whole_sees(
    records: list[Input], sizes: list[int]
) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    payload = records_payload(batch, header)
    pieces, start = [], 0
    for size in itertools.cycle(sizes):
        if start >= len(payload):
            break
        pieces.append(payload[start : start + size])
        start += size
    whole = list(scan_records(payload, header.record_count))
    assert list(scan_chunks(pieces, header.record_count)) == whole


def test_a_walk_holds_a_piece_and_never_a_value_that_it_passes_over() -> None:
    pieces = [encode_record(0, 0, b"k", bytes(1_000))[:-1_000], *[bytes(100)] * 10]
    walk = scan_chunks(iter(pieces), 1)
    assert next(walk).key == b"k"  # the value has not come yet
    with pytest.raises(StopIteration):
        next(walk)
    with pytest.raises(RecordsError):
        list(scan_chunks(pieces[:-1], 1))


@settings(max_examples=25, deadline=None)
@given(inputs, st.integers(-(2**40), 2**40))
def test_a_record_moves_to_another_base_timestamp(records: list[Input], shift: int) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    payload = records_payload(batch, header)
    spans = scan_records(payload, header.record_count)
    moved = b"".join(rebase_record(payload, span, shift) for span in spans)
    later = header._replace(base_timestamp=header.base_timestamp - shift)
    assert _read(assemble_batch(later, moved)) == _read(batch)


@settings(max_examples=25, deadline=None)
@given(inputs, st.integers(0, 2**20))
def test_a_record_moves_to_another_base_offset(records: list[Input], shift: int) -> None:
    batch = build_batch(records)
    header = read_header(batch)
    payload = records_payload(batch, header)
    spans = scan_records(payload, header.record_count)
    moved = b"".join(rebase_record(payload, span, 0, shift) for span in spans)
    again = scan_records(moved, header.record_count)
    assert [one.offset_delta for one in again] == [shift + at for at in range(len(records))]


@settings(max_examples=25, deadline=None)
@given(st.tuples(timestamps, nullable, nullable, headers))
def test_the_bound_of_a_records_size_holds(record: Input) -> None:
    timestamp, key, value, names = record
    size = len(encode_record(timestamp - 2**41, 2**31 - 1, key, value, names))
    assert size <= record_bytes_max(key, value, names)


def test_the_builder_says_how_large_the_batch_is_uncompressed() -> None:
    builder = BatchBuilder()
    assert builder.size_bytes == HEADER_BYTES
    for number in range(3_000):
        builder.append(number, b"key", b"value" * number)
    assert builder.count == 3_000
    assert builder.size_bytes == len(builder.build()) == len(builder.build(base_sequence=7))


def test_producer_fields_are_in_the_header() -> None:
    batch = build_batch(
        [(1, None, b"v", ())],
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        leader_epoch=3,
        attributes_extra=0x10,
    )
    header = read_header(batch)
    assert header[9:12] == (2**40, 7, 2**31 - 1)
    assert header.partition_leader_epoch == 3
    assert header.is_transactional


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = bytearray(build_batch([(5, b"a", b"", ()), (9, b"b", b"", ())]))
    set_log_append_time(batch, 1_000)
    assert [record.timestamp for record in _read(bytes(batch))] == [1_000, 1_000]
    assert first_at_or_after(batch, read_header(batch), 1_000) == (0, 1_000)
    assert first_at_or_after(batch, read_header(batch), 1_001) is None


@settings(max_examples=25, deadline=None)
@given(inputs, timestamps, st.integers(48, 60))
def test_lookup_by_timestamp_agrees_with_its_plain_twin(
    records: list[Input], timestamp: int, first: int
) -> None:
    batch = build_batch(records, base_offset=50)
    readable = [(r.offset, r.timestamp) for r in _read(batch) if r.offset >= first]
    plain = next((one for one in readable if one[1] >= timestamp), None)
    assert first_at_or_after(batch, read_header(batch), timestamp, first) == plain


def test_a_lookup_stops_at_offsets_that_do_not_ascend() -> None:
    batch = _batch_of(encode_record(0, 0, None, None) * 1_000, 1_000)
    with pytest.raises(RecordsError, match="offset delta 0 follows 0"):
        first_at_or_after(batch, read_header(batch), 5)


def test_a_lookup_passes_by_a_timestamp_beyond_64_bits() -> None:
    payload = encode_record(2**63 - 1, 0, None, None) + encode_record(1, 1, None, None)
    header = read_header(_batch_of(payload, 2))._replace(base_timestamp=5, max_timestamp=6)
    batch = assemble_batch(header, payload)
    assert first_at_or_after(batch, read_header(batch), 5) == (1, 6)


def _batch_of(payload: bytes, count: int) -> bytes:
    header = BatchHeader(0, 0, 0, 2, 0, 0, max(count - 1, 0), 0, 0, -1, -1, -1, count)
    return assemble_batch(header, payload)


GOOD = encode_record(0, 0, b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (GOOD, 2),
        (GOOD, 0),
        (GOOD + b"\x00", 1),
        (GOOD[:-1], 1),
        (b"\x80" * 11, 1),
        (b"\x0c\x00\x00\x00\x05\x01\x00", 1),  # key length -3
        (b"\x0c\x00\x00\x00\x01\x05\x00", 1),  # value length -3
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # header count -1
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),  # null header name
        (b"\x0c\x00\x00\x00\x64\x01\x00", 1),  # key beyond the record
        (b"\x01\x00\x00\x00\x01\x01\x00", 1),  # record length -1
        (b"\x0e\x00\x00\x00\x01\x01\x00", 1),  # record length beyond the data
        (GOOD, 2**31 - 1),
    ],
)
def test_malformed_records_are_refused(payload: bytes, count: int) -> None:
    batch = _batch_of(payload, count)
    with pytest.raises(RecordsError):
        read_records(batch, read_header(batch))


def test_a_header_name_that_is_not_utf8_is_read_with_replacements() -> None:
    batch = _batch_of(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1)
    assert read_records(batch, read_header(batch))[0].headers == (("\ufffd", None),)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(-1, 2**31 - 1))
def test_hostile_records_never_do_anything_else(payload: bytes, count: int) -> None:
    batch = _batch_of(payload, count)
    for read in (
        lambda: read_records(batch, read_header(batch)),
        lambda: list(scan_records(payload, count)),
        lambda: list(scan_chunks([payload[:7], payload[7:]] if payload[7:] else [], count)),
    ):
        with contextlib.suppress(RecordsError):
            read()


def test_a_bomb_in_a_batch_is_refused() -> None:
    batch = build_batch([(0, None, bytes(1_000_000), ())], compression=GZIP)
    with pytest.raises(RecordsError, match="more than 1000 bytes"):
        read_records(batch, read_header(batch), bytes_max=1_000)


def with_headers(*counts: int, claims: int | None = None) -> bytes:
    """A batch of records with so many empty headers, which compresses to next to nothing."""
    records = []
    for number, count in enumerate(counts):
        body = b"\x00\x00" + encode_varint(number) + b"\x01\x01"
        body += encode_varint(count if claims is None else claims) + bytes(2 * count)
        records.append(encode_varint(len(body)) + body)
    header = read_header(_batch_of(b"", len(counts)))
    return assemble_batch(header._replace(attributes=ZSTD), b"".join(records))


def test_headers_are_bounded_by_their_record() -> None:
    """The bytes of the next records are not read for them."""
    batch = with_headers(3, 1_000, claims=900)
    with pytest.raises(RecordsError, match="900 headers in 6 bytes"):
        read_records(batch, read_header(batch))


@pytest.mark.parametrize("counts", [(500, 500), (999, 1)])
def test_headers_are_bounded_by_batch(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...]
) -> None:
    """Each is an object: a few hundred kilobytes of a batch would take gigabytes of memory."""
    monkeypatch.setattr("tidemark.codec.records.HEADERS_MAX", 1_000)
    batch = with_headers(*counts)
    records = read_records(batch, read_header(batch))
    assert tuple(len(record.headers) for record in records) == counts
    batch = with_headers(*counts, 1)
    with pytest.raises(RecordsError, match="more than 1000 headers"):
        read_records(batch, read_header(batch))


def test_sequences_wrap_to_zero() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    assert sequence_after(2**31 - 2, 5) == 3
    assert sequence_after(0, 5) == 5


def test_timestamp_type_is_a_bit_of_the_attributes() -> None:
    batch = build_batch([(5, None, b"", ())], attributes_extra=TIMESTAMP_TYPE_BIT)
    assert read_header(batch).is_log_append_time
