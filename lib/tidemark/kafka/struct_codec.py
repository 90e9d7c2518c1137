"""Readers and writers compiled from the fields of a schema: one closure for each field, joined for
each structure.

A reader takes ``(buffer, position, budget)`` and returns ``(value, next position)``; a writer takes
a value and returns bytes. The depth is that of the schema, so hostile bytes cannot cause recursion;
a `Budget` bounds the elements of arrays.
"""

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.kafka.primitives import (
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UUID_BYTES,
    Buffer,
    Encoding,
    MalformedRequestError,
    read_tags,
    read_uuid,
    tags_bytes,
)
from tidemark.kafka.schemas import FieldSchema


class Struct:
    """A structure read from the wire; its attributes are the schema's fields of all versions."""

    def __init__(self, **fields: object) -> None:
        self.__dict__ = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # its fields may change

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"Struct({fields})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class UnencodableError(ValueError):
    """A handler's values do not fit the message, which is a bug. The message names the field."""


class Budget:
    """Number of array elements that a message may still have: each takes up to a hundred times its
    bytes.
    """

    __slots__ = ("left",)

    def __init__(self, elements_max: int) -> None:
        self.left = elements_max

    def spend(self, count: int) -> None:
        """Take ``count`` elements; raise MalformedRequestError if they are too many."""
        self.left -= count
        if self.left < 0:
            raise MalformedRequestError("more array elements than one message may hold")


MESSAGE_CHARS_MAX: Final = 4_096

Read = Callable[[memoryview, int, Budget], tuple[Any, int]]
Write = Callable[[Any], bytes]
# -- defaults


def default_value(field: FieldSchema) -> object:
    """Return a new default: null, an empty list, a structure of defaults, or the plain value."""
    if field.default_is_null:
        return None
    if field.is_array:
        return []
    if field.wire_type == "struct":
        return Struct(**{inner.name: default_value(inner) for inner in field.fields})
    return field.default


def _is_mutable(field: FieldSchema) -> bool:
    return not field.default_is_null and (field.is_array or field.wire_type == "struct")


# -- reading


def _primitive_reader(wire_type: str, encoding: Encoding, *, nullable: bool) -> Read:
    if wire_type == "string":
        read_text = encoding.read_nullable_string if nullable else encoding.read_string
        return lambda buffer, position, _: read_text(buffer, position)
    if wire_type in ("bytes", "records"):
        return _bytes_reader(encoding, nullable=nullable)
    if wire_type == "uuid":
        return lambda buffer, position, _: read_uuid(buffer, position)
    if wire_type == "bool":
        return lambda buffer, position, _: (buffer[position] != 0, position + 1)
    layout = _NUMBERS[wire_type]
    unpack_from, size = layout.unpack_from, layout.size

    def read_number(buffer: memoryview, position: int, _: Budget) -> tuple[Any, int]:
        return unpack_from(buffer, position)[0], position + size

    return read_number


def _bytes_reader(encoding: Encoding, *, nullable: bool) -> Read:
    read_view = encoding.read_nullable_view

    def read_bytes(buffer: memoryview, position: int, _: Budget) -> tuple[bytes | None, int]:
        view, position = read_view(buffer, position)
        if view is not None:
            return bytes(view), position
        if not nullable:
            raise MalformedRequestError("null bytes where null is not allowed")
        return None, position

    return read_bytes


_NUMBERS: Final = {
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "int64": INT64,
    "float64": FLOAT64,
}


def _field_reader(field: FieldSchema, version: int, encoding: Encoding) -> Read:
    nullable = version in field.nullable
    if field.wire_type == "struct":
        element = struct_reader(field.fields, version, encoding)
    else:
        inner_nullable = nullable and not field.is_array
        element = _primitive_reader(field.wire_type, encoding, nullable=inner_nullable)
    if field.is_array:
        return _array_reader(element, encoding, nullable=nullable)
    if nullable and field.wire_type == "struct":
        return _nullable_struct_reader(element)
    return element


def _array_reader(element: Read, encoding: Encoding, *, nullable: bool) -> Read:
    read_count = encoding.read_nullable_count if nullable else encoding.read_count

    def read_array(
        buffer: memoryview, position: int, budget: Budget
    ) -> tuple[list[Any] | None, int]:
        count, position = read_count(buffer, position)
        if count < 0:
            return None, position
        budget.spend(count)
        values = []
        for _ in range(count):
            value, position = element(buffer, position, budget)
            values.append(value)
        return values, position

    return read_array


def _nullable_struct_reader(element: Read) -> Read:
    """Return a reader of a structure preceded by a byte that is negative for null (KIP-893)."""

    def read_nullable(buffer: memoryview, position: int, budget: Budget) -> tuple[Any, int]:
        if buffer[position] >= 0x80:
            return None, position + 1
        return element(buffer, position + 1, budget)

    return read_nullable


