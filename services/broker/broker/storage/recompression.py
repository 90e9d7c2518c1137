"""Checks and recompression of a batch before it is stored, if a topic's settings require its
records to be read.

Most batches do not come here: with ``compression.type=producer`` and no compaction they are stored
as they came. Runs in the worker process. Measured on a 64 KB batch of 170-byte records: the walk
over the records takes 0.7 ms of Python under the GIL, more than snappy, lz4 or zstd take to
decompress and compress (0.14 to 0.31 ms, without it; gzip 1.3 ms). In a thread it would stall the
event loop for most of the time.

A batch is decompressed in pieces and, if need be, compressed again in pieces. So it costs memory
for the received and the stored batch, not for its decompressed size.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidemark.codec.compression import CODECS_BY_NAME, NONE
from tidemark.codec.compression_stream import CHUNK_BYTES, compress_stream
from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    BatchHeader,
    crc_matches,
    read_header,
)
from tidemark.codec.records import (
    DECOMPRESSED_BYTES_MAX,
    RecordsError,
    assemble_stored,
    payload_chunks,
    scan_chunks,
)
from tidemark.codec.varint import INT32_MAX
from tidemark.model.errors import ErrorCode
from tidemark.model.topic_configs import TopicConfig

from broker.core.batch_rules import has_untrue_timestamp

_LZ4_LEVEL_DEFAULT: Final = 9
_GZIP_LEVEL_DEFAULT: Final = -1
_INT64_END: Final = 1 << 63


RECORDS_NAMED_MAX: Final = 10_000
"""Most refused records listed for one batch; the largest default batch of many clients."""


class _KeysMissingError(RecordsError):
    """Records without a key: their number, and the indexes of the first of them."""

    def __init__(self, count: int, records: list[int]) -> None:
        others = f", nor have {count - 1} others" if count > 1 else ""
        super().__init__(f"record {records[0]} has no key, which a compacted topic needs{others}")
        self.records = tuple(records)


class _TooLargeError(Exception):
    """The recompressed batch is larger than its topic allows."""


class BatchRule(NamedTuple):
    """Rule of a topic for its batches. Picklable."""

    codec: int | None
    """Codec to store batches with; None: as the producer compressed them."""
    level: int | None
    """Level on the codec's own scale; None: its default."""
    keys_required: bool
    batch_bytes_max: int = INT32_MAX
    """Largest size of a stored batch, header included."""

    def concerns(self, header: BatchHeader) -> bool:
        """True if a batch must go through ``apply_rule``."""
        return (
            self.keys_required
            or (self.codec is not None and self.codec != header.compression)
            or has_untrue_timestamp(header)
        )


AS_RECEIVED: Final = BatchRule(None, None, keys_required=False)
"""Rule of a topic that stores batches as they came. It concerns those with an untrue timestamp."""


class Refusal(NamedTuple):
    """Reason for refusing a batch: INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE or
    CORRUPT_MESSAGE, with a message.
    """

    error: ErrorCode
    message: str
    records: tuple[int, ...] = ()
    """Indexes of the invalid records in the batch, at most RECORDS_NAMED_MAX; () if the batch as a
    whole is invalid.
    """


def rule_for(config: TopicConfig) -> BatchRule | None:
    """Return a topic's rule; None if it stores every batch as received."""
    codec = level = None
    if config.compression_type == "uncompressed":
        codec = NONE
    elif config.compression_type != "producer":
        codec = CODECS_BY_NAME[config.compression_type]
        level = _level(config)
    if codec is None and not config.is_compacted:
        return None
    return BatchRule(codec, level, config.is_compacted, config.max_message_bytes)


def _level(config: TopicConfig) -> int | None:
    match config.compression_type:
        case "gzip":
            level = config.compression_gzip_level
            return None if level == _GZIP_LEVEL_DEFAULT else level
        case "lz4":
            # As in Kafka, the default means lz4's fast mode, any other level its slow one.
            level = config.compression_lz4_level
            return None if level == _LZ4_LEVEL_DEFAULT else level
        case "zstd":
            return config.compression_zstd_level
        case _:
            return None


