"""Aborted transactions of one segment, for readers who want committed records only.

File (Kafka's format): entries of 34 bytes, big-endian, in the order of their markers: int16
version 0, int64 producer id, int64 first offset, int64 last offset (of the abort marker), int64
last stable offset when the marker was written.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer: its records, first to last offset inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable: int


def encode_aborted(aborted: Iterable[AbortedTxn]) -> bytes:
    """As the file wants them."""
    return b"".join(_ENTRY.pack(_VERSION, *txn) for txn in aborted)


def decode_aborted(path: str, content: bytes) -> list[AbortedTxn]:
    """From a file; a torn last entry is left out. Raises ValueError for a newer version."""
    found = []
    whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
    for version, *fields in _ENTRY.iter_unpack(content[:whole]):
        if version != _VERSION:
            raise ValueError(f"{path}: version {version} is newer than this release knows")
        found.append(AbortedTxn(*fields))
    return found


def aborted_between(aborted: Iterable[AbortedTxn], start: int, end: int) -> list[AbortedTxn]:
    """Those with a record in [start, end)."""
    return [txn for txn in aborted if txn.last_offset >= start and txn.first_offset < end]
