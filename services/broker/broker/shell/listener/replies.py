"""Answers of one Kafka connection: their pieces, and the places of answers that come later."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from tidemark.kafka.apis import APIS
from tidemark.kafka.headers import RequestHeader, response_header
from tidemark.storage.disk import File

from broker.shell.request_times import Origin, RequestTimes, Stages

Part = bytes | tuple[File, int, int]
"""Piece of an answer: bytes, or (file, position, length)."""

LENGTH_AND_ID: Final = struct.Struct(">ii")
RESPONSE_TAGS: Final = {
    (int(key), version): response_header(key, version, 0)[4:]
    for key, versions in APIS.items()
    for version in range(versions.advertised_min, versions.max + 1)
}
"""Bytes after the correlation id: none, or an empty tag field."""


class ReplyTarget(Protocol):
    """Connection of a reply, as far as a reply uses it."""

    peer: str
    began_s: float
    frame_bytes: int
    unhandled: "Reply | None"

    @property
    def times(self) -> RequestTimes:
        """Times of all requests."""

    @property
    def listener_name(self) -> str:
        """Name of the listener."""

    def replied(self, reply: "Reply") -> None:
        """Note that the answer is complete; it is sent in its turn."""

    def mute(self, throttle_ms: int) -> None:
        """Take no request for this long."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class Reply:
    """Place of one answer that comes later. ``send`` is called exactly once, unless the connection
    is lost.
    """

    __slots__ = (
        "_began_s", "_connection", "_header", "_ready_s", "_size_bytes", "handled_s", "on_gone",
        "parts",
    )  # fmt: skip

    def __init__(self, connection: ReplyTarget, header: RequestHeader) -> None:
        self._connection = connection
        self._header = header
        self.parts: list[Part] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called instead of an answer when the connection is lost: cancels what was parked."""
        self._began_s, self._size_bytes = connection.began_s, connection.frame_bytes
        self._ready_s = 0.0
        self.handled_s = 0.0
        """Time at which the handler returned; 0 until then."""
        connection.unhandled = self

    def send(self, body: Sequence[Part]) -> None:
        """Answer with the pieces of a body, without header; [] answers nothing (acks=0)."""
        assert self.parts is None, "answered twice"
        self.on_gone = None
        self.parts = framed(self._header, body) if body else []
        self._ready_s = self._connection.times.now_s()
        self._connection.replied(self)

    def mute(self, answer: Mapping[str, object]) -> None:
        """Mute the connection for the throttle time of an answer, if it has one."""
        throttle_ms = answer.get("throttle_time", 0)
        if throttle_ms:
            assert isinstance(throttle_ms, int)
            self._connection.mute(throttle_ms)

    def mute_for(self, throttle_ms: int) -> None:
        """Mute the connection for a throttle time."""
        self._connection.mute(throttle_ms)

    @property
    def handling_s(self) -> float:
        """Time from the request to the return of its handler."""
        return self.handled_s - self._began_s

    def put(self, parts: list[Part]) -> None:
        """Answer at once, behind earlier answers that are not ready."""
        self._ready_s = self._connection.times.now_s()
        self.parts = parts

    def taken(self) -> list[Part]:
        """Return the pieces, which are sent now."""
        assert self.parts is not None, "taken before it was answered"
        connection, ready_s = self._connection, self._ready_s
        connection.times.answered_later(
            self._header,
            Origin(connection.peer, connection.listener_name, self._size_bytes),
            Stages(self._began_s, self.handled_s or ready_s, ready_s),
        )
        return self.parts

    def close(self) -> None:
        """Close the connection instead of an answer."""
        self._connection.close("no answer can be given")


def framed(header: RequestHeader, body: Sequence[Part]) -> list[Part]:
    """Return a body's pieces with length and response header before them."""
    tags = RESPONSE_TAGS.get((header.api_key, header.api_version), b"")
    size = 4 + len(tags)
    for part in body:
        size += part[2] if isinstance(part, tuple) else len(part)
    first = body[0]
    head = LENGTH_AND_ID.pack(size, header.correlation_id) + tags
    if isinstance(first, bytes):
        return [head + first, *body[1:]]
    return [head, *body]


def bytes_in(parts: Sequence[Part]) -> int:
    """Return the number of bytes of these pieces that are in memory."""
    size_bytes = 0
    for part in parts:
        if not isinstance(part, tuple):
            size_bytes += len(part)
    return size_bytes


def weave(pieces: Sequence[bytes], slices: Sequence[Sequence[Part]]) -> list[Part]:
    """Merge pieces and slices in the order of the wire; bytes without a slice between them become
    one piece.
    """
    woven: list[Part] = []
    texts = [pieces[0]]
    for found, piece in zip(slices, pieces[1:], strict=True):
        if found:
            woven.append(b"".join(texts))
            woven += found
            texts = []
        texts.append(piece)
    woven.append(b"".join(texts))
    return woven