def struct_reader(fields: tuple[FieldSchema, ...], version: int, encoding: Encoding) -> Read:
    """Return a reader of `Struct` with these fields in this version."""
    present = [field for field in fields if version in field.versions]
    reads = [(f.name, _field_reader(f, version, encoding)) for f in present if f.tag < 0]
    tagged = {f.tag: (f.name, _field_reader(f, version, encoding)) for f in present if f.tag >= 0}
    defaulted = [f for f in fields if version not in f.versions or f.tag >= 0]
    plain = {f.name: f.default for f in defaulted if not _is_mutable(f)}
    mutable = [f for f in defaulted if _is_mutable(f)]
    flexible, new = encoding.flexible, object.__new__

    def read_struct(buffer: memoryview, position: int, budget: Budget) -> tuple[Struct, int]:
        values: dict[str, Any] = dict(plain)
        for field in mutable:
            values[field.name] = default_value(field)
        for name, read in reads:
            values[name], position = read(buffer, position, budget)
        if tagged:
            tags, position = read_tags(buffer, position)
            for tag in tags.keys() & tagged.keys():
                name, read = tagged[tag]
                values[name], _ = read(tags[tag], 0, budget)
        elif flexible:
            position = encoding.skip_tags(buffer, position)
        message = new(Struct)
        message.__dict__ = values
        return message, position

    return read_struct


# -- writing


def _primitive_writer(wire_type: str, encoding: Encoding, *, nullable: bool) -> Write:
    if wire_type == "string":
        return encoding.string if nullable else _not_null(encoding.string)
    if wire_type in ("bytes", "records"):
        return _bytes_writer(encoding, nullable=nullable)
    if wire_type == "uuid":
        return _write_uuid
    if wire_type == "bool":
        return lambda value: b"\x01" if value else b"\x00"
    return _NUMBERS[wire_type].pack


def _not_null(write: Write) -> Write:
    def write_present(value: Any) -> bytes:
        if value is None:
            raise TypeError("None where null is not allowed")
        return write(value)

    return write_present


def _shortened(write: Write) -> Write:
    """Return a writer that cuts messages: they may repeat a client's input of any length."""

    def write_short(value: str | None) -> bytes:
        if value is not None and len(value) > MESSAGE_CHARS_MAX:
            value = f"{value[:MESSAGE_CHARS_MAX]}..."
        return write(value)

    return write_short


def _bytes_writer(encoding: Encoding, *, nullable: bool) -> Write:
    array_length = encoding.array_length

    def write_bytes(value: Buffer | None) -> bytes:
        if value is not None:
            return array_length(len(value)) + bytes(value)
        if not nullable:
            raise TypeError("None where null is not allowed")
        return array_length(-1)

    return write_bytes


def _write_uuid(value: bytes) -> bytes:
    if len(value) != UUID_BYTES:
        raise TypeError("a uuid is 16 bytes")
    return bytes(value)


def _field_writer(field: FieldSchema, version: int, encoding: Encoding, where: str) -> Write:
    nullable = version in field.nullable
    if field.wire_type == "struct":
        element = struct_writer(field.fields, version, encoding, f"{where}.{field.name}")
    else:
        inner_nullable = nullable and not field.is_array
        element = _primitive_writer(field.wire_type, encoding, nullable=inner_nullable)
    if field.name == "error_message":
        element = _shortened(element)
    if field.is_array:
        return _array_writer(element, encoding, nullable=nullable)
    if nullable and field.wire_type == "struct":
        return lambda value: b"\xff" if value is None else b"\x01" + element(value)
    return element


def _array_writer(element: Write, encoding: Encoding, *, nullable: bool) -> Write:
    array_length = encoding.array_length

    def write_array(values: Any) -> bytes:
        if values is None:
            if not nullable:
                raise TypeError("None where null is not allowed")
            return array_length(-1)
        if isinstance(values, str | bytes):
            raise TypeError("a string where a list is wanted")
        return b"".join([array_length(len(values)), *map(element, values)])

    return write_array


class _Part(NamedTuple):
    name: str
    write: Write
    default: bytes  # the encoded default


def _part(field: FieldSchema, version: int, encoding: Encoding, where: str) -> _Part:
    write = _field_writer(field, version, encoding, where)
    default = default_value(field)
    if default is None and version not in field.nullable:
        default = [] if field.is_array else ""  # null by default, but not in this version
    return _Part(field.name, write, write(default))


def struct_writer(
    fields: tuple[FieldSchema, ...], version: int, encoding: Encoding, where: str
) -> Write:
    """Return a writer of mappings or `Struct` with these fields in this version; ``where`` names it
    in errors. It raises UnencodableError.
    """
    present = [field for field in fields if version in field.versions]
    parts = [_part(f, version, encoding, where) for f in present if f.tag < 0]
    tagged = sorted((f.tag, _part(f, version, encoding, where)) for f in present if f.tag >= 0)
    known = frozenset(field.name for field in fields)
    flexible = encoding.flexible

    def write_struct(values: Mapping[str, object] | Struct) -> bytes:
        given = values.__dict__ if isinstance(values, Struct) else values
        if not given.keys() <= known:
            unknown = sorted(given.keys() - known)
            raise UnencodableError(f"{where} has no {unknown}; it has {sorted(known)}")
        name, pieces = "", []
        try:
            for name, write, default in parts:
                pieces.append(write(given[name]) if name in given else default)
            if flexible:
                pieces.append(_write_tags(tagged, given))
        except UnencodableError:
            raise
        except (struct.error, TypeError, ValueError, AttributeError, OverflowError) as error:
            value = given.get(name)
            raise UnencodableError(f"{where}.{name} = {value!r:.100}: {error}") from error
        return b"".join(pieces)

    return write_struct


def _write_tags(tagged: list[tuple[int, _Part]], given: Mapping[str, object]) -> bytes:
    """Write the tagged fields that differ from their defaults."""
    written = []
    for tag, (name, write, default) in tagged:
        value = write(given[name]) if name in given else default
        if value != default:
            written.append((tag, value))
    return tags_bytes(written)
