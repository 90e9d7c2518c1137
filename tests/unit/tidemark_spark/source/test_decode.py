from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.client.consumer.fetched_chunk import FetchedChunk, ReadOptions
from tidemark.client.consumer.range_reader import OffsetRange, RawBatch, raw_batches
from tidemark.codec.record_batch import TIMESTAMP_TYPE_BIT, read_header
from tidemark.codec.records import RecordInput, RecordsError, build_batch, read_records
from tidemark.model.topics import TopicPartition
from tidemark_spark.source.decode import LANES_MIN, decode, grouped
from tidemark_spark.source.schema import HEADERS_FIELD, SOURCE_FIELDS

PARTITION = TopicPartition("orders", 3)
SCHEMA = pa.schema([*SOURCE_FIELDS, HEADERS_FIELD])
END = 2**62

texts = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=200))
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3).map(tuple)
records = st.tuples(st.integers(0, 2**42), texts, texts, headers)
batches_of_records = st.lists(st.lists(records, min_size=1, max_size=6), min_size=1, max_size=5)


def raw(records: Sequence[RecordInput], base_offset: int = 0, extra: int = 0) -> RawBatch:
    batch = build_batch(records, base_offset=base_offset, attributes_extra=extra)
    header = read_header(batch)
    return RawBatch(header, batch[61:], 0, END)


def rows_of(batches: Sequence[RawBatch], start: int = 0, end: int = END) -> list[dict[str, object]]:
    asked = [batch._replace(start=start, end=end) for batch in batches]
    rows: list[dict[str, object]] = decode(asked, PARTITION, SCHEMA).to_pylist()
    return rows


def plain(batches: Sequence[RawBatch]) -> list[tuple[object, ...]]:
    """Record by record, as consumers decode."""
    found: list[tuple[object, ...]] = []
    for batch in batches:
        whole = bytes(61) + batch.records
        header = batch.header._replace(attributes=batch.header.attributes & ~7)
        found += [
            (one.offset, one.timestamp, one.key, one.value, list(one.headers) or None)
            for one in read_records(whole, header)
        ]
    return found


def seen(row: dict[str, object]) -> tuple[object, ...]:
    pairs = row["headers"]
    listed = [(one["key"], one["value"]) for one in pairs] if isinstance(pairs, list) else None
    stamp = row["timestamp"]
    ms = round(stamp.timestamp() * 1_000)  # type: ignore[attr-defined]
    return row["offset"], ms, row["key"], row["value"], listed


@settings(max_examples=60)
@given(batches_of_records, st.integers(1, LANES_MIN))
def test_columns_are_what_the_plain_decoder_reads(
    batches: list[list[RecordInput]], repeated: int
) -> None:
    raws = [raw(one, 10 * number) for number, one in enumerate(batches * repeated)]
    assert [seen(row) for row in rows_of(raws)] == plain(raws)


@settings(max_examples=30)
@given(batches_of_records, st.integers(0, 30), st.integers(0, 30))
def test_only_the_range_is_there(batches: list[list[RecordInput]], start: int, end: int) -> None:
    raws = [raw(one, 7 * number) for number, one in enumerate(batches)]
    offsets = [row["offset"] for row in rows_of(raws, start, end)]
    assert offsets == [one[0] for one in plain(raws) if start <= int(str(one[0])) < end]


@settings(max_examples=100)
@given(
    st.lists(records, min_size=1, max_size=5),
    st.integers(0, 10**6),
    st.integers(0, 255),
    st.sampled_from([1, 30]),
)
def test_damaged_bytes_are_an_error_or_other_rows_but_never_a_crash(
    one: list[RecordInput], place: int, byte: int, copies: int
) -> None:
    batch = raw(one)
    damaged = bytearray(batch.records)
    damaged[place % len(damaged)] = byte
    try:
        rows = decode([batch._replace(records=bytes(damaged))] * copies, PARTITION, SCHEMA)
    except RecordsError:
        return
    rows.validate(full=True)


@given(st.lists(records, min_size=1, max_size=5), st.integers(1, 40))
def test_cut_bytes_are_an_error(one: list[RecordInput], missing: int) -> None:
    batch = raw(one)
    cut = batch._replace(records=batch.records[: -min(missing, len(batch.records))])
    with pytest.raises(RecordsError):
        decode([cut], PARTITION, SCHEMA)


def test_a_record_longer_than_two_bytes_can_say() -> None:
    value = bytes(20_000)
    batches = [raw([(0, None, value, ()), (0, None, b"x", ())])]
    assert [row["value"] for row in rows_of(batches)] == [value, b"x"]


@pytest.mark.parametrize("ms", [-(2**63), -(2**62), -1, 2**62, 2**63 - 1])
def test_a_timestamp_beyond_what_spark_holds_is_cut_to_it(ms: int) -> None:
    schema = pa.schema([SCHEMA.field("timestamp")])
    (us,) = decode([raw([(ms, None, b"v", ())])], PARTITION, schema).column(0).cast(pa.int64())
    bound = (2**63 - 1) // 1_000
    assert us.as_py() == 1_000 * max(-bound, min(ms, bound))


def test_the_brokers_time_is_every_records() -> None:
    batch = raw([(1_000, None, b"a", ()), (9_000, None, b"b", ())], extra=TIMESTAMP_TYPE_BIT)
    rows = rows_of([batch])
    assert [seen(row)[1] for row in rows] == [9_000, 9_000]
    assert [row["timestampType"] for row in rows] == [1, 1]


def test_columns_come_in_the_order_asked() -> None:
    schema = pa.schema([pa.field("offset", pa.int64()), pa.field("topic", pa.string())])
    rows = decode([raw([(0, None, b"v", ())], 5)], PARTITION, schema)
    assert rows.to_pylist() == [{"offset": 5, "topic": "orders"}]


def test_a_header_name_that_is_no_text_is_replaced() -> None:
    batch = raw([(0, None, b"v", (("name", b"1"),))])
    damaged = batch._replace(records=batch.records.replace(b"name", b"n\xffme"))
    assert rows_of([damaged])[0]["headers"] == [{"key": "n�me", "value": b"1"}]


def test_groups_are_whole_batches() -> None:
    batches = [raw([(0, None, b"v", ())] * count) for count in (2, 2, 2, 9, 1)]
    groups = grouped(batches, records_max=4)
    assert [[one.header.record_count for one in group] for group in groups] == [[2, 2], [2, 9], [1]]


def test_a_large_batch_ends_a_group() -> None:
    batches = [raw([(0, None, bytes(500), ())]) for _ in range(3)]
    assert [len(group) for group in grouped(batches, records_max=100, bytes_max=600)] == [2, 1]


def test_raw_batches_of_a_fetch_are_those_within_the_range() -> None:
    stored = b"".join(
        build_batch([(0, None, b"v", ())] * 2, base_offset=base, compression=4)
        for base in (0, 2, 4, 6)
    )
    chunk = FetchedChunk(PARTITION, memoryview(stored), ReadOptions())
    found = raw_batches(OffsetRange(PARTITION, 3, 5), chunk)
    assert [one.header.base_offset for one in found] == [2, 4]
