"""Fields of coordinators' records in Kafka's two encodings: the old one, and the flexible one of
KIP-482 with compact lengths and tagged fields.

A key or a value is ``version int16``, followed by its fields. Reading raises DamagedRecordError if
the bytes end too early or are not text.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_BYTES: Final = 16
_VARINT_BITS_MAX: Final = 35


class NewerRecordError(ValueError):
    """A record in the format of a later release, which this one cannot read."""


class DamagedRecordError(ValueError):
    """The bytes are not a record of their version."""


def unsigned_varint(number: int) -> bytes:
    """Encode with seven bits per byte, least significant first; the high bit means more bytes."""
    assert number >= 0, number
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class FieldWriter:
    """Writer of a sequence of fields; ``flexible`` selects the encoding of lengths."""

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self._parts = [_INT16.pack(version)]
        self._flexible = flexible

    def int8(self, value: int) -> None:
        """Write one signed byte."""
        self._parts.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        """Write two bytes, big-endian."""
        self._parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        """Write four bytes, big-endian."""
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        """Write eight bytes, big-endian."""
        self._parts.append(_INT64.pack(value))

    def uuid(self, value: bytes) -> None:
        """Write sixteen bytes as they are."""
        assert len(value) == _UUID_BYTES, value
        self._parts.append(value)

    def string(self, value: str | None) -> None:
        """Write length and UTF-8; None only for a nullable field."""
        if value is None:
            self._parts.append(b"\x00" if self._flexible else _INT16.pack(-1))
            return
        text = value.encode()
        self._parts.append(
            unsigned_varint(len(text) + 1) if self._flexible else _INT16.pack(len(text))
        )
        self._parts.append(text)

    def octets(self, value: bytes) -> None:
        """Write length and bytes."""
        self._parts.append(self._count(len(value)))
        self._parts.append(value)

    def array(self, values: Sequence[T], write: Callable[[T], None]) -> None:
        """Write the count, then each element with ``write``."""
        self._parts.append(self._count(len(values)))
        for value in values:
            write(value)

    def tags(self, fields: Mapping[int, bytes] | None = None) -> None:
        """End a structure: write tagged fields by number; nothing in the old encoding."""
        assert self._flexible or not fields, fields
        if not self._flexible:
            return
        self._parts.append(unsigned_varint(len(fields or {})))
        for tag, value in sorted((fields or {}).items()):
            self._parts += [unsigned_varint(tag), unsigned_varint(len(value)), value]

    def done(self) -> bytes:
        """Return everything written."""
        return b"".join(self._parts)

    def done_without_version(self) -> bytes:
        """Return everything written after the version, for a tagged field."""
        return b"".join(self._parts[1:])

    def _count(self, count: int) -> bytes:
        return unsigned_varint(count + 1) if self._flexible else _INT32.pack(count)


class FieldReader:
    """Reader of a sequence of fields."""

    def __init__(self, data: bytes, *, position: int = 0, flexible: bool = False) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def become_flexible(self) -> None:
        """Read the following fields in the flexible encoding, as the version demands."""
        self._flexible = True

    def int8(self) -> int:
        """Read one signed byte."""
        return self._number(_INT8)

    def int16(self) -> int:
        """Read two bytes, big-endian."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Read four bytes, big-endian."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Read eight bytes, big-endian."""
        return self._number(_INT64)

    def uuid(self) -> bytes:
        """Read sixteen bytes."""
        return self._take(_UUID_BYTES)

    def string(self) -> str:
        """Read text that is not null."""
        text = self.nullable_string()
        if text is None:
            raise DamagedRecordError("null where there must be a string")
        return text

    def nullable_string(self) -> str | None:
        """Read text or null."""
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as problem:
            raise DamagedRecordError(f"a string is no UTF-8: {problem}") from problem

    def octets(self) -> bytes:
        """Read bytes that are not null."""
        return self._take(self._count())

    def nullable_octets(self) -> bytes | None:
        """Read bytes or null, in the old encoding."""
        assert not self._flexible, "only the old encoding is needed"
        length = self.int32()
        return self._take(length) if length >= 0 else None

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Read an array, each element with ``read``."""
        return tuple(read() for _ in range(self._count()))

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a structure; none in the old encoding."""
        if not self._flexible:
            return {}
        return {self._varint(): self._take(self._varint()) for _ in range(self._varint())}

    def _count(self) -> int:
        count = self._varint() - 1 if self._flexible else self.int32()
        # An element has at least one byte: a damaged count must not become a huge loop.
        if not 0 <= count <= len(self._data) - self._position:
            raise DamagedRecordError(f"a count or length of {count}")
        return count

    def _varint(self) -> int:
        number = 0
        for shift in range(0, _VARINT_BITS_MAX, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise DamagedRecordError("a length has more than 35 bits")

    def _number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self._take(layout.size))[0]
        return value

    def _take(self, count: int) -> bytes:
        start, end = self._position, self._position + count
        if count < 0 or end > len(self._data):
            raise DamagedRecordError(f"{count} bytes wanted at {start} of {len(self._data)}")
        self._position = end
        return self._data[start:end]


def read_version(reader: FieldReader, *, newest: int, what: str) -> int:
    """Read the version of a value. Raises NewerRecordError beyond ``newest``."""
    version = reader.int16()
    if version > newest:
        raise NewerRecordError(f"{what} of version {version}; this release reads up to {newest}")
    if version < 0:
        raise DamagedRecordError(f"{what} of version {version}")
    return version
