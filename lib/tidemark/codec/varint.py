"""Zig-zag variable-length integers, as used in records (protobuf's sint32 and sint64).

Small values are looked up in a table, which covers lengths, deltas and counts of ordinary records.
"""

from typing import Final

VARLONG_BYTES_MAX: Final = 10
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_TABLE_VALUES: Final = 2_048


def _encode_unsigned(number: int) -> bytes:
    """Encode with seven bits per byte, least significant first; the high bit means more bytes."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


SMALL: Final[tuple[bytes, ...]] = tuple(
    _encode_unsigned(value << 1) for value in range(_TABLE_VALUES)
)
"""Encodings of 0 to 2047. A hot loop may index the table itself, within its bounds."""

ONE_BYTE: Final[tuple[int | None, ...]] = tuple(
    (byte >> 1) ^ -(byte & 1) if byte < 0x80 else None for byte in range(256)
)
"""Values of single bytes, None if more bytes follow. For hot loops, too."""


def encode_varint(value: int) -> bytes:
    """Encode an int64 (so also an int32; the encodings agree)."""
    if 0 <= value < _TABLE_VALUES:
        return SMALL[value]
    assert INT64_MIN <= value <= INT64_MAX, value
    return _encode_unsigned((value << 1) ^ (value >> 63))


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode at ``position``; return the value and the position after it.

    Raises IndexError beyond the end and ValueError for more than ten bytes or more than 64 bits.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        number = byte & 0x7F | second << 7
        return (number >> 1) ^ -(number & 1), position + 2
    return _read_long(data, position)


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    number, shift = 0, 0
    for index in range(position, position + VARLONG_BYTES_MAX):
        byte = data[index]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), index + 1
        shift += 7
    raise ValueError(f"varint at {position} has more than 64 bits")
