"""Primitive types of the wire protocol, read from and written to plain buffers.

Readers take ``(buffer, position)`` and return ``(value, next position)``. On hostile bytes they
raise one of `READ_ERRORS` or `MalformedRequestError`; every message reader is wrapped in `guarded`,
so that only the latter escapes. A count is compared with the remaining bytes before anything is
built from it.

Two encodings exist (KIP-482). *Plain*: int16 string lengths, int32 byte and array lengths, -1 for
null. *Compact* ("flexible versions"): unsigned varints of length + 1, 0 for null, and tagged fields
at the end of every structure. `PLAIN` and `COMPACT` hold the functions of each, so that the same
code serves all versions of a message.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Final, NamedTuple, ParamSpec, TypeVar

Buffer = bytes | bytearray | memoryview

P = ParamSpec("P")
T = TypeVar("T")

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
UINT16: Final = struct.Struct(">H")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
FLOAT64: Final = struct.Struct(">d")

_SHORT_INT32S: Final = tuple(struct.Struct(f">{count}i") for count in range(8))

UUID_BYTES: Final = 16
ZERO_UUID: Final = bytes(UUID_BYTES)
UINT32_MAX: Final = 0xFFFF_FFFF
INT16_MAX: Final = 0x7FFF
STRING_BYTES_MAX: Final = INT16_MAX
"""Bound on compact strings, too: a string that was read can be written in every version."""

# Bound on the elements of one request: a decoded element takes up to a hundred times its bytes.
REQUEST_ELEMENTS_MAX: Final = 1 << 17


class MalformedRequestError(ValueError):
    """The bytes are invalid for the API and version. Decoders raise no other error."""


READ_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError)


def guarded(read: Callable[P, T]) -> Callable[P, T]:
    """Make a reader raise only `MalformedRequestError` on invalid bytes."""

    @wraps(read)
    def read_guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except READ_ERRORS as error:
            raise MalformedRequestError(f"{read.__name__}: {error}") from error

    return read_guarded


# -- reading: varints, counts


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits (five bytes)."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedRequestError("a varint is longer than five bytes")
    if value > UINT32_MAX:
        raise MalformedRequestError("a varint is larger than 32 bits")
    return value, position + 1


def _bounded(count: int, buffer: memoryview, position: int) -> tuple[int, int]:
    """Check a count: every element takes at least one byte, so it cannot exceed the bytes left."""
    if count > len(buffer) - position:
        raise MalformedRequestError(
            f"{count} elements announced, {len(buffer) - position} bytes remain"
        )
    return count, position


def read_nullable_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a plain array; -1 for null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < -1:
        raise MalformedRequestError(f"array length {count}")
    return _bounded(count, buffer, position + 4)


def read_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a plain array that may not be null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < 0:
        raise MalformedRequestError(f"array length {count} where null is not allowed")
    return _bounded(count, buffer, position + 4)


def read_compact_nullable_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact array; -1 for null."""
    value, position = read_uvarint(buffer, position)
    return _bounded(value - 1, buffer, position)


def read_compact_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read the length of a compact array that may not be null."""
    value = buffer[position]
    if 0 < value < 0x80 and value <= len(buffer) - position:  # nearly always
        return value - 1, position + 1
    value, position = read_uvarint(buffer, position)
    if value == 0:
        raise MalformedRequestError("null array where null is not allowed")
    return _bounded(value - 1, buffer, position)


# -- reading: strings, bytes


def _text(buffer: memoryview, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if end > len(buffer):
        raise MalformedRequestError(f"string of {size} bytes, {len(buffer) - position} remain")
    if size > STRING_BYTES_MAX:
        raise MalformedRequestError(f"string of {size} bytes; at most {STRING_BYTES_MAX}")
    return str(buffer[position:end], "utf-8"), end


def read_string(buffer: memoryview, position: int) -> tuple[str, int]:
    """Read a plain string."""
    (size,) = INT16.unpack_from(buffer, position)
    if size < 0:
        raise MalformedRequestError(f"string length {size} where null is not allowed")
    return _text(buffer, position + 2, size)


def read_nullable_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    """Read a plain string or null."""
    (size,) = INT16.unpack_from(buffer, position)
    if size >= 0:
        return _text(buffer, position + 2, size)
    if size == -1:
        return None, position + 2
    raise MalformedRequestError(f"string length {size}")


def read_compact_string(buffer: memoryview, position: int) -> tuple[str, int]:
    """Read a compact string."""
    size, position = read_uvarint(buffer, position)
    if size == 0:
        raise MalformedRequestError("null string where null is not allowed")
    return _text(buffer, position, size - 1)


def read_compact_nullable_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    """Read a compact string or null."""
    size, position = read_uvarint(buffer, position)
    if size == 0:
        return None, position
    return _text(buffer, position, size - 1)


def _view(buffer: memoryview, position: int, size: int) -> tuple[memoryview, int]:
    end = position + size
    if end > len(buffer):
        raise MalformedRequestError(f"{size} bytes announced, {len(buffer) - position} remain")
    return buffer[position:end], end


def read_nullable_view(buffer: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Read plain bytes, as a view into ``buffer``, or null."""
    (size,) = INT32.unpack_from(buffer, position)
    if size >= 0:
        return _view(buffer, position + 4, size)
    if size == -1:
        return None, position + 4
    raise MalformedRequestError(f"byte length {size}")


