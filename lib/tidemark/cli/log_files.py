"""Decode the files of a partition's directory into rows of plain values, for ``tidemark log dump``.

It only reads, accepts damaged files, and reports the position of the damage. The broker's storage
writes these formats; tests read back its files.
"""

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from tidemark.codec.compression import CODEC_NAMES
from tidemark.codec.control_record import ControlRecord, OwnerRecord, read_control
from tidemark.codec.record_batch import BatchHeader
from tidemark.codec.records import Record, RecordsError, read_records
from tidemark.storage.batch_walk import (
    CHUNK_BYTES,
    FrameError,
    ReadableFile,
    WalkedBatch,
    walk_batches,
)

Row = dict[str, object]

_INDEX_ENTRY: Final = struct.Struct(">Ii")
_TIME_INDEX_ENTRY: Final = struct.Struct(">qI")
_TXN_INDEX_ENTRY: Final = struct.Struct(">hqqqq")
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_PRODUCER: Final = struct.Struct(">qhiqqb")
_SNAPSHOT_BATCH: Final = struct.Struct(">iiqqq")
_SNAPSHOT_VERSIONS: Final = (1, 2)
_SNAPSHOT_TAIL: Final = struct.Struct(">ii")
_CRC_COVERS_FROM: Final = 6
_SUFFIXES_IN_TRANSIT: Final = re.compile(r"\.(cleaned|swap|deleted)$")


class DecodeError(ValueError):
    """The file cannot be decoded from here on. The message has the bytes or values found."""


@dataclass(slots=True)
class LogSummary:
    """Result of a complete walk over a segment."""

    batches: int = 0
    records: int = 0
    bytes_read: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    bad_batches: int = 0
    first_bad_position: int | None = None
    problem: str | None = None

    def note_bad(self, position: int, problem: str) -> None:
        """Record the first problem. Batches are counted elsewhere."""
        if self.first_bad_position is None:
            self.first_bad_position, self.problem = position, problem


class SmallFile(NamedTuple):
    """Kind of file that is decoded as a whole, with its columns in order."""

    kind: str
    columns: tuple[str, ...]
    decode: Callable[[bytes, int], Iterable[Row]]
    """Yields rows of the content and the name's base offset. May raise DecodeError midway."""


def file_kind(name: str) -> "SmallFile | str | None":
    """Return the kind of file by its name: ``"log"`` for a segment, the decoder of a small file,
    or None for any other file.
    """
    name = _SUFFIXES_IN_TRANSIT.sub("", name)
    if name.endswith(".log"):
        return "log"
    return next((small for end, small in _SMALL_FILES.items() if name.endswith(end)), None)


def base_offset_of(name: str) -> int:
    """Return the base offset in the name of a segment's file; 0 if there is none."""
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isdecimal() else 0


def walk_log(
    file: ReadableFile, size_bytes: int, summary: LogSummary
) -> Iterator[tuple[WalkedBatch, Row]]:
    """Yield every batch of a segment with its row, and fill ``summary``."""
    try:
        for walked in walk_batches(file, 0, size_bytes):
            header = walked.header
            summary.batches += 1
            summary.records += header.record_count
            summary.bytes_read += header.size_bytes
            summary.last_offset = header.last_offset
            if summary.first_offset is None:
                summary.first_offset = header.base_offset
            if not walked.crc_ok:
                summary.bad_batches += 1
                summary.note_bad(walked.position, "CRC does not match")
            yield walked, batch_row(walked)
    except FrameError as problem:
        rest = size_bytes - problem.position
        zeros = _is_zero(file, problem.position, size_bytes)
        summary.note_bad(
            problem.position, f"{rest} zero bytes to the end" if zeros else problem.what
        )


def _is_zero(file: ReadableFile, start: int, end: int) -> bool:
    return not any(
        any(file.read_at(position, min(CHUNK_BYTES, end - position)))
        for position in range(start, end, CHUNK_BYTES)
    )


def batch_row(walked: WalkedBatch) -> Row:
    """Return the row of a batch's header."""
    header = walked.header
    return {
        "position": walked.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": CODEC_NAMES.get(header.compression, str(header.compression)),
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "flags": _flags(header),
        "crc": f"{header.crc:08x}",
        "crc_ok": walked.crc_ok,
    }


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        "log-append-time": header.is_log_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete-horizon": header.has_delete_horizon,
    }
    return [name for name, is_set in flags.items() if is_set]


def record_rows(walked: WalkedBatch) -> list[Row]:
    """Return the rows of a batch's records. Raises DecodeError if they cannot be read."""
    try:
        rows = [_record_row(record) for record in read_records(walked.batch, walked.header)]
        if walked.header.is_control and rows:
            rows[0]["control"] = _control(read_control(walked.batch, walked.header))
    except RecordsError as problem:
        raise DecodeError(str(problem)) from None
    return rows


def _control(record: ControlRecord | None) -> str | None:
    if isinstance(record, OwnerRecord):
        return f"owner {record.owner_epoch}"
    return None if record is None else "commit" if record.commits else "abort"


