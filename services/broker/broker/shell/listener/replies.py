"""Answers of one Kafka connection: their pieces, and the places of those that come later."""

import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidemark.kafka.apis import APIS
from tidemark.kafka.headers import RequestHeader, response_header
from tidemark.storage.disk import File

Part = bytes | tuple[File, int, int]
"""A piece of an answer: bytes, or (file, position, length)."""

_LENGTH: Final = struct.Struct(">i")
LENGTH_AND_ID: Final = struct.Struct(">ii")
RESPONSE_TAGS: Final = {
    (int(key), version): response_header(key, version, 0)[4:]
    for key, versions in APIS.items()
    for version in range(versions.advertised_min, versions.max + 1)
}
"""What follows the correlation id: nothing, or an empty tag field."""


class ReplyTarget(Protocol):
    """The connection that a reply belongs to, as far as a reply uses it."""

    def replied(self, reply: "Reply") -> None:
        """The answer is complete; it is sent in its turn."""

    def close(self, reason: str) -> None:
        """Close the connection."""


class Reply:
    """The place of one answer that comes later. ``send`` is called exactly once, or the connection
    is gone.
    """

    __slots__ = ("_connection", "_header", "on_gone", "parts")

    def __init__(self, connection: ReplyTarget, header: RequestHeader) -> None:
        self._connection = connection
        self._header = header
        self.parts: list[Part] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called instead of an answer when the connection is lost: cancel what was parked."""

    def send(self, body: Sequence[Part]) -> None:
        """Answer with the pieces of a body, without header; [] answers nothing (acks=0)."""
        assert self.parts is None, "answered twice"
        self.on_gone = None
        self.parts = framed(self._header, body) if body else []
        self._connection.replied(self)

    def close(self) -> None:
        """No answer: close the connection."""
        self._connection.close("no answer can be given")


def framed(header: RequestHeader, body: Sequence[Part]) -> list[Part]:
    """A body's pieces with length and response header before them."""
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    size = len(head)
    for part in body:
        size += part[2] if isinstance(part, tuple) else len(part)
    first = body[0]
    head = _LENGTH.pack(size) + head
    if isinstance(first, bytes):
        return [head + first, *body[1:]]
    return [head, *body]


def bytes_in(parts: Sequence[Part]) -> int:
    """What of these is in memory."""
    return sum(len(part) for part in parts if isinstance(part, bytes))
