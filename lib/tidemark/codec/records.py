"""Records inside a RecordBatch v2: building and reading.

One record, after its own length as a varint (KIP-82, KIP-98; every number except the first is a
zig-zag varint):

    attributes int8 (0) · timestamp_delta · offset_delta · key length (-1: null) · key
    value length (-1: null) · value · header count
    for each header: key length · key · value length (-1: null) · value

For clients, worker processes, tests and tools. A broker's event loop never walks records.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from tidemark.codec.compression import CompressionError, decompress
from tidemark.codec.compression import compress as compress_payload
from tidemark.codec.compression_stream import decompress_stream
from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    BatchHeader,
    Buffer,
    write_header,
)
from tidemark.codec.varint import INT32_MAX, INT64_MAX, ONE_BYTE, SMALL, encode_varint, read_varint

Headers = Sequence[tuple[str, bytes | None]]
RecordInput = tuple[int, Buffer | None, Buffer | None, Headers]
"""Timestamp in ms, key, value and headers of a record."""

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Default bound on the decompressed size of one batch."""

HEADERS_MAX: Final = 1_000_000
"""Most headers in a batch that is read into records: objects, for two bytes that compress well."""

_SMALL_END: Final = len(SMALL)
_NULL: Final = encode_varint(-1)
# Attributes; five varints of at most 10, 5, 5, 5 and 5 bytes; the record's length before them, 5.
_RECORD_OVERHEAD_BYTES_MAX: Final = 36
_HEADER_OVERHEAD_BYTES_MAX: Final = 10
_HEADER_BYTES_MIN: Final = 2


class RecordsError(ValueError):
    """The records contradict their batch's header, cannot be decompressed or exceed the bound."""


class Record(NamedTuple):
    """One record as a consumer sees it; ``timestamp`` in ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordSpan(NamedTuple):
    """Position of one record in the decompressed records, length prefix included, and the fields
    that compaction and lookups use.
    """

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def record_bytes_max(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """Return a bound on the bytes that a record adds to a batch, uncompressed."""
    size = _RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        # A character takes at most four bytes in UTF-8. Most names are ASCII; encoding them twice
        # would cost more.
        size += (
            _HEADER_OVERHEAD_BYTES_MAX
            + (len(name) if name.isascii() else 4 * len(name))
            + len(content or b"")
        )
    return size


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> bytes:
    """Encode one record, preceded by its length."""
    # The producer's hot loop: it indexes the table itself, because a call for each number would
    # double the cost.
    parts: list[Buffer] = [
        b"\x00",
        SMALL[timestamp_delta]
        if 0 <= timestamp_delta < _SMALL_END
        else encode_varint(timestamp_delta),
        SMALL[offset_delta] if 0 <= offset_delta < _SMALL_END else encode_varint(offset_delta),
    ]
    if key is None:
        parts.append(_NULL)
    else:
        parts += (encode_varint(len(key)), key)
    if value is None:
        parts.append(_NULL)
    else:
        parts += (encode_varint(len(value)), value)
    if headers:
        parts += _encode_headers(headers)
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_headers(headers: Headers) -> list[Buffer]:
    parts: list[Buffer] = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
    return parts


def assemble_batch(header: BatchHeader, payload: Buffer, *, level: int | None = None) -> bytes:
    """Return a whole batch of encoded, uncompressed records: compress them with the header's codec,
    and compute length and CRC.
    """
    codec = header.attributes & COMPRESSION_MASK
    return assemble_stored(header, compress_payload(codec, payload, level) if codec else payload)


def assemble_stored(header: BatchHeader, stored: Buffer) -> bytes:
    """Return a whole batch of records that are compressed already with the header's codec."""
    batch_length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(stored)
    head = header._replace(batch_length=batch_length, magic=MAGIC_V2, crc=0)
    crc = crc32c(stored, crc32c(write_header(head)[CRC_START:]))
    return write_header(head._replace(crc=crc)) + stored


class BatchBuilder:
    """Batch under construction: the producer appends until it is full or due, then builds it."""

    __slots__ = ("_base_timestamp", "_max_timestamp", "_records", "size_bytes")

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = 0
        self.size_bytes = HEADER_BYTES
        """Size of the batch so far, uncompressed."""

    @property
    def count(self) -> int:
        """Number of records so far."""
        return len(self._records)

    def append(
        self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()
    ) -> None:
        """Add one record, with the next offset of the batch."""
        records = self._records
        if not records:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        record = encode_record(timestamp - self._base_timestamp, len(records), key, value, headers)
        records.append(record)
        self.size_bytes += len(record)

    def build(
        self,
        *,
        base_offset: int = 0,
        compression: int = 0,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        leader_epoch: int = -1,
        attributes_extra: int = 0,
    ) -> bytes:
        """Return the whole batch. The builder does not change, so that a retry may build again with
        another sequence.
        """
        assert self._records, "a batch holds at least one record"
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC_V2,
            crc=0,
            attributes=compression | attributes_extra,
            last_offset_delta=len(self._records) - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(self._records),
        )
        return assemble_batch(header, b"".join(self._records), level=level)


