"""Bytes of a log for gRPC, read whole and checked: they pass through user space anyway."""

import asyncio

from tidemark.codec.record_batch import MAGIC_V2, crc_matches, iterate_headers
from tidemark.runtime.os_disk import OsFile

from broker.storage.segment_map import LogRead


class DamagedBatchError(Exception):
    """Stored bytes differ from what was appended. ``offset``: where the batch should begin, as far
    as that can be derived.
    """

    def __init__(self, path: str, position: int, offset: int) -> None:
        super().__init__(f"{path} at byte {position}: the batch at offset {offset} is damaged")
        self.path = path
        self.position = position
        self.offset = offset


class VoidSliceError(Exception):
    """The log was truncated below a slice after the slice was found: read again."""


async def read_checked(found: LogRead, fetch_offset: int) -> bytes:
    """Return the bytes of whole, undamaged batches. Cold ranges are read in a thread, so that the
    loop never waits for a disk.

    Raises DamagedBatchError, VoidSliceError, or DiskError.
    """
    if _is_warm(found):
        return read_and_check(found, fetch_offset)
    return await asyncio.to_thread(read_and_check, found, fetch_offset)


def _is_warm(found: LogRead) -> bool:
    """True if the range is in memory. Files that are not the operating system's (tests) always
    are.
    """
    return all(
        not isinstance(one.file, OsFile) or one.file.resident(one.position, one.length)
        for one in found.slices
    )


def read_and_check(found: LogRead, fetch_offset: int) -> bytes:
    """Read and check as ``read_checked`` does, in this thread."""
    pieces = []
    offset = fetch_offset
    for one in found.slices:
        piece = one.file.read_at(one.position, one.length)
        if one.file.truncated_to < one.position + one.length:
            raise VoidSliceError
        damaged_at, offset = first_damage(piece, one.length, offset)
        if damaged_at >= 0:
            raise DamagedBatchError(one.file.path, one.position + damaged_at, offset)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def first_damage(piece: bytes, length: int, offset: int) -> tuple[int, int]:
    """Return position and offset of the first batch of ``piece`` that is cut or fails its CRC.

    ``piece`` should be ``length`` bytes of whole batches, the first from ``offset`` on. Position -1
    means that there is no damage; the offset is then the one after the last batch.
    """
    view = memoryview(piece)
    end = 0
    for position, header in iterate_headers(view):
        batch = view[position : position + header.size_bytes]
        if header.magic != MAGIC_V2 or not crc_matches(batch, header):
            return position, offset
        end = position + header.size_bytes
        offset = header.last_offset + 1
    return (-1 if end == length == len(piece) else end), offset
