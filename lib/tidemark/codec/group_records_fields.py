"""Fields of coordinator records in Kafka's two encodings: the old one, and the flexible one of
KIP-482 with compact lengths and tagged fields.

A key or a value is ``version int16`` and then its fields. Reading raises DamagedRecordError where
the bytes end too early or are no text.
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
    """A record in a format that a later release wrote: it must not be guessed at."""


class DamagedRecordError(ValueError):
    """The bytes are no record of the version that they claim."""


def unsigned_varint(number: int) -> bytes:
    """Seven bits a byte, least significant first; the high bit says that more follow."""
    assert number >= 0, number
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class FieldWriter:
    """Appends fields one after the other; ``flexible`` chooses the encoding of lengths."""

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        self._parts = [_INT16.pack(version)]
        self._flexible = flexible

    def int8(self, value: int) -> None:
        """One signed byte."""
        self._parts.append(_INT8.pack(value))

    def int32(self, value: int) -> None:
        """Four bytes, big-endian."""
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        """Eight bytes, big-endian."""
        self._parts.append(_INT64.pack(value))

    def uuid(self, value: bytes) -> None:
        """Sixteen bytes as they are."""
        assert len(value) == _UUID_BYTES, value
        self._parts.append(value)

    def string(self, value: str | None) -> None:
        """UTF-8 behind its length; None where the field may be null."""
        if value is None:
            self._parts.append(b"\x00" if self._flexible else _INT16.pack(-1))
            return
        text = value.encode()
        self._parts.append(
            unsigned_varint(len(text) + 1) if self._flexible else _INT16.pack(len(text))
        )
        self._parts.append(text)

    def octets(self, value: bytes) -> None:
        """Bytes behind their length."""
        self._parts.append(self._count(len(value)))
        self._parts.append(value)

    def array(self, values: Sequence[T], write: Callable[[T], None]) -> None:
        """The count, then each element by ``write``."""
        self._parts.append(self._count(len(values)))
        for value in values:
            write(value)

    def tags(self, fields: Mapping[int, bytes] | None = None) -> None:
        """Ends a structure: tagged fields by their numbers. Nothing in the old encoding."""
        assert self._flexible or not fields, fields
        if not self._flexible:
            return
        self._parts.append(unsigned_varint(len(fields or {})))
        for tag, value in sorted((fields or {}).items()):
            self._parts += [unsigned_varint(tag), unsigned_varint(len(value)), value]

    def done(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)

    def done_without_version(self) -> bytes:
        """All of it but the version: what a tagged field holds."""
        return b"".join(self._parts[1:])

    def _count(self, count: int) -> bytes:
        return unsigned_varint(count + 1) if self._flexible else _INT32.pack(count)


class FieldReader:
    """Reads fields one after the other."""

    def __init__(self, data: bytes, *, position: int = 0, flexible: bool = False) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def become_flexible(self) -> None:
        """What follows is in the flexible encoding: known once the version is read."""
        self._flexible = True

    def int8(self) -> int:
        """One signed byte."""
        return self._number(_INT8)

    def int16(self) -> int:
        """Two bytes, big-endian."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Four bytes, big-endian."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Eight bytes, big-endian."""
        return self._number(_INT64)

    def uuid(self) -> bytes:
        """Sixteen bytes."""
        return self._take(_UUID_BYTES)

    def string(self) -> str:
        """Text that is not null."""
        text = self.nullable_string()
        if text is None:
            raise DamagedRecordError("null where there must be a string")
        return text

    def nullable_string(self) -> str | None:
        """Text, or None."""
        length = self._varint() - 1 if self._flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as problem:
            raise DamagedRecordError(f"a string is no UTF-8: {problem}") from problem

    def octets(self) -> bytes:
        """Bytes that are not null."""
        return self._take(self._count())

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """An array whose elements are read by ``read``."""
        return tuple(read() for _ in range(self._count()))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a structure; none in the old encoding."""
        if not self._flexible:
            return {}
        return {self._varint(): self._take(self._varint()) for _ in range(self._varint())}

    def _count(self) -> int:
        count = self._varint() - 1 if self._flexible else self.int32()
        # An element has one byte at least: a damaged count must not become a huge loop.
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
    """The version of a value. Raises NewerRecordError beyond ``newest``."""
    version = reader.int16()
    if version > newest:
        raise NewerRecordError(f"{what} of version {version}; this release reads up to {newest}")
    if version < 0:
        raise DamagedRecordError(f"{what} of version {version}")
    return version
