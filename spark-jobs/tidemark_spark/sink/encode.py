"""Arrow columns to encoded Kafka records, by partition, without running Python for each row.

The encoding is the same as in ``tidemark.codec.records`` (KIP-82, KIP-98); tests compare the two.
Arrow joins each record from five columns, so keys and values are copied once:

    length · attributes · timestamp delta · offset delta · key length | key | value length | value |
    headers

The data buffer of the joined column contains the records of the batches, one after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tidemark.client.producer.batches import EncodedRecords
from tidemark.model.topics import TopicPartition

from tidemark_spark.sink.errors import RowError
from tidemark_spark.sink.hashing import Array, partitions_of_keys, stable_order

RECORD_BYTES_MORE_MAX: Final = 36
"""Maximum size of a record without key, value and headers, as in ``records.record_bytes_max``."""
SPREAD_BYTES: Final = 16 * 1024
"""Rows without key and partition fill one partition up to this size before the next, as in Kafka's
producers.
"""

_NO_TIMESTAMP: Final = -1

_NOTHING: Final = pa.scalar(b"", pa.binary())
_NO_HEADERS: Final = pa.scalar(b"\x00", pa.binary())


class Columns(NamedTuple):
    """Columns of some rows; every array has one entry for each row."""

    topic: pa.Array | str
    partition: pa.Array | None
    key: pa.Array | None
    value: pa.Array
    timestamp: pa.Array | None
    headers: pa.Array | None


class Limits(NamedTuple):
    """Sizes: a batch is filled up to ``batch_bytes``, a record has at most ``record_bytes_max``."""

    batch_bytes: int
    record_bytes_max: int


class Encoder:
    """Encoder of one task. ``partition_count(topic)`` raises if the topic does not exist."""

    def __init__(
        self,
        partition_count: Callable[[str], int],
        *,
        limits: Limits,
        now_ms: Callable[[], int],
        first_partition: int = 0,
    ) -> None:
        self._partition_count = partition_count
        self._limits = limits
        self._now_ms = now_ms
        self._spread_from = first_partition * SPREAD_BYTES

    def encode(self, rows: Columns) -> list[EncodedRecords]:
        """Encode rows; each partition's rows keep their order.

        Raises RowError for rows that cannot be records, and what ``partition_count`` raises.
        """
        count = len(rows.value)
        if count == 0:
            return []
        fields = _Fields.of(rows, self._now_ms)
        sizes = fields.key_lengths + fields.value_lengths + fields.header_bytes
        sizes += RECORD_BYTES_MORE_MAX
        topics, topic_index = _topics(rows.topic, count)
        counts = [self._partition_count(topic) for topic in topics]
        partitions = self._partitions(rows, topic_index, np.asarray(counts), sizes)
        _check_partitions(topics, counts, topic_index, partitions)
        self._check_sizes(topics, topic_index, partitions, sizes)
        target = topic_index * (max(counts) + 1) + partitions
        if not (target == target[0]).all():
            order = stable_order(target)
            fields, target, sizes = fields.take(order), target[order], sizes[order]
            topic_index, partitions = topic_index[order], partitions[order]
        starts = _batch_starts(target, sizes, self._limits.batch_bytes)
        places = [
            TopicPartition(topics[topic_index[start]], int(partitions[start])) for start in starts
        ]
        return list(_encoded(fields, starts, places))

    def _partitions(self, rows: Columns, topic_index: Array, counts: Array, sizes: Array) -> Array:
        """Return the partition of each row: its own, or by its key, or spread evenly."""
        count = len(sizes)
        wanted = counts[topic_index]
        partitions = np.zeros(count, np.int64)
        open_rows = np.ones(count, bool)
        if rows.partition is not None:
            partitions = _filled(rows.partition, pa.int64(), 0)
            open_rows = _null_mask(rows.partition)
        if rows.key is not None and open_rows.any():
            keyed = open_rows & ~_null_mask(rows.key)
            for each in np.unique(wanted[keyed]):
                chosen = keyed & (wanted == each)
                partitions[chosen] = partitions_of_keys(rows.key, int(each))[chosen]
            open_rows &= ~keyed
        if open_rows.any():
            before = self._spread_from + np.cumsum(sizes[open_rows]) - sizes[open_rows]
            partitions[open_rows] = (before // SPREAD_BYTES) % wanted[open_rows]
            self._spread_from += int(sizes[open_rows].sum())
        return partitions

    def _check_sizes(
        self, topics: Sequence[str], topic_index: Array, partitions: Array, sizes: Array
    ) -> None:
        largest = int(np.argmax(sizes))
        if sizes[largest] > self._limits.record_bytes_max:
            raise RowError(
                f"a row for {topics[topic_index[largest]]}-{partitions[largest]} makes a record of"
                f" up to {sizes[largest]} bytes; the limit is {self._limits.record_bytes_max}",
                hint="write smaller values, or increase the option client.max_request_size together"
                " with the topic's max.message.bytes",
            )


class _Fields(NamedTuple):
    """Fields of the records; lengths are int64, in bytes, and 0 for null."""

    timestamps: Array
    key: pa.Array | None
    key_lengths: Array
    value: pa.Array
    value_lengths: Array
    headers: pa.Array | None
    header_bytes: Array

    @classmethod
    def of(cls, rows: Columns, now_ms: Callable[[], int]) -> "_Fields":
        count = len(rows.value)
        headers = None if rows.headers is None else _encoded_headers(rows.headers)
        key = None if rows.key is None or rows.key.null_count == count else rows.key
        nothing = np.zeros(count, np.int64)
        return cls(
            _timestamps(rows.timestamp, count, now_ms),
            key,
            nothing if key is None else _lengths(key),
            rows.value,
            _lengths(rows.value),
            headers,
            nothing if headers is None else _lengths(headers),
        )

    def take(self, order: Array) -> "_Fields":
        chosen = pa.array(order)
        return _Fields(
            self.timestamps[order],
            None if self.key is None else self.key.take(chosen),
            self.key_lengths[order],
            self.value.take(chosen),
            self.value_lengths[order],
            None if self.headers is None else self.headers.take(chosen),
            self.header_bytes[order],
        )


def _encoded(
    fields: _Fields, starts: Array, places: Sequence[TopicPartition]
) -> Iterator[EncodedRecords]:
    """Yield a batch for each start, which ends at the next start."""
    count = len(fields.value)
    ends = np.append(starts[1:], count)
    per_batch = ends - starts
    firsts = np.repeat(fields.timestamps[starts], per_batch)
    offset_deltas = np.arange(count) - np.repeat(starts, per_batch)
    records = _join(fields, fields.timestamps - firsts, offset_deltas)
    offsets = np.frombuffer(records.buffers()[1], np.int32)[: count + 1]
    data = memoryview(records.buffers()[2])
    newest = np.maximum.reduceat(fields.timestamps, starts)
    for place, start, end, max_timestamp in zip(
        places, starts.tolist(), ends.tolist(), newest.tolist(), strict=True
    ):
        yield EncodedRecords(
            place,
            data[offsets[start] : offsets[end]],
            end - start,
            int(fields.timestamps[start]),
            max_timestamp,
        )


def _join(fields: _Fields, timestamp_deltas: Array, offset_deltas: Array) -> pa.Array:
    """Join the fields into records: a binary array with one entry for each record."""
    numbers = [timestamp_deltas, offset_deltas]
    key_numbers = _nullable_lengths(fields.key, fields.key_lengths)
    value_numbers = _nullable_lengths(fields.value, fields.value_lengths)
    headers_bytes = 1 if fields.headers is None else fields.header_bytes
    sizes = 1 + headers_bytes + fields.key_lengths + fields.value_lengths
    for field in (*numbers, key_numbers, value_numbers):
        sizes = sizes + varint_sizes(zigzag(field))
    tail = _NO_HEADERS if fields.headers is None else fields.headers
    attributes = np.zeros(len(sizes), np.int64)  # 0 is a varint of one byte, and an int8
    head = [sizes, attributes, *numbers, key_numbers]
    if fields.key is None:
        parts = [varints([*head, value_numbers]), fields.value, tail]
    else:
        parts = [varints(head), fields.key, varints([value_numbers]), fields.value, tail]
    return pc.binary_join_element_wise(
        *parts, _NOTHING, null_handling="replace", null_replacement=b""
    )


def zigzag(numbers: Array) -> Array:
    """Zig-zag encode signed numbers as uint64, small for numbers near 0."""
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)


def varint_sizes(encoded: Array) -> Array:
    """Return the size of each zig-zag encoded number as a varint, int64."""
    sizes = np.ones(len(encoded), np.int64)
    largest = int(encoded.max()) if len(encoded) else 0
    for shift in range(7, max(8, largest.bit_length()), 7):
        sizes += encoded >= np.uint64(1 << shift)
    return sizes


def varints(fields: Sequence[Array]) -> pa.Array:
    """Encode the fields of each row as varints, one after the other, in one entry for each row."""
    encoded = [zigzag(field) for field in fields]
    sizes = [varint_sizes(field) for field in encoded]
    offsets = np.zeros(len(encoded[0]) + 1, np.int64)
    np.cumsum(sum(sizes), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for field, size in zip(encoded, sizes, strict=True):
        _put(data, at, field, size)
        at += size
    return pa.Array.from_buffers(
        pa.binary(),
        len(encoded[0]),
        [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)],
    )


def _put(data: Array, at: Array, numbers: Array, sizes: Array) -> None:
    """Write varints: seven bits in a byte, least significant first, the high bit if more follow."""
    widest = int(sizes.max()) if len(sizes) else 0
    if widest == 1:
        data[at] = numbers
        return
    for byte in range(widest):
        septet = ((numbers >> np.uint64(7 * byte)) & np.uint64(0x7F)).astype(np.uint8)
        septet |= (sizes > byte + 1).astype(np.uint8) << np.uint8(7)
        if byte == 0:
            data[at] = septet
        else:
            live = sizes > byte
            data[at[live] + byte] = septet[live]


def _encoded_headers(headers: pa.Array) -> pa.Array:
    """Encode each row's header count and headers, from list<struct<key, value>>."""
    headers = headers.fill_null([]) if headers.null_count else headers
    flat = headers.flatten()
    names, values = as_binary(flat.field(0)), as_binary(flat.field(1))
    if flat.null_count or names.null_count:
        raise RowError(
            "the key of a header is null", hint="give every header a key; its value may be null"
        )
    each = pc.binary_join_element_wise(
        varints([_lengths(names)]),
        names,
        varints([_nullable_lengths(values, _lengths(values))]),
        values,
        _NOTHING,
        null_handling="replace",
        null_replacement=b"",
    )
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), each), _NOTHING)
    return pc.binary_join_element_wise(varints([counts]), joined, _NOTHING)


