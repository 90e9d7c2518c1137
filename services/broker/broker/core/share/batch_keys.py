"""Hashes of the keys of batches, for groups that order records by key.

A worker process walks the records. A batch whose keys are not known yet ends a read before it.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from tidemark.codec.record_batch import read_header
from tidemark.codec.records import RecordsError, payload_chunks, scan_chunks
from tidemark.model.ids import InstantMs, Offset

from broker.core.share.acquisition import LogBatch, LogRead

Keys = Mapping[Offset, int | None]
"""Hash of the key of each record, None for a record without a key."""

HASH_BYTES: Final = 8
RETRY_MS: Final = 1_000
"""Pause after a batch could not be walked."""


def key_hash(key: bytes) -> int:
    """Return the hash of a key: the same at every leader."""
    return int.from_bytes(blake2b(key, digest_size=HASH_BYTES).digest(), "big")


def key_hashes(batch: bytes) -> dict[Offset, int | None]:
    """Return, in the worker, the hash of each record's key. Raises RecordsError."""
    header = read_header(batch)
    hashes: dict[Offset, int | None] = {}
    before = -1
    for span in scan_chunks(payload_chunks(batch, header), header.record_count):
        if not before < span.offset_delta <= header.last_offset_delta:
            raise RecordsError(
                f"offset delta {span.offset_delta} follows {before}, and the last one is"
                f" {header.last_offset_delta}"
            )
        before = span.offset_delta
        offset = Offset(header.base_offset + span.offset_delta)
        hashes[offset] = None if span.key is None else key_hash(span.key)
    return hashes


class KeyCache:
    """Keys of the batches of one share-partition, by first offset, as long as its window has them.

    Invariant: a batch is known, or at a worker, or has a time of its next attempt, or none of them.
    """

    def __init__(self) -> None:
        self._known: dict[Offset, tuple[Offset, Keys]] = {}
        self._at_worker: set[Offset] = set()
        self._retry_at: dict[Offset, InstantMs] = {}

    def __len__(self) -> int:
        return len(self._known)

    def known(self, batch: LogBatch) -> Keys | None:
        """Return the keys of a batch, or None."""
        found = self._known.get(batch.first_offset)
        return None if found is None else found[1]

    def begin(self, batch: LogBatch, now: InstantMs) -> bool:
        """Return True if a worker is to walk a batch now."""
        first = batch.first_offset
        if not batch.has_records or first in self._known or first in self._at_worker:
            return False
        if self._retry_at.get(first, now) > now:
            return False
        self._retry_at.pop(first, None)
        self._at_worker.add(first)
        return True

    def learn(self, batch: LogBatch, keys: Keys) -> None:
        """Take the result of a worker."""
        self._at_worker.discard(batch.first_offset)
        self._known[batch.first_offset] = (batch.last_offset, keys)

    def fail(self, batch: LogBatch, now: InstantMs) -> None:
        """Note that a batch could not be walked: it is tried again after a pause."""
        self._at_worker.discard(batch.first_offset)
        self._retry_at[batch.first_offset] = InstantMs(now + RETRY_MS)

    def has_failed(self, batch: LogBatch) -> bool:
        """Return True if the last attempt to walk a batch has failed."""
        return batch.first_offset in self._retry_at

    def drop_below(self, start: Offset) -> None:
        """Drop batches that a window has left behind."""
        gone = [first for first, (last, _) in self._known.items() if last < start]
        for first in gone:
            del self._known[first]

    def cut(self, read: LogRead) -> LogRead | None:
        """Return a read with keys, up to the first batch whose keys are not known; None if nothing
        of it is left.
        """
        batches: list[LogBatch] = []
        end = read.end
        for batch in read.batches:
            if batch.has_records:
                keys = self.known(batch)
                if keys is None:
                    end = batch.first_offset
                    break
                batch = batch._replace(keys=keys)
            batches.append(batch)
        return LogRead(read.first_offset, end, batches) if end > read.first_offset else None
