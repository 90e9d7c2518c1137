"""Encoded columns against ``tidemark.codec.records``, their plain twin."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.client.producer.batches import EncodedRecords
from tidemark.codec.murmur2 import partition_for_key
from tidemark.codec.record_batch import MAGIC_V2, BatchHeader, read_header
from tidemark.codec.records import Record, assemble_batch, encode_record, read_records
from tidemark.codec.varint import INT64_MAX, INT64_MIN, encode_varint
from tidemark.model.topics import TopicPartition
from tidemark_spark.sink.encode import SPREAD_BYTES, Columns, Encoder, Limits, varints, zigzag
from tidemark_spark.sink.errors import RowError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
MILLIS = pa.timestamp("us", "UTC")
PAYLOAD = st.none() | st.binary(max_size=200)
HEADER = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))
ROW = st.tuples(
    PAYLOAD,
    PAYLOAD,
    st.integers(0, 2**41),
    st.none() | st.lists(HEADER, max_size=3),
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 2),
)


def columns(rows: list[Any]) -> Columns:
    """Of tuples as ROW makes them."""
    key, value, stamp, headers, topic, partition = zip(*rows, strict=True)
    return Columns(
        pa.array(topic, pa.string()),
        pa.array(partition, pa.int32()),
        pa.array(key, pa.binary()),
        pa.array(value, pa.binary()),
        pa.array([each * 1_000 for each in stamp], MILLIS),
        pa.array(
            [
                None if row is None else [{"key": name, "value": content} for name, content in row]
                for row in headers
            ],
            HEADERS,
        ),
    )


def encoder(batch_bytes: int = 10_000, record_bytes_max: int = 1_000_000) -> Encoder:
    limits = Limits(batch_bytes, record_bytes_max)
    return Encoder(lambda topic: 3, limits=limits, now_ms=lambda: 77)


def plain(value: pa.Array, **given: Any) -> Columns:
    fields: dict[str, Any] = {
        "topic": "t",
        "partition": None,
        "key": None,
        "timestamp": None,
        "headers": None,
    }
    return Columns(value=value, **(fields | given))


def decoded(batch: EncodedRecords) -> list[Record]:
    """What a consumer would see."""
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=0,
        magic=MAGIC_V2,
        crc=0,
        attributes=0,
        last_offset_delta=batch.count - 1,
        base_timestamp=batch.first_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=batch.count,
    )
    whole = assemble_batch(header, batch.records)
    return read_records(whole, read_header(whole))


@settings(max_examples=80, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30), st.sampled_from([100, 1_000, 100_000]))
def test_what_is_encoded_is_read_again_in_order(rows: list[Any], batch_bytes: int) -> None:
    got: dict[TopicPartition, list[Any]] = {}
    for batch in encoder(batch_bytes).encode(columns(rows)):
        got.setdefault(batch.partition, []).extend(tuple(each)[1:] for each in decoded(batch))
    wanted: dict[TopicPartition, list[Any]] = {}
    for key, value, stamp, headers, topic, partition in rows:
        if partition is None and key is None:
            continue  # anywhere
        place = TopicPartition(topic, partition_for_key(key, 3) if partition is None else partition)
        wanted.setdefault(place, []).append((stamp, key, value, tuple(headers or ())))
    anywhere = [row for row in rows if row[0] is None and row[5] is None]
    free = [(row[2], None, row[1], tuple(row[3] or ())) for row in anywhere]
    for place, records in got.items():
        in_order = iter(records)
        assert all(any(record == each for each in in_order) for record in wanted.get(place, []))
    all_wanted = sorted(map(repr, [*free, *(each for few in wanted.values() for each in few)]))
    assert sorted(repr(each) for few in got.values() for each in few) == all_wanted


@settings(max_examples=50)
@given(st.lists(st.tuples(PAYLOAD, PAYLOAD, st.integers(0, 2**41)), min_size=1, max_size=20))
def test_the_bytes_are_the_plain_encoders(rows: list[Any]) -> None:
    table = columns([(*row, None, "a", 0) for row in rows])._replace(headers=None)
    (batch,) = encoder(10_000_000).encode(table)
    first = rows[0][2]
    assert bytes(batch.records) == b"".join(
        encode_record(stamp - first, number, key, value)
        for number, (key, value, stamp) in enumerate(rows)
    )


@given(st.lists(st.integers(INT64_MIN, INT64_MAX), min_size=1, max_size=10))
def test_varints_are_the_plain_ones(numbers: list[int]) -> None:
    array = pa.array(numbers, pa.int64()).to_numpy()
    assert varints([array]).to_pylist() == [encode_varint(number) for number in numbers]


def test_zigzag_keeps_small_numbers_small() -> None:
    assert zigzag(pa.array([0, -1, 1, -2]).to_numpy()).tolist() == [0, 1, 2, 3]


def test_nothing_gives_nothing() -> None:
    assert encoder().encode(plain(pa.array([], pa.binary()))) == []


def test_rows_without_key_fill_one_partition_after_the_other() -> None:
    value = pa.array([bytes(SPREAD_BYTES // 4)] * 24, pa.binary())
    batches = encoder(10_000_000).encode(plain(value))
    assert {batch.partition.partition for batch in batches} == {0, 1, 2}
    assert max(batch.count for batch in batches) <= 12


def test_the_spread_goes_on_with_the_next_piece() -> None:
    one = encoder()
    value = pa.array([bytes(SPREAD_BYTES)], pa.binary())
    seen = [one.encode(plain(value))[0].partition.partition for _ in range(4)]
    assert len(set(seen)) == 3


def test_rows_without_timestamp_get_the_present() -> None:
    stamps = pa.array([None, 5_000_000, -1_000], MILLIS)
    batches = encoder().encode(plain(pa.array([b"a", b"b", b"c"]), timestamp=stamps))
    assert [record.timestamp for batch in batches for record in decoded(batch)] == [77, 5_000, 77]


def test_a_batch_is_not_filled_beyond_its_bound() -> None:
    value = pa.array([bytes(300)] * 20, pa.binary())
    batches = encoder(1_000).encode(plain(value, partition=pa.array([1] * 20, pa.int32())))
    assert max(len(batch.records) for batch in batches) <= 1_000
    assert sum(batch.count for batch in batches) == 20


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": pa.array([None], pa.string())}, "topic is null"),
        (
            {"partition": pa.array([3], pa.int32())},
            "partition 3 of topic t, which has partitions 0 to 2",
        ),
        ({"partition": pa.array([-1], pa.int32())}, "partition -1 of topic t"),
        ({"timestamp": pa.array([-2_000], MILLIS)}, "is 2 ms before 1970"),
        (
            {"headers": pa.array([[{"key": None, "value": b""}]], HEADERS)},
            "the key of a header is null",
        ),
    ],
)
def test_rows_that_cannot_be_records_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=message):
        encoder().encode(plain(pa.array([b"x"]), **given))


def test_a_row_beyond_a_request_is_named_with_its_place() -> None:
    with pytest.raises(
        RowError, match=r"a row for t-0 makes a record of up to 1036 bytes; the limit is 1000"
    ):
        encoder(record_bytes_max=1_000).encode(plain(pa.array([b"", bytes(1_000)])))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_texts_are_taken_as_their_bytes(kind: pa.DataType) -> None:
    from tidemark_spark.sink.encode import as_binary

    assert as_binary(pa.array(["ä", None], kind)).to_pylist() == ["ä".encode(), None]
