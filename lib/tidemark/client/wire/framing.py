"""Kafka's frames out of a byte stream: 4 bytes of length, then the frame. No I/O: whoever reads
fills ``buffer``.
"""

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">i")
_SCRATCH_BYTES: Final = 64 * 1024


class FrameError(ValueError):
    """A length that no answer may have."""


class FrameAssembler:
    """Small frames come out of a scratch buffer; a larger one is received straight into memory of
    its own.

    Use: ``buffer()`` to read into, then ``received(count)`` for the frames that became whole. A
    frame's memory is never reused, so that views of it may be kept.
    """

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0  # of the scratch buffer
        self._frame: bytearray | None = None
        self._frame_filled = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here without cutting a frame."""
        return self._frame is None and self._filled == 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Take ``count`` bytes that were written into ``buffer()``. Raises FrameError."""
        if self._frame is not None:
            return self._received_large(self._frame, count)
        self._filled += count
        frames: list[memoryview] = []
        position = 0
        while self._filled - position >= _LENGTH.size:
            size = self._size_at(position)
            end = position + _LENGTH.size + size
            if end > self._filled:
                break
            frames.append(memoryview(bytes(self._scratch[position + _LENGTH.size : end])))
            position = end
        self._keep_from(position)
        return frames

    def _size_at(self, position: int) -> int:
        (size,) = _LENGTH.unpack_from(self._scratch, position)
        if not _LENGTH.size <= size <= self._frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes (allowed: up to {self._frame_bytes_max})")
        return int(size)

    def _received_large(self, frame: bytearray, count: int) -> list[memoryview]:
        self._frame_filled += count
        if self._frame_filled < len(frame):
            return []
        self._frame = None
        return [memoryview(frame)]

    def _keep_from(self, position: int) -> None:
        """Move an unfinished frame to the front, or into memory of its own when it is larger than
        the scratch.
        """
        rest = self._filled - position
        if rest >= _LENGTH.size:
            size = self._size_at(position)
            if size + _LENGTH.size > _SCRATCH_BYTES:
                start = position + _LENGTH.size
                self._frame = bytearray(size)
                self._frame_filled = self._filled - start
                self._frame[: self._frame_filled] = self._scratch[start : self._filled]
                self._filled = 0
                return
        if position:
            self._scratch[:rest] = self._scratch[position : self._filled]
        self._filled = rest
