"""Aborted transactions of one segment, for readers of committed records.

File (Kafka's format): entries of 34 bytes, big-endian, in the order of their markers: int16
version 0, int64 producer id, int64 first offset, int64 last offset (of the abort marker), int64
last stable offset when the marker was written. There is no checksum. After a power failure the end
of the file that was not synced may be zeros, so what follows the last entry in order is ignored.
"""

import struct
from collections.abc import Iterable
from typing import Final

from tidemark.storage.disk import Disk

from broker.core.open_txns import AbortedTxn

__all__ = ("AbortedTxn", "TxnIndex", "aborted_between", "decode_aborted", "encode_aborted")

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


def encode_aborted(aborted: Iterable[AbortedTxn]) -> bytes:
    """Return entries in the file's format."""
    return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in aborted)


def decode_aborted(path: str, content: bytes) -> list[AbortedTxn]:
    """Return a file's entries up to the first one that is torn or out of order. Raises ValueError
    for a newer version.
    """
    entries: list[AbortedTxn] = []
    marker = -1
    whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
    for version, *fields in _ENTRY.iter_unpack(content[:whole]):
        if version != _VERSION:
            raise ValueError(f"{path}: version {version} is newer than this release supports")
        txn = AbortedTxn(*fields)
        if not marker < txn.last_offset > txn.first_offset:
            break
        marker = txn.last_offset
        entries.append(txn)
    return entries


def aborted_between(aborted: Iterable[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    """Return the transactions with a record in [start, end)."""
    return [txn for txn in aborted if txn.last_offset >= start and txn.first_offset < end]


class TxnIndex:
    """Aborted transactions whose marker is in one segment.

    They are in memory as soon as the marker is in the log, for readers may pass the aborted records
    from then on. The file takes them at once, or, if there is no space, before the log counts as
    synced: only a walk of the log could restore them.
    """

    __slots__ = ("_path", "_written_count", "aborted", "has_file")

    def __init__(self, path: str, aborted: list[AbortedTxn], *, has_file: bool = False) -> None:
        self._path = path
        self._written_count = len(aborted)
        self.aborted = aborted
        """Transactions in the order of their markers."""
        self.has_file = has_file
        """True if there is a file to sync; one without entries may have lost some."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> "TxnIndex":
        """Return the index in its file. Raises DiskError, ValueError for a newer version."""
        try:
            content = disk.read_whole(path)
        except FileNotFoundError:
            return cls(path, [])
        return cls(path, decode_aborted(path, content), has_file=True)

    def moved_to(self, path: str) -> None:
        """Note that the file has another path."""
        self._path = path

    def add(self, txn: AbortedTxn) -> None:
        """Add a transaction, unless it is present: a walk of the log may find its marker again."""
        if not self.aborted or txn.last_offset > self.aborted[-1].last_offset:
            self.aborted.append(txn)

    def write(self, disk: Disk) -> None:
        """Append the entries that the file lacks. Raises DiskError."""
        missing = self.aborted[self._written_count :]
        if not missing:
            return
        position = self._written_count * ENTRY_BYTES
        file = disk.open(self._path, create=True)
        self.has_file = True
        try:
            if file.size_bytes != position:
                file.truncate(position)
            file.write_at(position, [encode_aborted(missing)])
        finally:
            file.close()
        self._written_count = len(self.aborted)

    def cut_to(self, disk: Disk, end: int) -> None:
        """Remove transactions whose marker is at or beyond ``end``, after a truncation."""
        self.aborted = [txn for txn in self.aborted if txn.last_offset < end]
        if len(self.aborted) >= self._written_count:
            return
        self._written_count = len(self.aborted)
        file = disk.open(self._path)
        try:
            file.truncate(self._written_count * ENTRY_BYTES)
        finally:
            file.close()