def as_binary(column: pa.Array) -> pa.Array:
    """Convert strings to binary with 32-bit offsets; strings are not copied."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.cast(pa.binary())


def _lengths(column: pa.Array) -> Array:
    return _filled(pc.binary_length(column), pa.int64(), 0)


def _nullable_lengths(column: pa.Array | None, lengths: Array) -> Array:
    """Return the lengths that are written: -1 for null."""
    if column is None:
        return np.full(len(lengths), -1, np.int64)
    return np.where(_null_mask(column), -1, lengths) if column.null_count else lengths


def _null_mask(column: pa.Array) -> Array:
    if not column.null_count:
        return np.zeros(len(column), bool)
    return column.is_null().to_numpy(zero_copy_only=False)


def _filled(column: pa.Array, kind: Any, filler: int) -> Array:
    filled = pc.fill_null(column.cast(kind), filler) if column.null_count else column.cast(kind)
    return filled.to_numpy(zero_copy_only=False).copy()


def _timestamps(column: pa.Array | None, count: int, now_ms: Callable[[], int]) -> Array:
    """Return timestamps in ms since 1970; the current time for null and for -1.

    A record without a timestamp has -1, also in the source, and no producer sends it.
    """
    if column is None:
        return np.full(count, now_ms(), np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    stamps = _filled(micros, pa.int64(), 0) // 1_000
    absent = _null_mask(column) | (stamps == _NO_TIMESTAMP)
    if absent.any():
        stamps[absent] = now_ms()
    if (stamps < 0).any():
        raise RowError(
            f"a row's timestamp is {-int(stamps.min())} ms before 1970",
            hint="use timestamps from 1970-01-01 00:00 UTC on, as Kafka requires",
        )
    return stamps


def _topics(topic: pa.Array | str, count: int) -> tuple[list[str], Array]:
    """Return the distinct topics, and the index of each row's topic."""
    if isinstance(topic, str):
        return [topic], np.zeros(count, np.int64)
    if topic.null_count:
        raise RowError(
            "a row's topic is null",
            hint="fill the column topic, or set the option topic for all rows",
        )
    encoded = topic.dictionary_encode()
    return encoded.dictionary.to_pylist(), _filled(encoded.indices, pa.int64(), 0)


def _check_partitions(
    topics: Sequence[str], counts: Sequence[int], topic_index: Array, partitions: Array
) -> None:
    wrong = (partitions < 0) | (partitions >= np.asarray(counts)[topic_index])
    if wrong.any():
        row = int(np.argmax(wrong))
        topic = topic_index[row]
        raise RowError(
            f"a row has partition {partitions[row]} of topic {topics[topic]}, which has partitions"
            f" 0 to {counts[topic] - 1}",
            hint="leave the partition null to choose it by the key, or add partitions to the topic",
        )


def _batch_starts(target: Array, sizes: Array, batch_bytes: int) -> Array:
    """Return the starts of batches: at every new target, and where a batch would be too large."""
    changes = np.flatnonzero(np.diff(target)) + 1
    bounds = [0, *changes.tolist(), len(target)]
    through = np.cumsum(sizes)
    starts: list[int] = []
    for begin, end in pairwise(bounds):
        while begin < end:
            starts.append(begin)
            full = through[begin] - sizes[begin] + batch_bytes
            begin = min(end, max(begin + 1, int(np.searchsorted(through, full, side="right"))))
    return np.asarray(starts, np.int64)
