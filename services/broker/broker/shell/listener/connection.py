"""Connection: one Kafka connection.

Frames are parsed in place in one reused buffer, answers are sent in request order, and every
resource is bounded. Hot requests (Produce, Fetch, Metadata...) are answered inside
``buffer_updated``. A request that must wait takes a ``Reply``, a place in the order of answers;
``RequestOrder`` decides which frames may be taken meanwhile. Reading stops while answers pile up.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final, cast

from tidemark.kafka.headers import HeaderReader, RequestHeader
from tidemark.kafka.produce_repeated import RepeatedProduce
from tidemark.model.authorization import Requester
from tidemark.runtime.send_queue import SendQueue
from tidemark.runtime.transport_queue import TransportQueue

from broker.core.login import Login
from broker.core.parked import Parked
from broker.core.request_order import RequestOrder
from broker.shell.listener.connection_host import ConnectionHost
from broker.shell.listener.muting import Mute
from broker.shell.listener.replies import (
    LENGTH_AND_ID,
    RESPONSE_TAGS,
    Part,
    Reply,
    bytes_in,
    framed,
)
from broker.shell.listener.turn import TURN_FRAMES_MAX, TURN_S_MAX, Turn
from broker.shell.request_context import UNKNOWN_SOFTWARE

log = logging.getLogger(__name__)

BUFFER_BYTES_MIN: Final = 64 * 1024
BUFFER_BYTES_USUAL: Final = 256 * 1024
LARGE_FRAME_BYTES: Final = 128 * 1024
FRAME_BYTES_MIN: Final = 8
QUEUED_PARTS_MAX: Final = 512
HELD_BYTES_UNCHECKED: Final = 64 * 1024
SMALL_FRAMES_BEFORE_SHRINK: Final = 64

_LENGTH: Final = struct.Struct(">i")


class Connection(asyncio.BufferedProtocol):
    """Connection of one client."""

    __slots__ = (
        "_blocked", "_buffer", "_closed", "_end", "_frame_end", "_held_bytes", "_mute", "_muted",
        "_out", "_out_files", "_processing", "_queue", "_replies", "_room", "_small_frames",
        "_start", "_starved", "_stopped", "_swept_bytes", "_transport", "_turn", "_view",
        "address", "began_s", "ending", "frame_bytes", "frame_bytes_max", "frame_bytes_min",
        "frame_ms", "headers", "listener", "listener_name", "login", "order", "peer",
        "produce_prefix_bytes", "repeated_produces", "requester", "software", "times", "touched",
        "unhandled",
    )  # fmt: skip

    def __init__(self, listener: "ConnectionHost[Connection]") -> None:
        self.listener = listener
        self._room = listener.limits.room(listener.name)
        self.requester, self.frame_bytes_max = listener.stranger, listener.frame_bytes_max
        self.frame_bytes_min = FRAME_BYTES_MIN  # less only for a token that has no header
        self.login: Login | None = None  # of a listener with SASL
        self.peer = self.address = ""
        self.software = UNKNOWN_SOFTWARE
        self.touched, self.ending = True, False
        self.headers = HeaderReader()
        self.order, self._mute = RequestOrder(), Mute()
        self.times, self.listener_name = listener.counters.times, listener.name
        self.unhandled: Reply | None = None
        self.began_s, self.produce_prefix_bytes = 0.0, 0
        self.repeated_produces: dict[bytes, RepeatedProduce] = {}
        """Produce requests that this client repeats, by their first bytes, all of one length."""
        self._transport: asyncio.Transport | None = None
        self._queue: SendQueue | TransportQueue | None = None
        self._buffer = bytearray(0)
        self._view = memoryview(self._buffer)
        self._start = self._end = self._frame_end = 0
        self._small_frames = self.frame_ms = self.frame_bytes = 0
        self._replies: deque[Reply] = deque()
        self._out: list[Part] = []
        self._out_files = False
        self._held_bytes = 0  # bytes of answers that the queue does not have yet
        self._processing = self._blocked = self._muted = self._starved = False
        self._stopped = False  # a whole frame that may not be taken yet
        self._swept_bytes = 0  # sent till a sweep
        self._turn = Turn(listener.loop, self._process)
        self._closed = False

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept, unless a limit is reached."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        peer = transport.get_extra_info("peername") or ("?", 0)
        self.address, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        principal = self.listener.identify(self._transport, self.peer)
        self.requester = Requester(principal or "", self.address)
        if principal is None or not self.listener.admit(self):
            self.address = ""
            self._closed = True
            self._transport.abort()
            return
        self._room.buffered_bytes += BUFFER_BYTES_MIN
        self._replace_buffer(BUFFER_BYTES_MIN)
        try:
            self._queue = self.listener.make_queue(self._transport, self._drained, self.close)
        except OSError as error:  # no descriptor is left
            self.listener.counters.connections_refused += 1
            self.close(str(error))

    def pause_writing(self) -> None:
        """Note that the transport holds enough; it is written to only with TLS."""
        if isinstance(self._queue, TransportQueue):
            self._queue.pause_writing()

    def resume_writing(self) -> None:
        """Note that the transport takes more."""
        if isinstance(self._queue, TransportQueue):
            self._queue.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that was held for this client."""
        self._closed = True
        if self._queue is not None:
            self._queue.close()
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.on_gone is not None:
                reply.on_gone()
        self._mute.cancel()
        self.listener.parked.forget_room(self._go_on)
        if self.address:
            self._room.release(self, len(self._buffer), gone=True)
            self.listener.gone(self)
        self._out, self._view, self._buffer = [], memoryview(b""), bytearray(0)

    def eof_received(self) -> bool:
        """Keep answering a client that has closed its side; TLS closes both directions."""
        self.ending = self.touched = True
        return not self.idle and not isinstance(self._queue, TransportQueue)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place for received bytes: after those there are, and of a large frame no more
        than its rest.
        """
        if self._frame_end:
            return self._view[self._end : min(self._frame_end, len(self._view))]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        self._end += nbytes
        self.touched = True
        if self._closed:
            return
        is_full = self._end in (self._frame_end, len(self._view))
        self._process()
        if not is_full:
            self._turn.emptied()
        elif self._turn.filled(nbytes):
            self._update_reading()

    # -- frames

    def _process(self) -> None:
        """Take whole frames until the turn is over, send what was answered, and make room for the
        next bytes.
        """
        if not self._turn.is_over:
            self._processing = True
            try:
                frames_left = self._take_frames()
                if self._out and not self._closed:
                    self._flush()
            finally:
                self._processing = False
            if frames_left and not self._muted and not self._must_wait():
                self._turn.end()
        self._update_reading()

    def _take_frames(self) -> bool:
        """Take frames. Returns True if it stopped early: for the others, or too much waits."""
        handle, order = self.listener.router.handle, self.order
        taken, ends_s = 0, 0.0
        while not self._closed:
            view, start = self._view, self._start
            available = self._end - start
            if available < 4 or self._muted:
                break
            (size,) = _LENGTH.unpack_from(view, start)
            if size < self.frame_bytes_min or size > self.frame_bytes_max:
                self.listener.counters.closed_frame += 1
                self.close("a frame of impossible size")
                return False
            if available < 4 + size:
                self._prepare(4 + size)
                return False
            if not order.is_open and not order.may_begin(view[start + 4] << 8 | view[start + 5]):
                self._stopped = True
                return True
            # Bytes unsent before these frames are counted once; what the frames add, as it grows.
            if (
                not taken
                or self._replies
                or self._held_bytes > HELD_BYTES_UNCHECKED
                or len(self._out) > QUEUED_PARTS_MAX
            ) and self._must_wait():
                return True
            self.frame_ms = 0
            self._start = start + 4 + size
            self._small_frames = 0 if size > BUFFER_BYTES_USUAL else self._small_frames + 1
            handle(self, view[start + 4 : start + 4 + size])
            if self._stopped:
                self._start = start
                return True
            taken += 1
            ends_s = ends_s or self.began_s + TURN_S_MAX
            if self.began_s > ends_s or taken >= TURN_FRAMES_MAX:
                return True
        if not self._closed:
            self._settle()
        return False

    def _settle(self) -> None:
        """Return to the start of the buffer when no frame is begun, and to its usual size if that
        suffices again.
        """
        self._frame_end = 0
        if self._start != self._end:
            if self._end == len(self._view):
                self._prepare(self._end - self._start + 1)
            return
        full = self._end == len(self._view)
        self._start = self._end = 0
        size = len(self._buffer)
        if full and size < BUFFER_BYTES_USUAL:
            self._resize(size * 2)
        elif size > BUFFER_BYTES_USUAL and (
            self._small_frames > SMALL_FRAMES_BEFORE_SHRINK or self._room.contended
        ):
            self._resize(BUFFER_BYTES_USUAL)

    def _prepare(self, frame_bytes: int) -> None:
        """Make room for the rest of a begun frame; a large buffer grows as its bytes arrive."""
        held = self._end - self._start
        room = len(self._view)
        if self._start and self._end == room < BUFFER_BYTES_USUAL:
            # Frames arrive faster than they are read: with more room a read takes several.
            self._resize(min(room * 2, BUFFER_BYTES_USUAL))
            room = len(self._view)
        if frame_bytes > room and held * 2 >= room:
            wanted = min(max(frame_bytes, BUFFER_BYTES_USUAL), max(room * 4, BUFFER_BYTES_USUAL))
            self._resize(wanted)
        elif self._start and (self._start + frame_bytes > room or frame_bytes > LARGE_FRAME_BYTES):
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        self._frame_end = self._start + frame_bytes if frame_bytes > LARGE_FRAME_BYTES else 0
        if self._end == len(self._view) and not self._starved:
            self._resize(min(frame_bytes, len(self._view) * 4))

    def _resize(self, size: int) -> None:
        """Move the bytes to another buffer; reads nothing while there is no room for it."""
        old = len(self._buffer)
        if self._starved and size > old:
            return
        if size > old and not self._room.reserve(self, size - old, self._fed):
            self._starved = True
            return
        self._replace_buffer(size)
        if size < old:
            self._room.release(self, old - size)

    def _replace_buffer(self, size: int) -> None:
        held = self._view[self._start : self._end]
        buffer = bytearray(size)
        buffer[: len(held)] = held
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, len(held)

    def _fed(self) -> None:
        """Try again to get a larger buffer."""
        if self._starved and not self._closed:
            self._starved = False
            self._process()

    def relax(self) -> None:
        """Give back buffers that a client does not need if it sent nothing between two sweeps."""
        if self._start == self._end and len(self._buffer) > BUFFER_BYTES_MIN and not self._closed:
            self._start = self._end = self._frame_end = 0
            self._resize(BUFFER_BYTES_MIN)

    def put_back(self, parked: Parked) -> None:
        """Put back a request that did nothing, as too many writes wait: it is taken again when
        there is room, and nothing is read until then.
        """
        self._stopped, self.began_s = True, 0.0
        parked.when_room(self._go_on)

    def _go_on(self) -> None:
        self._stopped = False
        if not self._closed:
            self._process()

    def append_ended(self) -> None:
        """Note that an append of a handler that came later is in the log, or refused."""
        self.order.append_ended()
        if self._stopped and not self._processing:
            self._go_on()

    # -- answers

    def answer(self, header: RequestHeader, body: bytes) -> None:
        """Answer now, in order: usually one piece, with no answer waiting before it."""
        tags = RESPONSE_TAGS.get((header.api_key, header.api_version), b"")
        data = LENGTH_AND_ID.pack(4 + len(tags) + len(body), header.correlation_id) + tags + body
        self._held_bytes += len(data)
        if self._replies:
            self._queue_reply(header, [data])
        else:
            self._out.append(data)

    def answer_parts(self, header: RequestHeader, body: Sequence[Part]) -> None:
        """Answer now, in order, with slices of files among the bytes."""
        parts = framed(header, body)
        self._held_bytes += bytes_in(parts)
        if self._replies:
            self._queue_reply(header, parts)
        else:
            self._out += parts
            self._out_files = True

    def later(self, header: RequestHeader) -> Reply:
        """Take a place in the order of answers."""
        reply = Reply(self, header)
        self._replies.append(reply)
        self.order.waits(header.api_key, reply)
        return reply

    def _queue_reply(self, header: RequestHeader, parts: list[Part]) -> None:
        reply = Reply(self, header)
        reply.put(parts)
        self._replies.append(reply)

    def replied(self, reply: Reply) -> None:
        """Send a later answer that has arrived, and those after it that waited for it."""
        if self._closed:
            return
        assert reply.parts is not None
        if not self.order.is_open:
            self.order.answered(reply)
            self._stopped = False
        self._held_bytes += bytes_in(reply.parts)
        replies = self._replies
        while replies and replies[0].parts is not None:
            self._out += replies.popleft().taken()
            self._out_files = True
        if self._processing:
            return
        if self._out:
            self._flush()
        if self._blocked and not self._closed:
            self._process()
        if self.ending and not self._closed and self.idle:
            self._drained()  # an answer of no bytes (acks=0) drains nothing

    def _flush(self) -> None:
        out, self._out = self._out, []
        queue = self._queue
        assert queue is not None
        if self._out_files:
            self._out_files = False
            self._held_bytes = self._held_bytes - bytes_in(out) if self._replies else 0
            queue.send_parts(out)
        else:
            data = cast("bytes", out[0]) if len(out) == 1 else b"".join(cast("list[bytes]", out))
            self._held_bytes -= len(data)
            queue.send(data)

    # -- bounds

    @property
    def closed(self) -> bool:
        """True if nothing more can be sent."""
        return self._closed

    @property
    def idle(self) -> bool:
        """True if every request is answered, and every answer is sent."""
        return not self._replies and not self._out and (self._queue is None or self._queue.idle)

    @property
    def is_parked(self) -> bool:
        """True if the next answer waits for bytes, a watermark or its deadline."""
        replies = self._replies
        return bool(replies) and replies[0].parts is None and replies[0].on_gone is not None

    def sweep(self) -> bool:
        """Return True if nothing moved since the last sweep and the client is to send or to
        read.
        """
        queue = self._queue
        sent_bytes = 0 if queue is None else queue.sent_bytes
        moved = self.touched or sent_bytes != self._swept_bytes
        self.touched, self._swept_bytes = False, sent_bytes
        return not moved and (self.idle or (queue is not None and not queue.idle))

    @property
    def begun_frame(self) -> memoryview | None:
        """Bytes so far of a frame that is not whole; None without one, or while the connection is
        not read from.
        """
        is_read = not self._closed and not self._blocked
        return self._view[self._start : self._end] if is_read and self._start < self._end else None

    def _must_wait(self) -> bool:
        """True if too much is unanswered or unsent: take no further frame."""
        queue = self._queue
        assert queue is not None
        return (
            self._stopped
            or len(self._replies) >= self.listener.requests_in_flight_max
            or queue.queued_bytes + self._held_bytes > self.listener.queued_bytes_max
            or len(queue) > QUEUED_PARTS_MAX
            or len(self._out) > QUEUED_PARTS_MAX
        )

    def _update_reading(self) -> None:
        """Stop reading from the socket while frames wait, the buffer is starved or the client is
        muted.
        """
        if self._closed or self._transport is None:
            return
        must_block = self._turn.is_over or self._muted or self._starved or self._must_wait()
        if must_block and not self._blocked:
            self._blocked = True
            self._transport.pause_reading()
        elif not must_block and self._blocked:
            self._blocked = False
            self._transport.resume_reading()

    def _drained(self) -> None:
        """Go on once all answers are sent: take frames that waited, or close an ending one."""
        if self._closed or self._processing:
            return
        if self._blocked:
            self._process()
        if self.ending and self.idle:
            self.close("the client has ended")
        self.listener.drained(self)

    def mute(self, throttle_ms: int) -> None:
        """Take no request for this long: enforces a quota."""
        if throttle_ms > 0 and not self._closed:
            self._muted = True
            self._mute.extend(throttle_ms, self.listener.loop, self._unmute)

    def _unmute(self) -> None:
        if not self._closed and not self.ending:
            self._muted = False
            self._process()

    def stop_reading(self) -> None:
        """Drain: answer open requests, take no new ones."""
        self._muted = self.ending = True
        self._update_reading()

    def close(self, reason: str) -> None:
        """Close the connection; idempotent. ``connection_lost`` follows."""
        if self._closed:
            return
        self._closed = True
        log.debug("connection closed: %s: %s", self.peer, reason)
        if self._transport is None:
            return
        if isinstance(self._queue, TransportQueue):
            self._transport.pause_reading()
            self._transport.close()  # its answers are sent first
        else:
            self._transport.abort()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a slow handler in the listener's TaskGroup; its failure costs this connection
        alone.
        """
        self.listener.start(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            log.exception("handler failed: internal error")
            self.close("a handler failed")