def read_compact_nullable_view(buffer: memoryview, position: int) -> tuple[memoryview | None, int]:
    """Read compact bytes, as a view into ``buffer``, or null."""
    size, position = read_uvarint(buffer, position)
    if size == 0:
        return None, position
    return _view(buffer, position, size - 1)


def read_uuid(buffer: memoryview, position: int) -> tuple[bytes, int]:
    """Read sixteen bytes."""
    end = position + UUID_BYTES
    if end > len(buffer):
        raise MalformedRequestError("a uuid is cut short")
    return buffer[position:end].tobytes(), end


def _int32s(buffer: memoryview, position: int, count: int) -> tuple[list[int], int]:
    end = position + 4 * count
    if end > len(buffer):
        raise MalformedRequestError(
            f"{count} int32 announced, {len(buffer) - position} bytes remain"
        )
    layout = _SHORT_INT32S[count] if count < len(_SHORT_INT32S) else struct.Struct(f">{count}i")
    return list(layout.unpack_from(buffer, position)), end


def read_int32s(buffer: memoryview, position: int) -> tuple[list[int], int]:
    """Read a plain array of int32."""
    count, position = read_count(buffer, position)
    return _int32s(buffer, position, count)


def read_compact_int32s(buffer: memoryview, position: int) -> tuple[list[int], int]:
    """Read a compact array of int32."""
    count, position = read_compact_count(buffer, position)
    return _int32s(buffer, position, count)


def check_elements(count: int) -> None:
    """Refuse a request whose arrays have more than REQUEST_ELEMENTS_MAX elements in all."""
    if count > REQUEST_ELEMENTS_MAX:
        raise MalformedRequestError(f"more than {REQUEST_ELEMENTS_MAX} elements in one request")


# -- reading: tagged fields


