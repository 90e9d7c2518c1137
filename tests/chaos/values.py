"""Values that say who wrote them: unique, checkable to the last byte, of many sizes."""

import zlib
from typing import Final, NamedTuple

_PADDING_BYTES_MAX: Final = 1_500


class Name(NamedTuple):
    """What a value is: number ``sequence`` (from 0, without gaps) of one key of one producer."""

    producer: str
    key: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.key}/{self.sequence}"


def write_value(name: Name) -> bytes:
    """The name, a space, and padding that follows from the name."""
    named = str(name).encode()
    size = zlib.crc32(named) % _PADDING_BYTES_MAX
    padding = (named * (size // len(named) + 1))[:size]
    return named + b" " + padding


def read_value(value: bytes) -> Name | None:
    """None when no producer of ours has written those bytes."""
    words = value.partition(b" ")[0].decode("ascii", "replace").split("/")
    if len(words) != len(Name._fields) or not words[2].isdecimal():
        return None
    name = Name(words[0], words[1], int(words[2]))
    return name if write_value(name) == value else None