def build_batch(
    records: Sequence[RecordInput],
    *,
    base_offset: int = 0,
    compression: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    attributes_extra: int = 0,
) -> bytes:
    """Build one batch of at least one record, with consecutive offsets from ``base_offset``."""
    builder = BatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build(
        base_offset=base_offset,
        compression=compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        attributes_extra=attributes_extra,
    )


def records_payload(
    batch: Buffer, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Return the encoded records of exactly one batch, decompressed. Raises RecordsError."""
    try:
        return decompress(header.compression, memoryview(batch)[HEADER_BYTES:], bytes_max=bytes_max)
    except CompressionError as problem:
        raise RecordsError(str(problem)) from None


def read_records(
    batch: Buffer, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Return all records of exactly one batch, with absolute offsets and timestamps.

    Does not check the CRC. Raises RecordsError.
    """
    payload = records_payload(batch, header, bytes_max=bytes_max)
    try:
        records, end = _read_all(payload, header)
    except (IndexError, ValueError) as problem:
        raise RecordsError(f"malformed record: {problem}") from None
    if end != len(payload):
        raise RecordsError(f"{len(payload) - end} bytes left behind the last record")
    return records


def _read_all(data: bytes, header: BatchHeader) -> tuple[list[Record], int]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    stamped = header.max_timestamp if header.is_log_append_time else None
    records: list[Record] = []
    new, one_byte, data_end = tuple.__new__, ONE_BYTE, len(data)
    headers: tuple[tuple[str, bytes | None], ...]
    position, headers_left = 0, HEADERS_MAX
    for _ in range(header.record_count):
        # The consumer's hot loop: it looks up one-byte numbers itself, without a call for each.
        size, position = read_varint(data, position)
        end = position + size
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        length = one_byte[data[position]]
        if length is None or length < 0:
            key, position = _read_bytes(data, position)
        else:
            start, position = position + 1, position + 1 + length
            key = data[start:position]
        value, position = _read_bytes(data, position)
        if data[position]:
            headers, position = _read_headers(data, position, end, headers_left)
            headers_left -= len(headers)
        else:
            headers, position = (), position + 1
        # A length that points beyond the record, or the data, is detected here.
        if position != end or end > data_end:
            raise ValueError(f"record {len(records)} does not end where its length says")
        timestamp = base_timestamp + timestamp_delta if stamped is None else stamped
        records.append(new(Record, (base_offset + offset_delta, timestamp, key, value, headers)))
    return records, position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Return a nullable byte string and the position after it. The string is short at the end of
    the data, which the caller detects.
    """
    length, position = read_varint(data, position)
    if length >= 0:
        end = position + length
        return data[position:end], end
    if length == -1:
        return None, position
    raise ValueError(f"negative length {length}")


def _read_headers(
    data: bytes, position: int, end: int, count_max: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Read the headers of a record that ends at ``end``, if they are no more than so many."""
    count, position = read_varint(data, position)
    if not 0 <= count <= (end - position) // _HEADER_BYTES_MIN:
        raise ValueError(f"{count} headers in {end - position} bytes")
    if count > count_max:
        raise ValueError(f"the batch has more than {HEADERS_MAX} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
        if name is None:
            raise ValueError("null header key")
        headers.append((name.decode(errors="replace"), value))  # as Java's clients do
    return tuple(headers), position


def payload_chunks(
    batch: Buffer, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[bytes]:
    """Yield the encoded records of exactly one batch in pieces, decompressed one at a time. Raises
    RecordsError.
    """
    view = memoryview(batch)[HEADER_BYTES:]
    try:
        yield from decompress_stream(header.compression, view, bytes_max=bytes_max)
    except CompressionError as problem:
        raise RecordsError(str(problem)) from None


def scan_records(payload: bytes, record_count: int) -> Iterator[RecordSpan]:
    """Walk encoded records without creating values or headers. Raises RecordsError, also for bytes
    left over.
    """
    return scan_chunks((payload,), record_count)


def scan_chunks(chunks: Iterable[bytes], record_count: int) -> Iterator[RecordSpan]:
    """Walk records in pieces (none empty), as ``scan_records`` does. Holds one piece, and for a
    record across two pieces the bytes before its value.
    """
    source = iter(chunks)
    data = b""
    origin = at = 0  # data[0] is byte ``origin`` of the whole; the next record is at data[at]
    left = record_count
    while left > 0:
        try:
            left, at, missing = yield from _scan_buffer(data, at, origin, left)
        except ValueError as problem:
            raise RecordsError(f"malformed record: {problem}") from None
        if left:
            data, origin, at = _more(source, data, origin, at, missing)
    rest = len(data) - at + sum(map(len, source))
    if rest < 0:
        raise RecordsError("malformed record: a length points beyond its record")
    if rest:
        raise RecordsError(f"{rest} bytes left behind the last record")


def _more(
    source: Iterator[bytes], data: bytes, origin: int, at: int, missing: int
) -> tuple[bytes, int, int]:
    """Return the bytes from ``data[at]`` on with at least ``missing`` more, their position in the
    whole, and 0. Skips the bytes before them.
    """
    skip = at - len(data)
    pieces = [data[at:]]
    origin += at
    while missing > 0:
        piece = next(source, None)
        if piece is None:
            raise RecordsError("malformed record: the records end within one")
        if skip >= len(piece):
            skip -= len(piece)
            continue
        if skip > 0:
            piece, skip = piece[skip:], 0
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces), origin, 0


def _scan_buffer(
    data: bytes, start: int, origin: int, count: int
) -> Generator[RecordSpan, None, tuple[int, int, int]]:
    """Yield the records that begin in ``data`` from ``start`` on. Return the number of records left
    of ``count``, the start of the next, and how many bytes after ``data`` the walk needs at least.
    """
    # The worker's hot loop. It starts like _read_all, but a shared function would make each record
    # a third more expensive.
    new, one_byte, data_end = tuple.__new__, ONE_BYTE, len(data)
    end = start
    try:
        while count:
            start = end
            size, position = read_varint(data, start)
            end = position + size
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            length = one_byte[data[position]]
            if length is None or length < 0:
                key, position = _read_bytes(data, position)
            else:
                key_start, position = position + 1, position + 1 + length
                key = data[key_start:position]
            # At least the value's length and the header count follow the key.
            if position + 2 > end:
                raise ValueError("a length points beyond its record")
            if position >= data_end:
                return count, start, position + 1 - data_end
            value_length, position = read_varint(data, position)
            if value_length > 0:
                position += value_length
            if value_length < -1 or position >= end:
                raise ValueError("a length points beyond its record")
            count -= 1
            yield new(
                RecordSpan,
                (
                    origin + start,
                    origin + end,
                    timestamp_delta,
                    offset_delta,
                    key,
                    value_length >= 0,
                ),
            )
    except IndexError:
        return count, start, 1
    return 0, end, 0


def rebase_record(payload: bytes, span: RecordSpan, shift: int, offset_shift: int = 0) -> bytes:
    """Return one encoded record for a batch whose base timestamp is ``shift`` ms earlier, and whose
    base offset is lower by ``offset_shift``; otherwise unchanged.
    """
    _, position = read_varint(payload, span.start)
    attributes = payload[position : position + 1]
    _, position = read_varint(payload, position + 1)
    deltas = encode_varint(span.timestamp_delta + shift)
    if offset_shift:
        _, position = read_varint(payload, position)
        deltas += encode_varint(span.offset_delta + offset_shift)
    body = attributes + deltas + payload[position : span.end]
    return encode_varint(len(body)) + body


def first_at_or_after(
    batch: Buffer, header: BatchHeader, timestamp: int, first_offset: int = 0
) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record from ``first_offset`` on that is not older
    than ``timestamp`` ms, for ListOffsets.

    With ``timestamp=header.max_timestamp`` this is the first record with the batch's highest
    timestamp. None if every record is older: after compaction a header may have a timestamp that no
    record has. A timestamp beyond 64 bits is passed by, as no answer can carry it. Raises
    RecordsError, also for offsets that do not ascend.
    """
    before = -1
    for span in scan_chunks(payload_chunks(batch, header), header.record_count):
        if not before < span.offset_delta <= header.last_offset_delta:
            raise RecordsError(
                f"offset delta {span.offset_delta} follows {before}, and the last one is"
                f" {header.last_offset_delta}"
            )
        before = span.offset_delta
        carried = (
            header.max_timestamp
            if header.is_log_append_time
            else header.base_timestamp + span.timestamp_delta
        )
        offset = header.base_offset + span.offset_delta
        if timestamp <= carried <= INT64_MAX and offset >= first_offset:
            return offset, carried
    return None


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` after another; int32, wraps to 0."""
    return (sequence + count) % (INT32_MAX + 1)
