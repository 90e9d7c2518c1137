"""Request and response headers.

Request header v1 is api_key int16, api_version int16, correlation_id int32, client_id nullable
string; v2, used by flexible versions, adds tagged fields. The client id is a plain string in v2,
too, so that a broker can read the header of an unknown version. Response header v0 is the
correlation id; v1 adds tagged fields. Responses to ApiVersions always have v0, because the client
does not have the broker's versions yet (KIP-511).
"""

import struct
from typing import Final, NamedTuple

from tidemark.kafka.apis import ApiKey, is_flexible
from tidemark.kafka.primitives import (
    MalformedRequestError as MalformedRequestError,
)
from tidemark.kafka.primitives import (
    guarded,
    read_nullable_string,
    skip_tags,
    string_bytes,
)

_REQUEST: Final = struct.Struct(">hhi")
_CORRELATION_ID: Final = struct.Struct(">i")
_FLEXIBLE_RESPONSE: Final = struct.Struct(">iB")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


class RequestHeader(NamedTuple):
    """Header of a request; ``body_position`` is the start of the message in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


@guarded
def read_request_header(frame: memoryview) -> RequestHeader:
    """Parse the header of a frame (without its 4-byte length).

    An unknown API is read as header v1: the fields common to both headers suffice for a response
    with UNSUPPORTED_VERSION. An unknown version of a known API is read as v2 if it is above the
    first flexible version.
    """
    api_key, api_version, correlation_id = _REQUEST.unpack_from(frame, 0)
    client_id, position = read_nullable_string(frame, 8)
    if is_flexible(api_key, api_version):
        position = skip_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


class HeaderReader:
    """Reader of the headers of one connection's frames. Clients repeat their header except for the
    correlation id; a repetition is recognised instead of parsed.
    """

    __slots__ = ("_client", "_head", "_last", "_tail_end")

    def __init__(self) -> None:
        self._head = b""
        self._client = b""
        self._tail_end = 0
        self._last: RequestHeader | None = None

    def read(self, frame: memoryview) -> RequestHeader:
        """Do as `read_request_header`."""
        last, end = self._last, self._tail_end
        if last is not None and frame[:4] == self._head and frame[8:end] == self._client:
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 4)
            return tuple.__new__(RequestHeader, (last[0], last[1], correlation_id, last[3], end))
        header = self._last = read_request_header(frame)
        self._tail_end = header.body_position
        self._head, self._client = bytes(frame[:4]), bytes(frame[8 : self._tail_end])
        return header


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header of a response, v0 or v1 as the API and version demand."""
    if api_key != _API_VERSIONS and is_flexible(api_key, api_version):
        return _FLEXIBLE_RESPONSE.pack(correlation_id, 0)
    return _CORRELATION_ID.pack(correlation_id)


def request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the header of a request, for clients."""
    tags = b"\x00" if is_flexible(api_key, api_version) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id) + string_bytes(client_id) + tags


@guarded
def read_response_header(frame: memoryview, api_key: int, api_version: int) -> tuple[int, int]:
    """Return the correlation id, and the position of the body in the frame."""
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 0)
    if api_key != _API_VERSIONS and is_flexible(api_key, api_version):
        return correlation_id, skip_tags(frame, 4)
    return correlation_id, 4
