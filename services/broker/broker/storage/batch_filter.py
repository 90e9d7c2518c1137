"""What compaction leaves of one batch.

Tombstones (KIP-534): when a round first keeps one, its batch gets a delete horizon, ``now +
delete.retention.ms``: bit 6 of the attributes says that the base timestamp is that instant (deltas
are made relative to it, so that timestamps of records do not change). A round at or after the
horizon removes the tombstone. Until then every reader that started from the beginning had that long
to learn that the key is gone.
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

_NO_TIMESTAMP: Final = -1
_DELTA_MIN: Final = -(1 << 63)
_KEY_BYTES_MAX: Final = 31


def map_key(key: bytes) -> bytes:
    """A key as the offset map holds it: long ones as a digest, which no short key can equal."""
    return key if len(key) <= _KEY_BYTES_MAX else blake2b(key, digest_size=32).digest()


class Retention(NamedTuple):
    """By what rule the records of one batch stay. Times in ms."""

    offsets: Mapping[bytes, int]
    clean_end: int
    aborted: bool
    keep_empty: bool
    now_ms: int
    delete_retention_ms: int


class FilteredBatch(NamedTuple):
    """``batch`` is None when nothing stays."""

    batch: bytes | None
    records_kept: int
    records_without_key: int
    is_readable: bool = True


def filter_batch(batch: memoryview, header: BatchHeader, retention: Retention) -> FilteredBatch:
    """Apply the rule to exactly one batch whose CRC was checked.

    Control batches stay as they are: whether a marker may go is a matter of its whole transaction.
    So does a batch whose records cannot be read, unless its transaction was aborted: its CRC proves
    that its producer sent it so, which a topic without compaction takes.
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


class _Kept:
    """The records of a batch that stay, as runs of bytes: a batch may have a million of them."""

    def __init__(self) -> None:
        self.count = 0
        self.timestamp_delta_max = _DELTA_MIN
        self.has_tombstone = False
        self._starts = array("q")
        self._ends = array("q")
        self._counts = array("q")

    def add(self, span: RecordSpan) -> None:
        """One more, behind those before it."""
        self.count += 1
        self.timestamp_delta_max = max(self.timestamp_delta_max, span.timestamp_delta)
        self.has_tombstone = self.has_tombstone or not span.has_value
        if self._ends and self._ends[-1] == span.start:
            self._ends[-1] = span.end
            self._counts[-1] += 1
        else:
            self._starts.append(span.start)
            self._ends.append(span.end)
            self._counts.append(1)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Where each run of records begins and ends in the payload, and how many it has."""
        return zip(self._starts, self._ends, self._counts, strict=True)


def _stays(key: bytes, span: RecordSpan, header: BatchHeader, retention: Retention) -> bool:
    """Branches on one record, in Kafka's order."""
    offset = header.base_offset + span.offset_delta
    if retention.aborted:
        return False
    if offset >= retention.clean_end:
        return True
    if retention.offsets.get(map_key(key), -1) > offset:
        return False
    expired = header.has_delete_horizon and header.base_timestamp <= retention.now_ms
    return span.has_value or not expired


def _with_records(
    batch: memoryview,
    header: BatchHeader,
    payload: bytes,
    kept: _Kept,
    retention: Retention,
) -> bytes:
    """The batch with only the kept records in it, compressed as before; as it was where nothing
    changes.
    """
    sets_horizon = not header.has_delete_horizon and kept.has_tombstone
    if kept.count == header.record_count and not sets_horizon:
        return bytes(batch)
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + kept.timestamp_delta_max
    # One buffer that grows: joining a million pieces would need as much memory again.
    records = bytearray()
    if sets_horizon:
        horizon = retention.now_ms + retention.delete_retention_ms
        shift = header.base_timestamp - horizon
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


def _rest(header: BatchHeader, retention: Retention) -> bytes | None:
    """What remains of a batch without records."""
    return _emptied(header) if retention.keep_empty else None


def _emptied(header: BatchHeader) -> bytes:
    """A header alone, which keeps the offsets and the producer's epoch and sequences."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return assemble_batch(
        header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0), b""
    )
