"""Rules for batches to append that need no state of the partition, and the results of an append."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.codec.control_record import ControlRecord
from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topic_configs import TopicConfig

NO_TIMESTAMP: Final = -1
COMPRESSION_LAST: Final = 4
RECORD_BYTES_MIN: Final = 7
"""Size of the smallest record: length, attributes, two deltas, null key, null value and no headers,
a byte each. A batch that claims more uncompressed records than fit would waste offsets.
"""
COMPRESSED_RECORDS_PER_BYTE_MAX: Final = 8
"""Most records for each byte of a compressed batch, whose records are not read. The smallest
records have no key and no value, and differ in their offset alone: zstd compresses 100,000 of them
to 0.6 bytes each, and no codec to less.
"""
BATCH_RECORDS_MAX: Final = 1_000_000
"""Default of batch.records.max. It equals librdkafka's batch.num.messages, the largest bound of any
client that counts records; other clients reach their limit in bytes long before.
"""


class AppendPlan(NamedTuple):
    """An admitted batch with its offsets. The first five fields are the arguments of storage."""

    first: Offset
    last: Offset
    max_timestamp: int
    leader_epoch: LeaderEpoch
    size_bytes: int
    header: BatchHeader
    log_append_time_ms: int
    """-1 unless the topic's message.timestamp.type is LogAppendTime."""
    control: ControlRecord | None = None
    """Content of a control batch."""


class Refusal(NamedTuple):
    """Reason for a refusal: Kafka's error code, and a message."""

    error_code: ErrorCode
    message: str
    records: tuple[int, ...] = ()
    """Indexes of the invalid records; () if the batch as a whole is invalid."""
    is_correctable: bool = False
    """True if the batch may come again, once a worker has set it right."""


class Repeated(NamedTuple):
    """Result for a batch that is in the log already (an idempotent producer's retry), with its
    first offsets.
    """

    first: int
    last: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """Settings of a topic that limit its batches."""

    batch_bytes_max: int
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    log_append_time: bool
    flush_group: bool
    min_insync_replicas: int
    records_max: int = BATCH_RECORDS_MAX

    @classmethod
    def of(cls, config: TopicConfig, *, records_max: int = BATCH_RECORDS_MAX) -> "PartitionLimits":
        """Create limits from a topic's configuration and the broker's batch.records.max."""
        return cls(
            batch_bytes_max=config.max_message_bytes,
            timestamp_before_ms_max=config.message_timestamp_before_max_ms,
            timestamp_after_ms_max=config.message_timestamp_after_max_ms,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            flush_group=config.flush == "group",
            min_insync_replicas=config.min_insync_replicas,
            records_max=records_max,
        )


_NOT_ONE_BATCH: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a partition's records must be exactly one record batch"
)
_NOT_A_BATCH: Final = Refusal(
    ErrorCode.CORRUPT_MESSAGE, "the leader sent something other than a record batch"
)
_OLD_MAGIC: Final = Refusal(
    ErrorCode.INVALID_RECORD, "only record batches of magic 2 (Kafka 0.11 or newer) are taken"
)
_BASE_OFFSET: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a producer's batch has the base offset 0: the leader assigns offsets"
)
_TOO_LARGE: Final = Refusal(
    ErrorCode.MESSAGE_TOO_LARGE, "the batch is larger than max.message.bytes"
)
_BAD_COUNT: Final = Refusal(
    ErrorCode.INVALID_RECORD, "record count and last offset delta contradict each other"
)
_TOO_MANY: Final = Refusal(
    ErrorCode.MESSAGE_TOO_LARGE,
    "the batch has more records than the broker's batch.records.max: send smaller batches",
)
_TOO_MANY_FOR_BYTES: Final = Refusal(
    ErrorCode.INVALID_RECORD,
    f"the batch claims more than {COMPRESSED_RECORDS_PER_BYTE_MAX} records for each of its"
    " compressed bytes, which no codec reaches",
)
_CONTROL: Final = Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
_TRANSACTIONAL: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id"
)
PLAIN_MASK: Final = COMPRESSION_MASK | TRANSACTIONAL_BIT
"""Attribute bits that a producer may set."""
_HORIZON: Final = Refusal(ErrorCode.INVALID_RECORD, "only compaction sets the delete horizon")
_CODEC: Final = Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression")
_TIMESTAMP_TYPE: Final = Refusal(
    ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime"
)
_TIMESTAMP: Final = Refusal(
    ErrorCode.INVALID_TIMESTAMP,
    "a timestamp is outside message.timestamp.before.max.ms and message.timestamp.after.max.ms",
)
UNTRUE_TIMESTAMP: Final = Refusal(
    ErrorCode.INVALID_TIMESTAMP,
    "the batch's highest timestamp is before its first one",
    is_correctable=True,
)
"""Refusal of a batch whose highest timestamp a worker can set right. Kafka sets that of every
batch; Sarama before 1.45.2 leaves it out.
"""


