"""The part of one batch that compaction keeps.

Tombstones (KIP-534): when a round first keeps one, its batch gets a delete horizon, ``now +
delete.retention.ms``. Bit 6 of the attributes marks the base timestamp as that time (deltas are
made relative to it, so that the records' timestamps do not change). A round at or after the horizon
removes the tombstone. So every reader that started from the beginning has that long to read the
deletion of the key. A marker gets its horizon when the last record of its transaction has gone.
"""

from array import array
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    BatchHeader,
)
from tidemark.codec.records import (
    RecordsError,
    RecordSpan,
    assemble_batch,
    rebase_record,
    records_payload,
    scan_records,
)
from tidemark.codec.varint import INT64_MAX, INT64_MIN

_NO_TIMESTAMP: Final = -1
_KEY_BYTES_MAX: Final = 31


def map_key(key: bytes) -> bytes:
    """Return a key as stored in the offset map: long ones as a digest, longer than any short
    key.
    """
    return key if len(key) <= _KEY_BYTES_MAX else blake2b(key, digest_size=32).digest()


class Retention(NamedTuple):
    """Rule by which the records of one batch are kept. Times in ms."""

    offsets: Mapping[bytes, int]
    clean_end: int
    aborted: bool
    keep_empty: bool
    now_ms: int
    delete_retention_ms: int


class FilteredBatch(NamedTuple):
    """Result of a filter; ``batch`` is None if nothing is kept."""

    batch: bytes | None
    records_kept: int
    records_without_key: int
    is_readable: bool = True


def filter_batch(batch: memoryview, header: BatchHeader, retention: Retention) -> FilteredBatch:
    """Apply the rule to exactly one batch whose CRC was checked.

    Control batches are kept unchanged: the removal of a marker depends on its whole transaction. So
    is a batch whose records cannot be read, unless its transaction was aborted: its CRC proves that
    its producer sent it so, which a topic without compaction accepts.
    """
    if header.is_control:
        return FilteredBatch(bytes(batch), header.record_count, 0)
    try:
        return _filtered(batch, header, retention)
    except RecordsError:
        if retention.aborted:
            return FilteredBatch(_rest(header, retention), 0, 0, is_readable=False)
        return FilteredBatch(bytes(batch), header.record_count, 0, is_readable=False)


def _filtered(batch: memoryview, header: BatchHeader, retention: Retention) -> FilteredBatch:
    payload = records_payload(batch, header)
    kept = _Kept()
    without_key = 0
    for span in scan_records(payload, header.record_count):
        if span.key is None:
            without_key += 1
        elif _stays(span.key, span, header, retention):
            kept.add(span)
    if not kept.count:
        return FilteredBatch(_rest(header, retention), 0, without_key)
    return FilteredBatch(
        _with_records(batch, header, payload, kept, retention), kept.count, without_key
    )


def is_expired(header: BatchHeader, now_ms: int) -> bool:
    """True if the batch's tombstones, or its marker, have been kept for their readers."""
    return header.has_delete_horizon and header.base_timestamp <= now_ms


def with_horizon(batch: bytes, header: BatchHeader, retention: Retention) -> bytes:
    """Return a control batch with a delete horizon: the one that it has, if it has one."""
    kept = _Kept()
    kept.needs_horizon = True
    try:
        payload = records_payload(batch, header)
        for span in scan_records(payload, header.record_count):
            kept.add(span)
        return _with_records(memoryview(batch), header, payload, kept, retention)
    except RecordsError:
        return batch


class _Kept:
    """The kept records of a batch, as runs of bytes, since a batch may have a million of them."""

    def __init__(self) -> None:
        self.count = 0
        self.timestamp_delta_min = INT64_MAX
        self.timestamp_delta_max = INT64_MIN
        self.needs_horizon = False
        """True if time has to pass before a record may go: it is a tombstone or a marker."""
        self._starts = array("q")
        self._ends = array("q")
        self._counts = array("q")

    def add(self, span: RecordSpan) -> None:
        """Add a record that follows the previous ones."""
        self.count += 1
        self.timestamp_delta_min = min(self.timestamp_delta_min, span.timestamp_delta)
        self.timestamp_delta_max = max(self.timestamp_delta_max, span.timestamp_delta)
        self.needs_horizon = self.needs_horizon or not span.has_value
        if self._ends and self._ends[-1] == span.start:
            self._ends[-1] = span.end
            self._counts[-1] += 1
        else:
            self._starts.append(span.start)
            self._ends.append(span.end)
            self._counts.append(1)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield start and end of each run of records in the payload, and its number of records."""
        return zip(self._starts, self._ends, self._counts, strict=True)


def _stays(key: bytes, span: RecordSpan, header: BatchHeader, retention: Retention) -> bool:
    """Return True if one record is kept; rules in Kafka's order."""
    offset = header.base_offset + span.offset_delta
    if retention.aborted:
        return False
    if offset >= retention.clean_end:
        return True
    if retention.offsets.get(map_key(key), -1) > offset:
        return False
    return span.has_value or not is_expired(header, retention.now_ms)


def _with_records(
    batch: memoryview,
    header: BatchHeader,
    payload: bytes,
    kept: _Kept,
    retention: Retention,
) -> bytes:
    """Return the batch with only the kept records, compressed as before. Raises RecordsError."""
    sets_horizon = not header.has_delete_horizon and kept.needs_horizon
    if kept.count == header.record_count and not sets_horizon:
        return bytes(batch)
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = _int64(header.base_timestamp + kept.timestamp_delta_max)
    # One growing buffer: joining a million pieces would need as much memory again.
    records = bytearray()
    if sets_horizon:
        # delete.retention.ms may be the largest int64: tombstones then stay.
        horizon = min(retention.now_ms + retention.delete_retention_ms, INT64_MAX)
        shift = header.base_timestamp - horizon
        _int64(kept.timestamp_delta_min + shift)
        _int64(kept.timestamp_delta_max + shift)
        for start, end, count in kept.runs():
            run = payload[start:end]
            for span in scan_records(run, count):
                records += rebase_record(run, span, shift)
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon
        )
    else:
        for start, end, _ in kept.runs():
            records += payload[start:end]
    return assemble_batch(
        header._replace(max_timestamp=max_timestamp, record_count=kept.count), records
    )


def _int64(timestamp: int) -> int:
    """Return a timestamp, or a difference of two, that fits 64 bits. Raises RecordsError: topics
    whose records are not checked take any.
    """
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise RecordsError(f"timestamp {timestamp} does not fit 64 bits")
    return timestamp


def _rest(header: BatchHeader, retention: Retention) -> bytes | None:
    """Return the batch without records, or None if it may go."""
    return _emptied(header) if retention.keep_empty else None


def _emptied(header: BatchHeader) -> bytes:
    """Return a header alone, which keeps the offsets and the producer's epoch and sequences."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return assemble_batch(
        header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0), b""
    )
