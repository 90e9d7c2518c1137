"""SendQueue: outgoing data of one connection, in order: bytes from memory, and slices of files sent
by sendfile.

It owns a duplicate of the socket's descriptor and all writing to the connection, so that a loop's
transport and raw writes never mix; writability is watched on the duplicate. Small pieces before a
slice are sent with MSG_MORE, in one segment with its beginning. A slice whose pages are cold is
sent by a thread: sendfile on a non-blocking socket still waits for the disk. A queued slice keeps
its file open. If the file has become shorter than the slice, or was truncated below its end
meanwhile, the connection is closed, so that other bytes are never sent in its place. A file that
cannot be read closes the connection too, and its disk is reported as failed.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, cast

from tidemark.runtime.os_disk import OsFile
from tidemark.storage.disk import DiskError, File

SENDFILE_BYTES_MAX: Final = 256 * 1024
TURN_BYTES_MAX: Final = 256 * 1024
"""Bytes that one connection sends before the loop serves the others. An answer with more bytes in
slices starts with the next turn: looking it up took as long as a turn.
"""
THREAD_BYTES_MAX: Final = 1024 * 1024
"""Bytes that a thread sends before it returns. Every hand-over costs the loop time; bytes sent by
the thread do not.
"""
COPY_BYTES_MAX: Final = 64 * 1024
"""Bytes copied at a time from a file without a descriptor (in-memory disks)."""


SLICE_READ_BYTES_MAX: Final = 64 * 1024
"""Size up to which a slice is read into memory and sent with the bytes around it by one call."""
READ_BYTES_MAX: Final = 256 * 1024
"""Bytes of one answer that are read so."""
PIECES_MAX: Final = 512
"""Pieces that one call sends; more are joined first."""

Part = bytes | tuple[File, int, int]
"""Bytes, or a slice of a file: position and length."""


class QueuedSlice:
    """Range of a file that is being sent."""

    __slots__ = ("file", "left", "position", "truncated_to")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.left = length
        self.truncated_to = file.truncated_to

    @property
    def is_cut(self) -> bool:
        """True if the file was truncated below the slice's end meanwhile: its bytes may differ."""
        cut_to = self.file.truncated_to
        return cut_to < self.truncated_to and cut_to < self.position + self.left


