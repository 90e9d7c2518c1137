"""Walk the batches of a segment file in large reads: for compaction, the scrubber and tools.

Every byte is read into user space, so bit flips are detected here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from tidemark.codec.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    BatchHeader,
    crc_matches,
    read_header,
)
from tidemark.model.topics import TopicPartition

CHUNK_BYTES: Final = 1024 * 1024
_BATCH_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


class ReadableFile(Protocol):
    """The part of ``File`` that reading needs."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""


class WalkedBatch(NamedTuple):
    """One whole batch and its position. ``batch`` is a view: copy it to keep it beyond a step."""

    position: int
    header: BatchHeader
    batch: memoryview
    crc_ok: bool


class Damage(NamedTuple):
    """Bytes in a log that differ from the written ones: position, first offset, description."""

    topic_partition: TopicPartition
    path: str
    position: int
    offset: int
    what: str

    def __str__(self) -> str:
        """Return one line for the log."""
        return (
            f"{self.topic_partition}: {self.path} at byte {self.position}"
            f" (offset {self.offset}): {self.what}"
        )


class FrameError(ValueError):
    """There is no valid batch at ``position``, so that none after it can be found either."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(position, what)
        self.position = position
        self.what = what


def walk_batches(
    file: ReadableFile, start: int, end: int, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[WalkedBatch]:
    """Yield every batch between two positions (bytes), in order, with its CRC checked.

    ``start`` and ``end`` are batch boundaries. The walk continues after a batch with a wrong CRC
    (``crc_ok`` is False). Raises FrameError if the length or the magic is invalid, or a batch ends
    beyond ``end``.
    """
    window = _Window(file, end, chunk_bytes)
    position = start
    while position < end:
        if end - position < HEADER_BYTES:
            raise FrameError(position, f"{end - position} bytes are not a batch")
        header = read_header(window.view(position, HEADER_BYTES))
        problem = _framing_problem(header, end - position)
        if problem is not None:
            raise FrameError(position, problem)
        batch = window.view(position, header.size_bytes)
        yield WalkedBatch(position, header, batch, crc_matches(batch, header))
        position += header.size_bytes


def _framing_problem(header: BatchHeader, room_bytes: int) -> str | None:
    if header.magic != MAGIC_V2:
        return f"magic {header.magic} is not 2"
    if header.batch_length < _BATCH_LENGTH_MIN:
        return f"batch length {header.batch_length} is too small"
    if header.size_bytes > room_bytes:
        return f"a batch of {header.size_bytes} bytes does not fit into {room_bytes}"
    return None


class _Window:
    """Chunk of the file that was read last."""

    def __init__(self, file: ReadableFile, end: int, chunk_bytes: int) -> None:
        self._file = file
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._start = 0
        self._chunk = memoryview(b"")

    def view(self, position: int, length: int) -> memoryview:
        """Return exactly these bytes. Raises FrameError if the file has fewer."""
        at = position - self._start
        if at + length > len(self._chunk):
            wanted = min(max(self._chunk_bytes, length), self._end - position)
            self._chunk = memoryview(self._file.read_at(position, wanted))
            self._start, at = position, 0
            if len(self._chunk) < length:
                raise FrameError(
                    position, f"the file ends {length - len(self._chunk)} bytes too early"
                )
        return self._chunk[at : at + length]
