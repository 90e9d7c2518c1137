"""Records as a log has them: every batch of a fetch, with the state of its transaction. Pure."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import HEADER_BYTES, MAGIC_V2, BatchHeader, read_header
from tidemark.codec.records import RecordsError, read_records

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bound on the decompressed size of one batch."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

RecordState = Literal["plain", "committed", "aborted", "open", "marker"]
SearchField = Literal["any", "key", "value", "headers"]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record. ``state`` is that of its transaction, ``plain`` without one; a ``marker`` is a
    control record, which consumers do not see.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    state: RecordState
    producer_id: int | None
    """None if the producer is not idempotent."""
    producer_epoch: int
    codec: str
    """Compression of its batch."""
    is_append_time: bool
    """True if the broker has set the timestamp."""
    note: str = ""
    """Meaning of a marker, or the reason why a batch cannot be read."""


@dataclass(frozen=True, slots=True)
class Search:
    """Filter of records: a text that occurs in a field, without regard to case."""

    text: str = ""
    field: SearchField = "any"

    def matches(self, record: StoredRecord) -> bool:
        """True if the record contains the text."""
        if not self.text:
            return True
        wanted = self.text.casefold()
        return any(wanted in text.casefold() for text in self._texts(record))

    def _texts(self, record: StoredRecord) -> Iterator[str]:
        if self.field in ("any", "key") and record.key is not None:
            yield record.key.decode(errors="replace")
        if self.field in ("any", "value") and record.value is not None:
            yield record.value.decode(errors="replace")
        if self.field in ("any", "headers"):
            for name, value in record.headers:
                yield f"{name}={(value or b'').decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes of one fetch, and the state of the transactions in them at the leader."""

    topic: str
    partition: int
    records: memoryview
    last_stable: int
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions."""


def read_fetched(fetched: Fetched, first: int, end: int) -> tuple[list[StoredRecord], int]:
    """Return the records at offsets [first, end), and the end of the last whole batch (-1: there is
    none). A batch that cannot be read has one record, with the reason.
    """
    found: list[StoredRecord] = []
    read_to = -1
    aborted = _Aborted(fetched.aborted)
    for view, header in _whole_batches(fetched.records):
        read_to = header.last_offset + 1
        state = aborted.state_of(view, header, fetched.last_stable)
        if read_to > first and header.base_offset < end:
            rows = _records(fetched, view, header, state)
            found += [row for row in rows if first <= row.offset < end]
    return found, read_to


class _Aborted:
    """Transactions that are aborted at the batch that is read next."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._later = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._now: set[int] = set()

    def state_of(self, view: memoryview, header: BatchHeader, last_stable: int) -> RecordState:
        """Return the state of the records of the next batch."""
        while self._later and self._later[-1][1] <= header.last_offset:
            self._now.add(self._later.pop()[0])
        if header.is_control:
            if _marker(view, header) == "abort":
                self._now.discard(header.producer_id)
            return "marker"
        if not header.is_transactional:
            return "plain"
        if header.producer_id in self._now:
            return "aborted"
        return "open" if header.base_offset >= last_stable else "committed"


def _marker(view: memoryview, header: BatchHeader) -> str:
    try:
        record = read_control(view, header)
    except RecordsError as problem:
        return str(problem)
    if isinstance(record, EndTxnMarker):
        return "commit" if record.commits else "abort"
    return "change of owner" if record is not None else "control record"


def _records(
    fetched: Fetched, view: memoryview, header: BatchHeader, state: RecordState
) -> list[StoredRecord]:
    note = _marker(view, header) if state == "marker" else ""
    try:
        rows = read_records(view, header, bytes_max=BATCH_BYTES_MAX)
    except RecordsError as problem:
        note = f"offsets {header.base_offset} to {header.last_offset} cannot be read: {problem}"
        return [_record(fetched, header, state, note=note)]
    return [
        StoredRecord(
            fetched.topic,
            fetched.partition,
            row.offset,
            row.timestamp,
            row.key,
            row.value,
            row.headers,
            state,
            header.producer_id if header.producer_id >= 0 else None,
            header.producer_epoch,
            _codec(header),
            header.is_log_append_time,
            note,
        )
        for row in rows
    ]


def _record(
    fetched: Fetched, header: BatchHeader, state: RecordState, *, note: str
) -> StoredRecord:
    return StoredRecord(
        fetched.topic,
        fetched.partition,
        header.base_offset,
        header.max_timestamp,
        None,
        None,
        (),
        state,
        header.producer_id if header.producer_id >= 0 else None,
        header.producer_epoch,
        _codec(header),
        header.is_log_append_time,
        note,
    )


def _codec(header: BatchHeader) -> str:
    code = header.compression
    return CODECS[code] if code < len(CODECS) else f"codec {code}"


def _whole_batches(view: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield whole batches; the rest of an answer may hold a part of one."""
    position = 0
    while position + HEADER_BYTES <= len(view):
        try:
            header = read_header(view, position)
        except struct.error:
            return
        end = position + header.size_bytes
        if header.magic != MAGIC_V2 or header.size_bytes < HEADER_BYTES or end > len(view):
            return
        yield view[position:end], header
        position = end