class SendQueue:
    """Outgoing bytes of one connection.

    ``queued_bytes`` counts the bytes in memory (not the slices, which stay on disk). ``on_drained``
    is called when the queue has become empty, ``on_broken`` once, when nothing more can be sent.
    ``on_unreadable`` follows if the reason is a file that could not be read.
    """

    __slots__ = (
        "_broken",
        "_closing",
        "_executor",
        "_in_thread",
        "_loop",
        "_on_broken",
        "_on_drained",
        "_on_unreadable",
        "_queue",
        "_socket",
        "_watching",
        "queued_bytes",
        "sent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        executor: Executor,
        *,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
        on_unreadable: Callable[[File, DiskError], None],
    ) -> None:
        """``descriptor`` is duplicated; ``executor`` has the threads for cold reads."""
        self._loop = loop
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.settimeout(0)
        self._executor = executor
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._on_unreadable = on_unreadable
        self._queue: deque[bytes | memoryview | QueuedSlice] = deque()
        self.queued_bytes = 0
        self.sent_bytes = 0
        self._watching = False
        self._in_thread = False
        self._broken = False
        self._closing = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def idle(self) -> bool:
        """True if nothing is queued or being sent."""
        return not self._queue and not self._in_thread

    def send(self, data: bytes) -> None:
        """Queue bytes and send as many as possible. On the hot path nothing is queued: one call."""
        if self._queue or self._in_thread or self._broken:
            if not self._broken:
                self._queue.append(data)
                self.queued_bytes += len(data)
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._break(error.strerror or str(error))
            return
        self.sent_bytes += sent
        if sent < len(data):
            self._keep(memoryview(data)[sent:])

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Queue bytes and slices (file, position, length), in order; send as much as possible."""
        if self._broken:
            return
        idle = not self._queue and not self._in_thread
        if idle:
            read, is_whole = _with_small_slices_read(parts)
            if is_whole:
                self._send_pieces(cast("list[bytes | bytearray]", read))
                return
            parts = _joined(read)
        sliced_bytes = 0
        for part in parts:
            if isinstance(part, tuple):
                if part[2] > 0:
                    self._queue.append(QueuedSlice(*part))
                    sliced_bytes += part[2]
            elif part:
                self._queue.append(part)
                self.queued_bytes += len(part)
        if not idle:
            return
        if sliced_bytes > TURN_BYTES_MAX:
            self._pump_next_turn()
        else:
            self._pump()

    def _send_pieces(self, pieces: list[bytes | bytearray]) -> None:
        """Send pieces by one call, and queue what the socket does not take."""
        if len(pieces) > PIECES_MAX:
            pieces = [b"".join(pieces)]
        try:
            sent = self._socket.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._break(error.strerror or str(error))
            return
        self.sent_bytes += sent
        if sent == sum(map(len, pieces)):
            self._on_drained()
            return
        self._keep(memoryview(b"".join(pieces))[sent:])

    def _keep(self, rest: memoryview) -> None:
        """Queue what the socket did not take until it takes more."""
        self._queue.append(rest)
        self.queued_bytes += len(rest)
        self._watch()

    def close(self) -> None:
        """Drop the queue with its files, and close the descriptor; idempotent."""
        if self._closing:
            return
        self._closing = True
        self._broken = True
        self._unwatch()
        self._queue.clear()
        self.queued_bytes = 0
        if not self._in_thread:
            # Otherwise the thread's end closes it: its sendfile must not see the number reused.
            self._socket.close()

    # -- sending

    def _pump_next_turn(self) -> None:
        """Continue after the loop has served the other sockets. A callback scheduled now runs
        before them, one scheduled from there runs after them. This is cheaper than watching a
        socket that is writable.
        """
        self._loop.call_soon(self._loop.call_soon, self._pump)

    def _pump(self) -> None:
        """Send until the socket is full, a thread has to send, or the turn is over."""
        if self._broken:
            return
        queue = self._queue
        budget = TURN_BYTES_MAX
        try:
            while queue and budget > 0:
                head = queue[0]
                if isinstance(head, QueuedSlice):
                    sent = self._send_slice(head)
                else:
                    sent = self._send_bytes(head)
                if sent < 0:
                    return
                budget -= sent
        except (BlockingIOError, InterruptedError):
            self._watch()
            return
        except DiskError as unreadable:
            assert isinstance(head, QueuedSlice), "only files raise it"
            self._unreadable(head.file, unreadable)
            return
        except OSError as broken:
            self._break(broken.strerror or str(broken))
            return
        if not queue:
            self._unwatch()
            self._on_drained()
        elif not self._watching:
            self._pump_next_turn()

    def _send_bytes(self, head: bytes | memoryview) -> int:
        more = len(self._queue) > 1
        sent = self._socket.send(head, socket.MSG_MORE if more else 0)
        self.sent_bytes += sent
        self.queued_bytes -= sent
        if sent == len(head):
            self._queue.popleft()
        else:
            self._queue[0] = memoryview(head)[sent:]
        return sent

    def _send_slice(self, head: QueuedSlice) -> int:
        """Send part of a slice with one call; return the bytes sent, or -1 if a thread sends them
        or the connection broke.
        """
        file = head.file
        if head.is_cut:
            self._break(f"{file.path}: truncated while it was being sent")
            return -1
        count = min(head.left, SENDFILE_BYTES_MAX)
        if not isinstance(file, OsFile):
            sent = self._send_copy(head, count)
        elif file.resident(head.position, count):
            sent = file.send_to(self._socket.fileno(), head.position, count)
        else:
            self._send_in_thread(head, min(head.left, THREAD_BYTES_MAX))
            return -1
        return self._advance(head, sent)

    def _send_copy(self, head: QueuedSlice, count: int) -> int:
        data = head.file.read_at(head.position, min(count, COPY_BYTES_MAX))
        return self._socket.send(data) if data else 0

    def _advance(self, head: QueuedSlice, sent: int) -> int:
        if sent == 0:
            self._break(f"{head.file.path}: shorter than the slice that was being sent")
            return -1
        self.sent_bytes += sent
        head.position += sent
        head.left -= sent
        if head.left == 0:
            self._queue.popleft()
        return sent

    def _send_in_thread(self, head: QueuedSlice, count: int) -> None:
        file = head.file
        assert isinstance(file, OsFile)
        self._in_thread = True
        self._unwatch()
        work = self._loop.run_in_executor(
            self._executor, _sendfile, self._socket.fileno(), file, head.position, count
        )
        work.add_done_callback(partial(self._thread_done, file))

    def _thread_done(self, file: File, work: "asyncio.Future[int]") -> None:
        self._in_thread = False
        error = None if work.cancelled() else work.exception()
        if isinstance(error, DiskError):
            self._unreadable(file, error)
        if self._closing:
            self._socket.close()
            return
        if work.cancelled():
            self._break("stopped")
            return
        if error is not None:
            assert isinstance(error, OSError | DiskError), error
            self._break(getattr(error, "strerror", None) or str(error))
            return
        sent = work.result()
        head = self._queue[0]
        assert isinstance(head, QueuedSlice)
        if sent < 0:
            self._watch()  # the socket was full; the pages are warm by the time it is writable
            return
        if self._advance(head, sent) > 0:
            self._pump()

    # -- the descriptor

    def _watch(self) -> None:
        if not self._watching and not self._broken:
            self._watching = True
            self._loop.add_writer(self._socket.fileno(), self._pump)

    def _unwatch(self) -> None:
        if self._watching:
            self._watching = False
            self._loop.remove_writer(self._socket.fileno())

    def _unreadable(self, file: File, error: DiskError) -> None:
        """Report a file that cannot be read, even if the connection is closed: its disk failed."""
        self._break(str(error))
        self._on_unreadable(file, error)

    def _break(self, reason: str) -> None:
        if self._broken:
            return
        self._broken = True
        self._unwatch()
        self._queue.clear()
        self.queued_bytes = 0
        self._on_broken(reason)


def _with_small_slices_read(
    parts: Sequence[Part],
) -> tuple[list[Part | bytearray], bool]:
    """Return the parts with small slices read, and whether all of them are in memory now. A copy of
    some KB costs less than sendfile with the calls around it, and the receiver is woken once.
    """
    read: list[Part | bytearray] = []
    left, is_whole = READ_BYTES_MAX, True
    for part in parts:
        if not isinstance(part, tuple):
            read.append(part)
            continue
        file, position, length = part
        data = None
        if 0 < length <= SLICE_READ_BYTES_MAX and length <= left and isinstance(file, OsFile):
            data = file.read_resident(position, length)
        if data is None:
            read.append(part)
            is_whole = False
        else:
            read.append(data)
            left -= length
    return read, is_whole


def _joined(parts: Sequence[Part | bytearray]) -> list[Part]:
    """Return the parts with the bytes between two slices in one piece."""
    joined: list[Part] = []
    pieces: list[bytes | bytearray] = []
    for part in parts:
        if not isinstance(part, tuple):
            pieces.append(part)
            continue
        if pieces:
            joined.append(b"".join(pieces))
            pieces = []
        joined.append(part)
    if pieces:
        joined.append(b"".join(pieces))
    return joined


def _sendfile(descriptor: int, file: OsFile, position: int, count: int) -> int:
    """Send in a thread; return the bytes sent, or -1 if the socket was full at once. The argument
    keeps ``file`` open meanwhile. A truncation ends the sending; the loop detects it.
    """
    sent_bytes = 0
    truncated_to = file.truncated_to
    try:
        while sent_bytes < count and file.truncated_to == truncated_to:
            size = min(count - sent_bytes, SENDFILE_BYTES_MAX)
            sent = file.send_to(descriptor, position + sent_bytes, size)
            if sent == 0:
                break
            sent_bytes += sent
    except BlockingIOError:
        if sent_bytes:
            return sent_bytes
        # sendfile may return this before it has read anything: read the pages here, off the loop.
        file.read_at(position, min(count, SENDFILE_BYTES_MAX))
        return -1
    return sent_bytes
