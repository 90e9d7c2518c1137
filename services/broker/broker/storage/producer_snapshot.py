"""Producers of a partition at one offset: ``<offset, 20 digits>.snapshot``.

    int16 version   uint32 CRC-32C of all that follows   int32 producers
    each: int64 producer id, int16 epoch, int32 coordinator epoch, int64 first offset of the open
          transaction (-1), int64 updated at (ms), int8 batches
          each: int32 base sequence, int32 last sequence, int64 base offset, int64 last offset,
                int64 timestamp

then int32 owner epoch (-1), int32 transactions that ended and may not be replicated
    each: int64 first offset, int64 marker's offset

Version 2, big-endian; version 1 ends behind the producers. Kafka keeps the last batch only; we keep
all five, so that a retry of any batch in flight is recognised after a restart too.
"""

import struct
from bisect import insort
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c
from tidemark.storage.disk import Disk

from broker.core.producers import ProducedBatch, ProducerEntry, ProducerState, ProducerTable
from broker.storage.checkpoint import CheckpointError, NewerVersionError

SUFFIX: Final = ".snapshot"
KEPT: Final = 3
_VERSION: Final = 2
_WITHOUT_TXNS: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhiqqb")
_BATCH: Final = struct.Struct(">iiqqq")
_OWNER: Final = struct.Struct(">ii")
_ENDED: Final = struct.Struct(">qq")


def encode_snapshot(state: ProducerState) -> bytes:
    """Return a snapshot file's content."""
    body = [_COUNT.pack(len(state.entries))]
    for entry in state.entries:
        body.append(
            _PRODUCER.pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
                entry.updated_at,
                len(entry.batches),
            )
        )
        body += [_BATCH.pack(*batch) for batch in entry.batches]
    body.append(_OWNER.pack(state.owner_epoch, len(state.ended)))
    body += [_ENDED.pack(*one) for one in state.ended]
    content = b"".join(body)
    return _HEAD.pack(_VERSION, crc32c(content)) + content


def decode_snapshot(path: str, content: bytes) -> ProducerState:
    """Read a snapshot. Raises NewerVersionError, or CheckpointError if it is not as written."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CheckpointError(path, "too short for a producer snapshot")
    version, crc = _HEAD.unpack_from(content)
    if version > _VERSION:
        raise NewerVersionError(path, f"version {version} is newer than this release supports")
    if version not in (_WITHOUT_TXNS, _VERSION) or crc != crc32c(memoryview(content)[_HEAD.size :]):
        raise CheckpointError(path, "not the bytes that were written")
    (count,) = _COUNT.unpack_from(content, _HEAD.size)
    entries, at = [], _HEAD.size + _COUNT.size
    for _ in range(count):
        producer_id, epoch, coordinator_epoch, txn_first, updated_at, batch_count = (
            _PRODUCER.unpack_from(content, at)
        )
        at += _PRODUCER.size
        end = at + batch_count * _BATCH.size
        batches = tuple(ProducedBatch(*batch) for batch in _BATCH.iter_unpack(content[at:end]))
        entries.append(
            ProducerEntry(producer_id, epoch, coordinator_epoch, txn_first, updated_at, batches)
        )
        at = end
    if version == _WITHOUT_TXNS:
        return ProducerState(tuple(entries))
    owner_epoch, ended_count = _OWNER.unpack_from(content, at)
    at += _OWNER.size
    ended = tuple(
        _ENDED.unpack_from(content, at + number * _ENDED.size) for number in range(ended_count)
    )
    return ProducerState(tuple(entries), owner_epoch, ended)


def _path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{SUFFIX}"


class ProducerSnapshots:
    """Snapshot files of one log; each covers all records below its offset."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Sequence[int]) -> None:
        self._disk = disk
        self._directory = directory
        self.offsets = list(offsets)
        """Offsets of the files, oldest first."""

    def moved_to(self, directory: str) -> None:
        """Note that the directory has another name."""
        self._directory = directory

    def write(self, state: ProducerState, offset: int, *, recoverable: int) -> None:
        """Store the state as of ``offset``. Kept are the latest few, and the latest one that a
        start after a crash trusts: up to ``recoverable``, beyond which batches may be lost.
        """
        if offset in self.offsets:
            return
        self._disk.replace_whole(_path(self._directory, offset), encode_snapshot(state), sync=False)
        insort(self.offsets, offset)
        trusted = [one for one in self.offsets if one <= recoverable][-1:]
        self._remove([one for one in self.offsets[:-KEPT] if one not in trusted])

    def has_within(self, first: int, last: int) -> bool:
        """True if there is a snapshot as of an offset in [first, last]."""
        return any(first <= one <= last for one in self.offsets)

    def load_latest(self, producers: ProducerTable, offset_max: int) -> int | None:
        """Restore the latest usable snapshot up to ``offset_max``; return its offset, or None."""
        for offset in reversed(self.offsets):
            if offset > offset_max:
                continue
            path = _path(self._directory, offset)
            try:
                producers.restore(decode_snapshot(path, self._disk.read_whole(path)))
            except NewerVersionError:
                raise
            except (CheckpointError, FileNotFoundError):
                continue
            return offset
        producers.clear()
        return None

    def cut_to(self, end: int) -> None:
        """Remove snapshots beyond ``end`` after a truncation: they cover records that are gone."""
        self._remove([offset for offset in self.offsets if offset > end])

    def remove_all(self) -> None:
        """Remove every snapshot, before the log begins again without its records."""
        self._remove(self.offsets)

    def _remove(self, offsets: Sequence[int]) -> None:
        for offset in tuple(offsets):
            self._disk.remove(_path(self._directory, offset))
            self.offsets.remove(offset)
