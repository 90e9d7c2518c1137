"""Sends frames over many connections at once and holds the broker to each frame's verdict.

One thread, one selector. Talks are long-lived and pipelined: every frame on them must be answered,
in order, well-formed, within the deadline. Every other frame is the last word of a connection of
its own, which must end within the deadline.
"""

import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

from e2e.fuzz.frames import Frame, Verdict, read_response
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_response_header
from tidemark.kafka.primitives import MalformedRequestError
from waiting import PATIENCE_S

DEADLINE_S: Final = PATIENCE_S
TALKS: Final = 8
IN_FLIGHT_MAX: Final = 200
LAST_WORDS_MAX: Final = 64
SLOW_MAX: Final = 24
SLOW_PIECES: Final = 100
SLOW_PAUSE_S: Final = 0.01
_LENGTH: Final = struct.Struct(">i")
_RECEIVE_BYTES: Final = 1 << 18
_PARSED_BYTES_MAX: Final = 1 << 16
"""Of larger answers only the header is read: that there is one is what counts."""


class FuzzError(AssertionError):
    """The broker did what its verdict forbids; ``frames`` are what it was sent, oldest first."""

    def __init__(self, what: str, frames: list[Frame]) -> None:
        super().__init__("\n".join([what, *(f"  {frame}" for frame in frames[:5])]))
        self.frames = frames


class _Channel:
    """One connection to the broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self.socket.setblocking(False)
        self.out = bytearray()
        self.incoming = bytearray()
        self.expected: deque[Frame] = deque()
        self.moved_at = time.monotonic()
        self.ended = False

    def queue(self, frame: Frame) -> None:
        """Send this frame as soon as the socket takes it."""
        if not self.expected:
            self.moved_at = time.monotonic()
        self.out += frame.data
        self.expected.append(frame)

    def send(self, size: int = 1 << 20) -> None:
        """Send what goes, at most ``size`` bytes."""
        if not self.out:
            return
        try:
            sent = self.socket.send(memoryview(self.out)[:size])
        except BlockingIOError:
            return
        except OSError:
            self.ended = True
            return
        del self.out[:sent]

    def end_sending(self) -> None:
        """Tell the broker that no more comes."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.ended = True

    def receive(self) -> list[bytes]:
        """The whole answers that have come, without their lengths."""
        try:
            chunk = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.ended = True
            return []
        self.moved_at = time.monotonic()
        self.incoming += chunk
        return list(self._answers())

    def _answers(self) -> Iterator[bytes]:
        position, held = 0, self.incoming
        while len(held) - position >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(held, position)
            if len(held) - position - _LENGTH.size < size:
                break
            start = position + _LENGTH.size
            yield bytes(memoryview(held)[start : start + size])
            position = start + size
        del held[:position]