def has_untrue_timestamp(header: BatchHeader) -> bool:
    """True if the highest timestamp cannot be that of the records. Retention would remove them."""
    return header.max_timestamp < header.base_timestamp


def count_refused(header: BatchHeader, size_bytes: int, limits: PartitionLimits) -> Refusal | None:
    """Return the refusal of a batch whose record count does not fit its size, or is above the
    limit.

    Checked before the batch is decompressed: for many topics the count is never compared with the
    records, and it moves the log end offset.
    """
    count, stored_bytes = header.record_count, size_bytes - HEADER_BYTES
    if count <= 0 or header.last_offset_delta != count - 1:
        return _BAD_COUNT
    if not header.attributes & COMPRESSION_MASK:
        if count * RECORD_BYTES_MIN > stored_bytes:
            return _BAD_COUNT
    elif count > stored_bytes * COMPRESSED_RECORDS_PER_BYTE_MAX:
        return _TOO_MANY_FOR_BYTES
    return _TOO_MANY if count > limits.records_max else None


def structure_refused(
    header: BatchHeader, size_bytes: int, limits: PartitionLimits
) -> Refusal | None:
    """Return the refusal for the first structural rule that a batch breaks, in Kafka's order."""
    attributes = header.attributes
    count = count_refused(header, size_bytes, limits)
    rules: tuple[tuple[object, Refusal | None], ...] = (
        (header.magic != MAGIC_V2, _OLD_MAGIC),
        (header.batch_length + LENGTH_PREFIX_BYTES != size_bytes, _NOT_ONE_BATCH),
        (size_bytes < HEADER_BYTES, _NOT_ONE_BATCH),
        (header.base_offset, _BASE_OFFSET),
        (size_bytes > limits.batch_bytes_max, _TOO_LARGE),
        (count is not None, count),
        (attributes & CONTROL_BIT, _CONTROL),
        (attributes & TRANSACTIONAL_BIT and header.producer_id < 0, _TRANSACTIONAL),
        (attributes & TIMESTAMP_TYPE_BIT, _TIMESTAMP_TYPE),
        (attributes & DELETE_HORIZON_BIT, _HORIZON),
        (attributes & COMPRESSION_MASK > COMPRESSION_LAST, _CODEC),
    )
    return next((refusal for broken, refusal in rules if broken), None)


def timestamps_refused(header: BatchHeader, now_ms: int, limits: PartitionLimits) -> Refusal | None:
    """Return the refusal of a batch with timestamps out of range. -1 (none) is always valid."""
    earliest = now_ms - limits.timestamp_before_ms_max
    latest = now_ms + limits.timestamp_after_ms_max
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            return _TIMESTAMP
    return UNTRUE_TIMESTAMP if has_untrue_timestamp(header) else None


def replicated_refused(header: BatchHeader, size_bytes: int) -> Refusal | None:
    """Return the refusal of a batch from a leader that is not one whole batch, else None. Its
    leader has checked the rest.
    """
    if (
        header.magic != MAGIC_V2
        or header.batch_length + LENGTH_PREFIX_BYTES != size_bytes
        or size_bytes < HEADER_BYTES
        or header.last_offset_delta < 0
    ):
        return _NOT_A_BATCH
    return None
