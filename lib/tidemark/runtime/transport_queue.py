"""TransportQueue: outgoing data of a connection for which sendfile cannot be used (TLS), in order:
bytes from memory, and slices of files read into memory piece by piece.

It has the interface of ``SendQueue``. All writing goes through the loop's transport, which
encrypts; while its buffer is full, files are not read. A piece whose pages are cold is read by a
thread. If a file has become shorter than its slice, or was truncated below its end meanwhile, the
connection is closed, so that other bytes are never sent in its place. A file that cannot be read
closes the connection too, and its disk is reported as failed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from tidemark.runtime.os_disk import OsFile
from tidemark.runtime.send_queue import TURN_BYTES_MAX, QueuedSlice
from tidemark.storage.disk import DiskError, File

PIECE_BYTES_MAX: Final = 128 * 1024


class TransportQueue:
    """Outgoing bytes of one connection. The connection's protocol passes ``pause_writing`` and
    ``resume_writing`` on to it.

    ``queued_bytes`` counts the bytes in memory (not the slices, which stay on disk). ``on_drained``
    is called when the queue has become empty, ``on_broken`` once, when nothing more can be sent.
    ``on_unreadable`` follows if the reason is a file that could not be read.
    """

    __slots__ = (
        "_broken",
        "_executor",
        "_in_thread",
        "_loop",
        "_on_broken",
        "_on_drained",
        "_on_unreadable",
        "_paused",
        "_queue",
        "_transport",
        "_waiting_bytes",
        "sent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        executor: Executor,
        *,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
        on_unreadable: Callable[[File, DiskError], None],
    ) -> None:
        """``executor`` has the threads for cold reads. The queue does not close the transport."""
        transport.set_write_buffer_limits(TURN_BYTES_MAX)
        self._loop = loop
        self._transport = transport
        self._executor = executor
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._on_unreadable = on_unreadable
        self._queue: deque[bytes | QueuedSlice] = deque()
        self._waiting_bytes = 0
        self.sent_bytes = 0
        self._paused = False
        self._in_thread = False
        self._broken = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting in this queue and in the transport."""
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    @property
    def idle(self) -> bool:
        """True if nothing is queued or being read; the transport sends its buffer by itself."""
        return not self._queue and not self._in_thread and not self._paused

    def send(self, data: bytes) -> None:
        """Queue bytes and send as many as possible."""
        if self._broken:
            return
        if self.idle:
            self._write(data)
        else:
            self._queue.append(data)
            self._waiting_bytes += len(data)

    def send_parts(self, parts: Sequence[bytes | tuple[File, int, int]]) -> None:
        """Queue bytes and slices (file, position, length), in order; send as much as possible."""
        if self._broken:
            return
        idle = self.idle
        for part in parts:
            if isinstance(part, tuple):
                if part[2] > 0:
                    self._queue.append(QueuedSlice(*part))
            elif part:
                self._queue.append(part)
                self._waiting_bytes += len(part)
        if idle:
            self._pump()

    def close(self) -> None:
        """Drop the queue with its files; idempotent."""
        self._broken = True
        self._queue.clear()
        self._waiting_bytes = 0

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continue writing: the transport's buffer has room."""
        self._paused = False
        if not self._in_thread:
            self._pump()

    # -- sending

    def _pump(self) -> None:
        """Send until the transport's buffer is full, a thread has to read, or the turn is over."""
        budget = TURN_BYTES_MAX
        try:
            while self._queue and budget > 0:
                if self._paused or self._in_thread or self._broken:
                    return
                head = self._queue[0]
                budget -= self._send_head(head)
        except DiskError as error:
            assert isinstance(head, QueuedSlice), "only files raise it"
            self._unreadable(head.file, error)
        if self._broken or self._paused:
            return
        if self._queue:
            self._loop.call_soon(self._next_turn)
        else:
            self._on_drained()

    def _next_turn(self) -> None:
        if not self._in_thread:
            self._pump()

    def _send_head(self, head: bytes | QueuedSlice) -> int:
        """Send one piece; return its size in bytes."""
        if not isinstance(head, QueuedSlice):
            self._queue.popleft()
            self._waiting_bytes -= len(head)
            self._write(head)
            return len(head)
        count = min(head.left, PIECE_BYTES_MAX)
        if isinstance(head.file, OsFile) and not head.file.resident(head.position, count):
            self._in_thread = True
            work = self._loop.run_in_executor(
                self._executor, head.file.read_at, head.position, count
            )
            work.add_done_callback(partial(self._thread_done, head.file))
            return 0
        self._send_piece(head, head.file.read_at(head.position, count), count)
        return count

    def _send_piece(self, head: QueuedSlice, data: bytes, count: int) -> None:
        if head.is_cut:  # checked after the read: bytes read before a cut belong to the slice
            self._break(f"{head.file.path}: truncated while it was being sent")
        elif len(data) < count:
            self._break(f"{head.file.path}: shorter than the slice that was being sent")
        else:
            head.position += count
            head.left -= count
            if head.left == 0:
                self._queue.popleft()
            self._write(data)

    def _thread_done(self, file: File, work: "asyncio.Future[bytes]") -> None:
        self._in_thread = False
        error = None if work.cancelled() else work.exception()
        if error is not None:
            assert isinstance(error, DiskError), error
            self._unreadable(file, error)
        if self._broken or work.cancelled():
            return
        head = self._queue[0]
        assert isinstance(head, QueuedSlice)
        self._send_piece(head, work.result(), min(head.left, PIECE_BYTES_MAX))
        self._pump()

    def _write(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        self._transport.write(data)

    def _unreadable(self, file: File, error: DiskError) -> None:
        """Report a file that cannot be read, even if the connection is closed: its disk failed."""
        if not self._broken:
            self._break(str(error))
        self._on_unreadable(file, error)

    def _break(self, reason: str) -> None:
        self.close()
        self._on_broken(reason)