class Driver:
    """Feeds the broker at ``port`` until everything it was given has its outcome."""

    def __init__(self, port: int, on_answer: Callable[[Frame, object], None]) -> None:
        """``on_answer`` hears every answer that was parsed."""
        self._port = port
        self._on_answer = on_answer
        self._selector = selectors.DefaultSelector()
        self._talks = [self._open() for _ in range(TALKS)]
        self._last_words: set[_Channel] = set()
        self._slow: set[_Channel] = set()
        self._slow_due = 0.0
        self._turn = 0
        self.sent: Counter[str] = Counter()
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.answers = 0
        self.closes = 0

    def _open(self) -> _Channel:
        channel = _Channel(self._port)
        self._selector.register(channel.socket, selectors.EVENT_READ, channel)
        return channel

    def _close(self, channel: _Channel) -> None:
        self._selector.unregister(channel.socket)
        channel.socket.close()

    # -- giving

    def give(self, frame: Frame) -> None:
        """Send a frame; returns when there is room for the next."""
        assert frame.verdict is not Verdict.HARMFUL
        self.sent[f"{frame.kind}: {frame.verdict.value}"] += 1
        self.pairs[frame.api_key, frame.version] += 1
        if frame.verdict is Verdict.ANSWER:
            self._turn = (self._turn + 1) % TALKS
            talk = self._talks[self._turn]
            talk.queue(frame)
            while len(talk.expected) >= IN_FLIGHT_MAX:
                self._step(0.05)
            return
        if frame.verdict is Verdict.PARK:
            self._leave_at_once(frame)
            return
        channel = self._open()
        channel.queue(frame)
        channel.send()
        if not channel.out:
            channel.end_sending()
        self._last_words.add(channel)
        while len(self._last_words) >= LAST_WORDS_MAX:
            self._step(0.05)

    def give_slowly(self, frame: Frame) -> None:
        """Send a frame some bytes at a time, beside all others."""
        assert frame.verdict is Verdict.ANSWER
        self.sent[f"slow: {frame.verdict.value}"] += 1
        self.pairs[frame.api_key, frame.version] += 1
        channel = self._open()
        channel.queue(frame)
        self._slow.add(channel)
        while len(self._slow) >= SLOW_MAX:
            self._step(SLOW_PAUSE_S)

    def _leave_at_once(self, frame: Frame) -> None:
        """A long poll whose client does not stay."""
        channel = self._open()
        channel.queue(frame)
        channel.send()
        self._close(channel)

    def finish(self) -> None:
        """Wait for all outcomes, then close every connection."""
        while self._last_words or self._slow or any(talk.expected for talk in self._talks):
            self._step(SLOW_PAUSE_S)
        for talk in self._talks:
            self._close(talk)
        self._selector.close()

    # -- taking

    def _step(self, wait_s: float) -> None:
        for talk in self._talks:
            talk.send()
        for channel in [one for one in self._last_words if one.out]:
            channel.send()
            if not channel.out:
                channel.end_sending()
        self._dribble()
        for key, _ in self._selector.select(wait_s):
            self._take(key.data)
        self._check_deadlines()

    def _dribble(self) -> None:
        now = time.monotonic()
        if now < self._slow_due:
            return
        self._slow_due = now + SLOW_PAUSE_S
        for channel in self._slow:
            if channel.out:
                channel.send(len(channel.expected[0].data) // SLOW_PIECES + 1)
                channel.moved_at = now

    def _take(self, channel: _Channel) -> None:
        for answer in channel.receive():
            self._answered(channel, answer)
        if channel in self._last_words:
            if channel.ended:
                self.closes += 1
                self._last_words.discard(channel)
                self._close(channel)
        elif channel in self._slow and not channel.expected:
            self._slow.discard(channel)
            self._close(channel)
        elif channel.ended:
            raise FuzzError("the broker closed on one of these", list(channel.expected))

    def _answered(self, channel: _Channel, answer: bytes) -> None:
        if not channel.expected:
            raise FuzzError(f"an answer to nothing: {answer[:100].hex()}", [])
        frame = channel.expected.popleft()
        self.answers += 1
        if frame.verdict is Verdict.CLOSE:
            raise FuzzError(f"answered, though it cannot be read: {answer[:100].hex()}", [frame])
        if _LENGTH.unpack_from(answer)[0] != frame.correlation_id:
            raise FuzzError(f"another correlation id: {answer[:100].hex()}", [frame])
        if frame.verdict is Verdict.ANSWER and len(answer) <= _PARSED_BYTES_MAX:
            self._parse(frame, answer)

    def _parse(self, frame: Frame, answer: bytes) -> None:
        key, version = frame.api_key, frame.version
        if key == ApiKey.API_VERSIONS and not 0 <= version <= 4:
            version = 0
        view = memoryview(answer)
        try:
            _, position = read_response_header(view, key, version)
            response = read_response(key, version, view[position:])
        except MalformedRequestError as problem:
            raise FuzzError(f"a malformed answer, {problem}: {answer.hex()}", [frame]) from None
        self._on_answer(frame, response)

    def _check_deadlines(self) -> None:
        oldest = time.monotonic() - DEADLINE_S
        for channel in (*self._talks, *self._last_words, *self._slow):
            if channel.moved_at < oldest and (channel.expected or channel in self._last_words):
                raise FuzzError("no outcome in time; the first:", list(channel.expected))
