"""Kafka record batches to Arrow columns, with NumPy over many batches at once.

A record (tidemark.codec.records) is a sequence of varints and byte strings, and the position of a
field depends on the fields before it. So one pass finds the starts of the records; then each field
is decoded for all records together:

    length · attributes · timestamp_delta · offset_delta · key length · key · value length · ...
    ^ starts                                                            ^ at, of this length

Arrow copies keys and values into its arrays without creating a Python object for each.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from tidemark.client.consumer.range_reader import RawBatch
from tidemark.codec.records import RecordsError
from tidemark.model.topics import TopicPartition

Numbers = Any
"""A NumPy array of int64."""

RECORDS_MAX: Final = 65_536
BYTES_MAX: Final = 16 * 1024 * 1024
"""Limits of what is decoded together, unless a single batch is larger. They are large so that the
fixed cost of a NumPy call is spread over many records.
"""
LANES_MIN: Final = 24
"""From this number of batches on, finding record starts in all of them in parallel is faster than
one batch after the other.
"""
_VARINT_BYTES_MAX: Final = 10
_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80
_PAIRS: Final = np.arange(1 << 16)
_LOW: Final = _PAIRS & _SEVEN_BITS
_HIGH: Final = _PAIRS >> 8
_RAW: Final = np.where(_PAIRS & _MORE, _LOW | (_HIGH & _SEVEN_BITS) << 7, _LOW)
_OF_PAIR: Final = (_RAW >> 1) ^ -(_RAW & 1)
"""Value of a varint by its first two bytes (little-endian)."""
_SIZE_IN_PAIR: Final = np.where(_PAIRS & _MORE, np.where(_HIGH & _MORE, 0, 2), 1).astype(np.uint8)
"""Number of these bytes that the varint takes; 0 if it is longer, and its value is not valid."""
_US_PER_MS: Final = 1_000
_MS_MAX: Final = np.int64((2**63 - 1) // _US_PER_MS)
"""Bound of what Spark's timestamps hold, in the year 294247; what is beyond is cut to it."""
_LOG_APPEND_TIME: Final = 1
"""timestampType, as in Spark's Kafka source; 0 is the producer's."""


class Span(NamedTuple):
    """Positions and lengths of byte strings in a buffer, one for each record; -1 for null."""

    at: Numbers
    length: Numbers


class Payload(NamedTuple):
    """Encoded records of several batches, one after the other, in three views.

    One byte is appended, so that every byte of a record has a successor.
    """

    buffer: bytes
    octets: Numbers
    pairs: Numbers
    """The two bytes at each position, as a little-endian number."""

    @classmethod
    def of(cls, batches: Sequence[RawBatch]) -> "Payload":
        """Concatenate the records of the batches."""
        buffer = b"".join([*(batch.records for batch in batches), b"\0"])
        pairs = np.ndarray((len(buffer) - 1,), "<u2", buffer, strides=(1,))
        return cls(buffer, np.frombuffer(buffer, np.uint8), pairs)


class Columns(NamedTuple):
    """Fields of many records. ``headers_at`` is the position of each record's header count."""

    offset: Numbers
    timestamp_ms: Numbers
    timestamp_type: Numbers
    key: Span
    value: Span
    headers_at: Numbers


def grouped(
    batches: Iterable[RawBatch], *, records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[RawBatch]]:
    """Group batches that are decoded together. The last batch of a group may exceed the limits."""
    group: list[RawBatch] = []
    count = size_bytes = 0
    for batch in batches:
        group.append(batch)
        count += batch.header.record_count
        size_bytes += len(batch.records)
        if count >= records_max or size_bytes >= bytes_max:
            yield group
            group, count, size_bytes = [], 0, 0
    if group:
        yield group


