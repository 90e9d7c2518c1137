"""Operations on whole files of segments: creation, renaming for removal, replacement by compacted
ones.

A file is never removed while it may still be about to be opened. It gets the suffix .deleted and is
removed after file.delete.delay.ms. A replacement is first named .cleaned (being written), then
.swap (complete, to be put in place even after a crash), then takes its place. Its .log is renamed
last of its files each time, and there is one .log for all segments that it replaces. So a .log.swap
needs no other file, and a .cleaned file is of no use to the next process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import Disk

from broker.storage import producer_snapshot
from broker.storage.directory import LogDirectory
from broker.storage.segment import (
    CLEANED,
    DELETED,
    LOG,
    SUFFIXES,
    SWAP,
    Segment,
    stem,
    walk_headers,
)

_DIGITS: Final = 20
_TEMPORARY: Final = (DELETED, CLEANED, SWAP, ".tmp")


@dataclass(slots=True)
class LogFiles:
    """Files of one partition's directory: base offsets and snapshot offsets, sorted."""

    bases: list[int]
    snapshots: list[int]


def _number(name: str, suffix: str) -> int | None:
    digits = name.removesuffix(suffix)
    return int(digits) if len(digits) == _DIGITS and digits.isdigit() and name != digits else None


def _numbered(names: Sequence[str], suffix: str) -> list[int]:
    numbers = (_number(name, suffix) for name in names if name.endswith(suffix))
    return sorted(number for number in numbers if number is not None)


def tidy_files(disk: Disk, directory: str) -> LogFiles:
    """Finish or undo operations that a crash interrupted (a swap, a removal); return the files."""
    names = disk.list(directory)
    if any(name.endswith(_TEMPORARY) for name in names):
        _finish_swaps(disk, directory, names)
        for name in disk.list(directory):
            if name.endswith(_TEMPORARY):
                disk.remove(f"{directory}/{name}")
        names = disk.list(directory)
    return LogFiles(_numbered(names, LOG), _numbered(names, producer_snapshot.SUFFIX))


def _finish_swaps(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Replace segments by a .swap file that contains their records."""
    bases = _numbered(names, LOG)
    for base in _numbered(names, LOG + SWAP):
        last = _last_offset(disk, stem(directory, base) + LOG + SWAP, base)
        if last is None and base in bases:
            continue
        for old in bases:
            if base <= old <= (base if last is None else last):
                for suffix in SUFFIXES:
                    disk.remove(stem(directory, old) + suffix)
        _put_in_place(disk, directory, base)


def _last_offset(disk: Disk, path: str, base_offset: int) -> int | None:
    """Return the last offset of a segment file, its base if it is empty, None if it is damaged."""
    last = base_offset
    file = disk.open(path)
    try:
        for _, header in walk_headers(file, 0, file.size_bytes):
            last = header.last_offset
    except FrameError:
        return None
    finally:
        file.close()
    return last


def _put_in_place(disk: Disk, directory: str, base: int) -> None:
    """Rename a replacement's files, indexes first: a .log in place has its own indexes, or none."""
    path = stem(directory, base)
    for suffix in reversed(SUFFIXES):
        if disk.exists(path + suffix + SWAP):
            disk.rename(path + suffix + SWAP, path + suffix)


def new_segment(disk: Disk, directory: str, base_offset: int, now_ms: int) -> Segment:
    """Create an empty segment, warm, without bytes that a failed attempt left under its name."""
    segment = Segment(directory, base_offset, 0, now_ms)
    if disk.exists(segment.stem + LOG):
        for suffix in SUFFIXES:
            disk.remove(segment.stem + suffix)
    segment.warm(disk, create=True)
    return segment


def retire(shared: LogDirectory, segments: Sequence[Segment], due_ms: int) -> None:
    """Rename the files of segments that left the log; they are removed once ``due_ms`` has come."""
    for segment in segments:
        shared.forget(segment)
        for suffix in SUFFIXES:
            path = segment.stem + suffix
            if shared.disk.exists(path):
                shared.disk.rename(path, path + DELETED)
                shared.remove_later(path + DELETED, due_ms)


def remove_cleaned(disk: Disk, cleaned_path: str) -> None:
    """Remove an unused replacement (``<stem>.log.cleaned``) with its indexes, if it has any."""
    for suffix in SUFFIXES:
        disk.remove(cleaned_path.removesuffix(LOG + CLEANED) + suffix + CLEANED)


def remove_all_cleaned(disk: Disk, directory: str) -> None:
    """Remove the files that failed rounds left behind."""
    for name in disk.list(directory):
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")


def swap_in(
    shared: LogDirectory, old: Sequence[Segment], cleaned_path: str, due_ms: int
) -> Segment:
    """Put a compacted segment (``<stem>.log.cleaned``, synced) in the place of ``old`` ones.

    Its index files named .cleaned are put in place too; missing ones are built on demand.
    """
    disk = shared.disk
    path = cleaned_path.removesuffix(LOG + CLEANED)
    for suffix in reversed(SUFFIXES):
        if disk.exists(path + suffix + CLEANED):
            disk.rename(path + suffix + CLEANED, path + suffix + SWAP)
    retire(shared, old, due_ms)
    directory, _, digits = path.rpartition("/")
    _put_in_place(disk, directory, int(digits))
    return Segment(directory, int(digits), disk.size_of(path + LOG), shared.now_ms)