def apply_rule(
    batch: bytes, rule: BatchRule, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes | Refusal:
    """Check one producer's batch record by record, and return it as the rule requires.

    Producer fields, offsets, timestamps, keys, values and headers stay. Codec, length, CRC and, if
    it was wrong, the highest timestamp change. ``bytes_max`` bounds the decompressed size.
    """
    if len(batch) < HEADER_BYTES:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are not a batch")
    header = read_header(batch)
    if header.magic != MAGIC_V2 or header.size_bytes != len(batch):
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "magic or length of the batch is wrong")
    if not crc_matches(memoryview(batch), header):
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match")
    unfolded = _Unfolded(batch, header, bytes_max)
    try:
        deltas = _check_records(unfolded, header, keys_required=rule.keys_required)
        earliest, max_timestamp = (header.base_timestamp + delta for delta in deltas)
        max_timestamp = max(max_timestamp, header.base_timestamp)
        if header.is_log_append_time:
            earliest = max_timestamp = header.max_timestamp
        if not -_INT64_END <= earliest <= max_timestamp < _INT64_END:
            return Refusal(ErrorCode.INVALID_TIMESTAMP, "a record's timestamp does not fit 64 bits")
        codec = header.compression if rule.codec is None else rule.codec
        if codec == header.compression and max_timestamp == header.max_timestamp:
            return batch
        stored = _stored(batch, header, unfolded, codec, rule)
    except _KeysMissingError as keyless:
        return Refusal(ErrorCode.INVALID_RECORD, str(keyless), keyless.records)
    except RecordsError as problem:
        return Refusal(ErrorCode.INVALID_RECORD, str(problem))
    except _TooLargeError:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            "with the topic's compression.type the batch is larger than max.message.bytes"
            f" ({rule.batch_bytes_max})",
        )
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    return assemble_stored(
        header._replace(attributes=attributes, max_timestamp=max_timestamp), stored
    )


class _Unfolded:
    """The decompressed records of one batch, in pieces, for several walks; a small batch is
    decompressed once.
    """

    def __init__(self, batch: bytes, header: BatchHeader, bytes_max: int) -> None:
        self._batch = batch
        self._header = header
        self._bytes_max = bytes_max
        self._kept: list[bytes] | None = []
        self.size_bytes = 0

    def first_walk(self) -> Iterator[bytes]:
        """Decompress the batch, and measure its size."""
        for chunk in payload_chunks(self._batch, self._header, bytes_max=self._bytes_max):
            self.size_bytes += len(chunk)
            if self._kept is not None:
                self._kept.append(chunk)
                if self.size_bytes > CHUNK_BYTES:
                    self._kept = None
            yield chunk

    def next_walk(self) -> Iterable[bytes]:
        """Return the same pieces again, after the first walk."""
        if self._kept is not None:
            return self._kept
        return payload_chunks(self._batch, self._header, bytes_max=self._bytes_max)


def _stored(
    batch: bytes, header: BatchHeader, unfolded: _Unfolded, codec: int, rule: BatchRule
) -> bytes:
    """Return the records compressed with the topic's codec. Raises _TooLargeError."""
    if codec == header.compression:
        return batch[HEADER_BYTES:]
    left = rule.batch_bytes_max - HEADER_BYTES
    pieces = []
    for piece in compress_stream(codec, unfolded.next_walk(), unfolded.size_bytes, rule.level):
        left -= len(piece)
        if left < 0:
            raise _TooLargeError
        pieces.append(piece)
    return b"".join(pieces)


def _check_records(
    unfolded: _Unfolded, header: BatchHeader, *, keys_required: bool
) -> tuple[int, int]:
    """Return the least and the largest timestamp delta in ms. Raises RecordsError for the
    producer.
    """
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise RecordsError(
            f"{header.record_count} records do not span {header.last_offset_delta + 1} offsets"
        )
    deltas_min, deltas_max = _INT64_END, -_INT64_END
    keyless_count, keyless = 0, list[int]()
    spans = scan_chunks(unfolded.first_walk(), header.record_count)
    for index, span in enumerate(spans):
        if span.offset_delta != index:
            raise RecordsError(f"record {index} has offset delta {span.offset_delta}")
        if keys_required and span.key is None:
            keyless_count += 1
            if keyless_count <= RECORDS_NAMED_MAX:
                keyless.append(index)
        deltas_min = min(deltas_min, span.timestamp_delta)
        deltas_max = max(deltas_max, span.timestamp_delta)
    if keyless:
        raise _KeysMissingError(keyless_count, keyless)
    return deltas_min, deltas_max