def read_tags(buffer: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """Read tagged fields by tag, as views. Tags must ascend (KIP-482)."""
    count, position = read_uvarint(buffer, position)
    if count == 0:
        return {}, position
    _bounded(count, buffer, position)
    check_elements(count)
    fields: dict[int, memoryview] = {}
    last_tag = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        if tag <= last_tag:
            raise MalformedRequestError(f"tag {tag} after tag {last_tag}")
        size, position = read_uvarint(buffer, position)
        fields[tag], position = _view(buffer, position, size)
        last_tag = tag
    return fields, position


def skip_tags(buffer: memoryview, position: int) -> int:
    """Return the position after a structure's tagged fields."""
    if buffer[position] == 0:
        return position + 1
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
    if position > len(buffer):
        raise MalformedRequestError("tagged fields are cut short")
    return position


def _no_tags(buffer: memoryview, position: int) -> int:
    return position


# -- writing


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT_VARINTS: Final = tuple(_varint_bytes(value) for value in range(1 << 10))
_VARINT_2: Final = struct.Struct("BB")
_VARINT_3: Final = struct.Struct("BBB")


def uvarint(value: int) -> bytes:
    """Write an unsigned varint; ``value`` from 0 to 2**32 - 1."""
    if value < 1 << 10:
        return _SHORT_VARINTS[value]
    if value < 1 << 14:
        return _VARINT_2.pack(value & 0x7F | 0x80, value >> 7)
    if value < 1 << 21:
        return _VARINT_3.pack(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    assert value <= UINT32_MAX, value
    return _varint_bytes(value)


def count_bytes(count: int) -> bytes:
    """Write the length of a plain array; -1 for null."""
    return INT32.pack(count)


def compact_count_bytes(count: int) -> bytes:
    """Write the length of a compact array; -1 for null."""
    return uvarint(count + 1)


def string_bytes(text: str | None) -> bytes:
    """Write a plain string; raises OverflowError beyond 32,767 bytes."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    if len(encoded) > INT16_MAX:
        raise OverflowError(f"a string of {len(encoded)} bytes does not fit int16")
    return INT16.pack(len(encoded)) + encoded


def compact_string_bytes(text: str | None) -> bytes:
    """Write a compact string."""
    if text is None:
        return b"\x00"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def int32s_bytes(values: Sequence[int]) -> bytes:
    """Write a plain array of int32."""
    return struct.pack(f">i{len(values)}i", len(values), *values)


def compact_int32s_bytes(values: Sequence[int]) -> bytes:
    """Write a compact array of int32."""
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def tags_bytes(fields: Iterable[tuple[int, bytes]]) -> bytes:
    """Write the tagged fields of one structure, given in ascending order of tag."""
    written = list(fields)
    if not written:
        return b"\x00"
    pieces = [uvarint(len(written))]
    for tag, value in written:
        pieces += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(pieces)


class Encoding(NamedTuple):
    """Readers and writers of one of the two encodings."""

    flexible: bool
    read_count: Callable[[memoryview, int], tuple[int, int]]
    read_nullable_count: Callable[[memoryview, int], tuple[int, int]]
    read_string: Callable[[memoryview, int], tuple[str, int]]
    read_nullable_string: Callable[[memoryview, int], tuple[str | None, int]]
    read_nullable_view: Callable[[memoryview, int], tuple[memoryview | None, int]]
    read_int32s: Callable[[memoryview, int], tuple[list[int], int]]
    skip_tags: Callable[[memoryview, int], int]
    array_length: Callable[[int], bytes]
    string: Callable[[str | None], bytes]
    int32s: Callable[[Sequence[int]], bytes]
    no_tags: bytes


PLAIN: Final = Encoding(
    flexible=False,
    read_count=read_count,
    read_nullable_count=read_nullable_count,
    read_string=read_string,
    read_nullable_string=read_nullable_string,
    read_nullable_view=read_nullable_view,
    read_int32s=read_int32s,
    skip_tags=_no_tags,
    array_length=count_bytes,
    string=string_bytes,
    int32s=int32s_bytes,
    no_tags=b"",
)
COMPACT: Final = Encoding(
    flexible=True,
    read_count=read_compact_count,
    read_nullable_count=read_compact_nullable_count,
    read_string=read_compact_string,
    read_nullable_string=read_compact_nullable_string,
    read_nullable_view=read_compact_nullable_view,
    read_int32s=read_compact_int32s,
    skip_tags=skip_tags,
    array_length=compact_count_bytes,
    string=compact_string_bytes,
    int32s=compact_int32s_bytes,
    no_tags=b"\x00",
)


# -- shared by produce and fetch


class NodeEndpoint(NamedTuple):
    """Address of a broker, for instance of a current leader (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def node_endpoints_bytes(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Write the value of the tagged field NodeEndpoints."""
    pieces = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        pieces += (INT32.pack(node_id), compact_string_bytes(host), INT32.pack(port))
        pieces += (compact_string_bytes(rack), b"\x00")
    return b"".join(pieces)


def read_node_endpoints(buffer: memoryview) -> list[NodeEndpoint]:
    """Read the value of the tagged field NodeEndpoints."""
    count, position = read_compact_count(buffer, 0)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(buffer, position)
        host, position = read_compact_string(buffer, position + 4)
        (port,) = INT32.unpack_from(buffer, position)
        rack, position = read_compact_nullable_string(buffer, position + 4)
        position = skip_tags(buffer, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return endpoints
