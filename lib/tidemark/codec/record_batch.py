"""RecordBatch v2 (magic 2): the 61-byte header, read and patched in place.

This module does not read the records inside; tidemark.codec.records walks them.

Layout (KIP-98; big-endian), the same on the wire, on disk and in replication:

    0  base_offset            int64      23 last_offset_delta  int32     51 producer_epoch int16
    8  batch_length           int32      27 base_timestamp     int64     53 base_sequence  int32
    12 partition_leader_epoch int32      35 max_timestamp      int64     57 record_count   int32
    16 magic                  int8       43 producer_id        int64     61 records
    17 crc (CRC-32C of 21..end) uint32
    21 attributes             int16

``batch_length`` counts from offset 12. The CRC excludes base offset and leader epoch, so that a
broker sets both without computing it again.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from tidemark.codec.buffers import Buffer as Buffer
from tidemark.model.ids import LeaderEpoch, Offset

HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12
MAGIC_V2: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_HEADER: Final = struct.Struct(">qiiBIhiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
assert _HEADER.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """Parsed header. ``size_bytes`` is ``batch_length`` and the 12 bytes that it does not count."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """Codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True if the batch holds control records, which are invisible to users."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if ``base_timestamp`` is the time from which compaction may remove the batch's
        tombstones (KIP-534).
        """
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """True if the timestamp of every record is ``max_timestamp``, set by the broker."""
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse one header: 61 bytes from ``position``. Raises struct.error if there are fewer."""
    # Several calls for each batch: a NamedTuple's own constructor takes twice as long.
    return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))


def write_header(header: BatchHeader) -> bytes:
    """Return the 61 bytes of a header, with ``batch_length`` and ``crc`` as given, too."""
    return _HEADER.pack(*header)


def crc_of(batch: memoryview) -> int:
    """Return the CRC-32C of one whole batch, from the attributes to the end."""
    return int(crc32c(batch[CRC_START:]))


def crc_matches(batch: memoryview, header: BatchHeader) -> bool:
    """True if the CRC of exactly one batch is that of its header."""
    return int(crc32c(batch[CRC_START:])) == header.crc


def set_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """Set the fields that the leader assigns at append, in place; the CRC excludes them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LENGTH_PREFIX_BYTES, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Set the broker's time as timestamp of one whole batch (LogAppendTime), and its new CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(batch, 35, now_ms)
    _CRC.pack_into(batch, CRC_POSITION, crc_of(memoryview(batch)))


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch, in order; omit a partial batch at the end."""
    position, end = 0, len(buffer)
    while position + HEADER_BYTES <= end:
        header = read_header(buffer, position)
        if (
            header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES
            or position + header.size_bytes > end
        ):
            return
        yield position, header
        position += header.size_bytes
