"""Kafka's frames in a byte stream: 4 bytes of length, then the frame. No I/O."""

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">i")
_SCRATCH_BYTES: Final = 64 * 1024


class FrameError(ValueError):
    """Length that no valid response has."""


class FrameAssembler:
    """Assembler of frames. Small frames pass through a scratch buffer, large ones have their own.

    Read into ``buffer()``, then call ``received(count)`` for the completed frames. The memory of a
    frame is never reused, so views of it stay valid.
    """

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._filled = 0  # bytes used in the scratch buffer
        self._frame: bytearray | None = None
        self._frame_filled = 0

    @property
    def is_between_frames(self) -> bool:
        """True if the stream may end here without truncating a frame."""
        return self._frame is None and self._filled == 0

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._scratch)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """Take ``count`` bytes written into ``buffer()``; return the completed frames.

        Raises FrameError.
        """
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
        """Move an incomplete frame to the front, or to a buffer of its own if it is large."""
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