def decode(
    batches: Sequence[RawBatch], partition: TopicPartition, schema: pa.Schema
) -> pa.RecordBatch:
    """Decode the requested records of the batches into the columns of ``schema``.

    Raises RecordsError if the bytes are not records.
    """
    payload = Payload.of(batches)
    columns = read_columns(batches, payload)
    if any(batch.is_cut for batch in batches):
        start, end = _repeated(batches, [(each.start, each.end) for each in batches])
        inside = (columns.offset >= start) & (columns.offset < end)
        columns = _selected(columns, np.flatnonzero(inside))
    makers = _Makers(payload, columns, partition)
    arrays = [makers.column(field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_columns(batches: Sequence[RawBatch], payload: Payload) -> Columns:
    """Decode the fields of every record. Raises RecordsError."""
    try:
        return _read_columns(batches, payload)
    except (IndexError, OverflowError) as problem:
        raise RecordsError(f"malformed record: {problem}") from None


def _read_columns(batches: Sequence[RawBatch], data: Payload) -> Columns:
    starts = record_starts(batches, data)
    sizes, at = varints(data, starts)
    ends = at + sizes
    timestamp_delta, at = varints(data, at + 1)  # after the attributes, which are unused
    offset_delta, at = varints(data, at)
    key, at = _byte_strings(data, at, ends)
    value, at = _byte_strings(data, at, ends)
    if (at >= ends).any():
        raise RecordsError("malformed record: it ends before its header count")
    base_offset, base_timestamp, max_timestamp, appended = _repeated(
        batches,
        [
            (
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.is_log_append_time,
            )
            for header, *_ in batches
        ],
    )
    return Columns(
        base_offset + offset_delta,
        np.where(appended, max_timestamp, base_timestamp + timestamp_delta),
        np.where(appended, np.int32(_LOG_APPEND_TIME), np.int32(0)),
        key,
        value,
        at,
    )


def _repeated(batches: Sequence[RawBatch], facts: Sequence[tuple[int, ...]]) -> list[Numbers]:
    """Return facts about batches as columns, repeated for each record of a batch."""
    counts = [batch.header.record_count for batch in batches]
    return [np.repeat(column, counts) for column in np.array(facts, np.int64).T]


# -- starts of records


def record_starts(batches: Sequence[RawBatch], payload: Payload) -> Numbers:
    """Return the position of each record's length.

    Raises RecordsError if the records of a batch do not end where the batch ends.
    """
    counts = np.array([batch.header.record_count for batch in batches], np.int64)
    ends = np.cumsum(np.array([len(batch.records) for batch in batches], np.int64))
    if (counts < 0).any():
        raise RecordsError("a batch has a negative number of records")
    if len(batches) < LANES_MIN:
        starts, reached = _starts_one_by_one(counts.tolist(), payload.buffer)
    else:
        starts, reached = _starts_in_step(counts, ends, payload)
    if not np.array_equal(reached, ends):
        raise RecordsError("the records of a batch do not end where the batch does")
    return starts


def _starts_one_by_one(counts: Sequence[int], payload: bytes) -> tuple[Numbers, Numbers]:
    starts: list[int] = []
    reached: list[int] = []
    add = starts.append
    at = 0
    for count in counts:
        for _ in range(count):
            add(at)
            first = payload[at]
            if first < _MORE:
                at += 1 + (first >> 1)
            elif (second := payload[at + 1]) < _MORE:
                at += 2 + ((second << 7 | first & _SEVEN_BITS) >> 1)
            else:
                at = _after_long(payload, at)
        reached.append(at)
    return np.array(starts, np.int64), np.array(reached, np.int64)


def _after_long(payload: bytes, at: int) -> int:
    """Return the position after a record whose length takes three bytes or more."""
    size = shift = 0
    while True:
        byte = payload[at]
        at += 1
        size |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if byte < _MORE:
            return at + (size >> 1)
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise RecordsError("malformed record: its length is not terminated")


def _starts_in_step(counts: Numbers, ends: Numbers, data: Payload) -> tuple[Numbers, Numbers]:
    """Find the n-th record of all batches at once."""
    first_of = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), np.int64)
    at = np.concatenate(([0], ends[:-1]))
    # Batches with most records first: the batches that are still walked are a prefix.
    order = np.argsort(-counts, kind="stable")
    at, places, left = at[order], first_of[order], counts[order]
    lanes = np.searchsorted(-left, -np.arange(int(left[0])), side="left")
    for step, walked in enumerate(lanes.tolist()):
        starts[places[:walked] + step] = at[:walked]
        sizes, behind = varints(data, at[:walked])
        if (sizes < 0).any():
            raise RecordsError("malformed record: its length is negative")
        at[:walked] = behind + sizes
    reached = np.empty_like(at)
    reached[order] = at
    return starts, reached


# -- fields


def varints(data: Payload, at: Numbers) -> tuple[Numbers, Numbers]:
    """Decode the zig-zag varints at these positions; return them and the positions after them.

    Raises IndexError beyond the data, RecordsError for more than 64 bits.
    """
    pair = data.pairs[at]
    value = _OF_PAIR[pair]
    size = _SIZE_IN_PAIR[pair]
    behind = at + size
    longer = np.flatnonzero(size == 0)
    if longer.size:
        value[longer], behind[longer] = _long_varints(data.octets, at[longer])
    return value, behind


def _long_varints(octets: Numbers, at: Numbers) -> tuple[Numbers, Numbers]:
    behind = at.copy()
    value = np.zeros(len(at), np.uint64)
    longer = np.arange(len(at))
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        octet = octets[behind[longer]]
        value[longer] |= (octet & _SEVEN_BITS).astype(np.uint64) << np.uint64(shift)
        behind[longer] += 1
        longer = longer[octet >= _MORE]
        if not longer.size:
            half = (value >> np.uint64(1)).astype(np.int64)
            return half ^ -(value & np.uint64(1)).astype(np.int64), behind
    raise RecordsError("malformed record: a varint is not terminated")