def _record_row(record: Record) -> Row:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": readable(record.key),
        "value": readable(record.value),
        "headers": {name: readable(value) for name, value in record.headers},
    }


def readable(data: bytes | None) -> str | None:
    """Return printable text unchanged, other bytes as ``base64:...``, and None for null."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else "base64:" + base64.b64encode(data).decode()


def _entries(layout: struct.Struct, content: bytes) -> Iterator[tuple[int, ...]]:
    whole = len(content) // layout.size * layout.size
    yield from layout.iter_unpack(content[:whole])
    if whole != len(content):
        raise DecodeError(f"{len(content) - whole} bytes at {whole} are not an entry")


def _offset_index(content: bytes, base_offset: int) -> Iterator[Row]:
    for relative, position in _entries(_INDEX_ENTRY, content):
        yield {"offset": base_offset + relative, "position": position}


def _time_index(content: bytes, base_offset: int) -> Iterator[Row]:
    for timestamp, relative in _entries(_TIME_INDEX_ENTRY, content):
        yield {"timestamp": timestamp, "offset": base_offset + relative}


def _txn_index(content: bytes, base_offset: int) -> Iterator[Row]:
    del base_offset
    for version, producer_id, first, last, last_stable in _entries(_TXN_INDEX_ENTRY, content):
        if version != 0:
            raise DecodeError(f"version {version} is not known")
        yield {
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable": last_stable,
        }


def _snapshot(content: bytes, base_offset: int) -> Iterator[Row]:
    """Yield a row for each producer, with batches as ``base..last sequence@base..last offset``."""
    del base_offset
    if len(content) < _SNAPSHOT_HEAD.size:
        raise DecodeError(f"{len(content)} bytes are too short for a snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(content)
    if version not in _SNAPSHOT_VERSIONS:
        raise DecodeError(f"version {version} is not known")
    if crc != crc32c(memoryview(content)[_CRC_COVERS_FROM:]):
        raise DecodeError("CRC does not match")
    at = _SNAPSHOT_HEAD.size
    for _ in range(count):
        producer = _SNAPSHOT_PRODUCER.unpack_from(content, at)
        producer_id, epoch, coordinator_epoch, txn_start, updated_at, batch_count = producer
        at += _SNAPSHOT_PRODUCER.size
        end = at + batch_count * _SNAPSHOT_BATCH.size
        yield {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "coordinator_epoch": coordinator_epoch,
            "open_txn_first_offset": txn_start,
            "updated_at": updated_at,
            "batches": [
                f"{first}..{last}@{base}..{final}"
                for first, last, base, final, _ in _SNAPSHOT_BATCH.iter_unpack(content[at:end])
            ],
        }
        at = end
    if version > 1:
        owner_epoch, ended_count = _SNAPSHOT_TAIL.unpack_from(content, at)
        if owner_epoch >= 0 or ended_count:
            yield {"owner_epoch": owner_epoch, "ended_unreplicated": ended_count}


def _checkpoint(columns: tuple[str, ...]) -> Callable[[bytes, int], Iterator[Row]]:
    """Return a decoder of Kafka's checkpoints: version, number of entries, one entry per line."""

    def decode(content: bytes, base_offset: int) -> Iterator[Row]:
        del base_offset
        lines = content.decode("utf-8", "replace").splitlines()
        if len(lines) < 2 or lines[0] != "0":
            raise DecodeError(f"expected version 0, found {lines[:1]}")
        for number, line in enumerate(lines[2:], 3):
            fields = line.split(" ")
            if len(fields) != len(columns):
                raise DecodeError(f"line {number} has {len(fields)} fields: {line[:80]!r}")
            yield {
                name: int(text) if text.lstrip("-").isdecimal() else text
                for name, text in zip(columns, fields, strict=True)
            }
        if lines[1] != str(len(lines) - 2):
            raise DecodeError(f"{len(lines) - 2} entries, the second line says {lines[1]!r}")

    return decode


def _small_checkpoint(kind: str, columns: tuple[str, ...]) -> SmallFile:
    return SmallFile(kind, columns, _checkpoint(columns))


_SMALL_FILES: Final[Mapping[str, SmallFile]] = {
    ".index": SmallFile("offset index", ("offset", "position"), _offset_index),
    ".timeindex": SmallFile("time index", ("timestamp", "offset"), _time_index),
    ".txnindex": SmallFile(
        "aborted transactions",
        ("producer_id", "first_offset", "last_offset", "last_stable"),
        _txn_index,
    ),
    ".snapshot": SmallFile(
        "producers",
        (
            "producer_id",
            "producer_epoch",
            "coordinator_epoch",
            "open_txn_first_offset",
            "updated_at",
            "batches",
        ),
        _snapshot,
    ),
    "leader-epoch-checkpoint": _small_checkpoint("leader epochs", ("leader_epoch", "start_offset")),
    "-offset-checkpoint": _small_checkpoint("offsets", ("topic", "partition", "offset")),
}