def _byte_strings(data: Payload, at: Numbers, ends: Numbers) -> tuple[Span, Numbers]:
    """Locate length-prefixed nullable byte strings; return them and the positions after them."""
    length, at = varints(data, at)
    behind = at + np.maximum(length, 0)
    if (length < -1).any() or (behind > ends).any() or (behind < at).any():
        raise RecordsError("malformed record: a length exceeds the record")
    return Span(at, length), behind


def _selected(columns: Columns, rows: Numbers) -> Columns:
    return Columns(
        columns.offset[rows],
        columns.timestamp_ms[rows],
        columns.timestamp_type[rows],
        Span(columns.key.at[rows], columns.key.length[rows]),
        Span(columns.value.at[rows], columns.value.length[rows]),
        columns.headers_at[rows],
    )


# -- Arrow


def binary_array(payload: bytes, span: Span, kind: pa.DataType) -> pa.Array:
    """Copy byte strings into an Arrow array. Spans are in ascending order and do not overlap.

    The whole buffer is viewed as an Arrow array in which strings alternate with the bytes between
    them; Arrow takes every other element.
    """
    count = len(span.at)
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = span.at
    edges[1::2] = span.at + np.maximum(span.length, 0)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(payload)]
    interleaved = pa.Array.from_buffers(kind, 2 * count - 1, buffers)
    wanted = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    nulls = span.length < 0
    return interleaved.take(pa.array(wanted, mask=nulls if nulls.any() else None))


class _Makers:
    """Arrow columns of decoded records, built on demand."""

    def __init__(self, payload: Payload, columns: Columns, partition: TopicPartition) -> None:
        self._payload = payload
        self._columns = columns
        self._partition = partition
        self._count = len(columns.offset)

    def column(self, field: pa.Field) -> pa.Array:
        """Build a column by its name."""
        columns = self._columns
        match field.name:
            case "key":
                return binary_array(self._payload.buffer, columns.key, field.type)
            case "value":
                return binary_array(self._payload.buffer, columns.value, field.type)
            case "topic":
                return pa.repeat(pa.scalar(self._partition.topic, field.type), self._count)
            case "partition":
                return pa.array(np.full(self._count, self._partition.partition, np.int32))
            case "offset":
                return pa.array(columns.offset)
            case "timestamp":
                ms = np.clip(columns.timestamp_ms, -_MS_MAX, _MS_MAX)
                return pa.array(ms * _US_PER_MS).cast(field.type)
            case "timestampType":
                return pa.array(columns.timestamp_type)
            case "headers":
                return self._headers(field.type)
        raise AssertionError(f"no column {field.name}")

    def _headers(self, kind: pa.DataType) -> pa.Array:
        """Build lists of (key, value); null for no headers, as in Spark's Kafka source."""
        try:
            spans = _header_spans(self._payload, self._columns.headers_at)
        except (IndexError, OverflowError) as problem:
            raise RecordsError(f"malformed header: {problem}") from None
        counts, names, values = spans
        fields = kind.value_type
        structs = pa.StructArray.from_arrays(
            [
                _text(binary_array(self._payload.buffer, names, pa.binary()), fields.field(0).type),
                binary_array(self._payload.buffer, values, fields.field(1).type),
            ],
            fields=[fields.field(0), fields.field(1)],
        )
        edges = np.zeros(self._count + 1, np.int32)
        np.cumsum(counts, out=edges[1:])
        lists = pa.ListArray.from_arrays(
            pa.array(edges), structs, type=kind, mask=pa.array(counts == 0)
        )
        return lists


def _text(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decode UTF-8, replacing invalid bytes as Java clients do."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in array.to_pylist()], kind)


def _header_spans(data: Payload, at: Numbers) -> tuple[Numbers, Span, Span]:
    """Return the header counts, and the spans of all names and values in order of records."""
    counts, at = varints(data, at)
    if (counts < 0).any():
        raise RecordsError("malformed record: a negative number of headers")
    total = int(counts.sum())
    if total > len(data.pairs):
        raise RecordsError("malformed record: more headers than bytes")
    first_of = np.cumsum(counts) - counts
    names = Span(np.empty(total, np.int64), np.empty(total, np.int64))
    values = Span(np.empty(total, np.int64), np.empty(total, np.int64))
    end = np.int64(len(data.pairs))
    rows, place = np.flatnonzero(counts), 0
    while rows.size:
        name, behind = _byte_strings(data, at[rows], end)
        if (name.length < 0).any():
            raise RecordsError("malformed record: a header without a key")
        value, behind = _byte_strings(data, behind, end)
        at[rows] = behind
        where = first_of[rows] + place
        names.at[where], names.length[where] = name
        values.at[where], values.length[where] = value
        place += 1
        rows = rows[counts[rows] > place]
    return counts, names, values
