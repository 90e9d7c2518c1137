"""Table of Kafka's messages, parsed one API at a time.

tools/write_kafka_schemas.py generates it together with the gRPC code
(``tidemark_wire/kafka_messages.txt``, whose head describes the format).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from tidemark.kafka.primitives import ZERO_UUID

_INTEGERS: Final = frozenset({"int8", "int16", "uint16", "int32", "int64"})
_ZEROES: Final[Mapping[str, object]] = {
    **dict.fromkeys(_INTEGERS, 0),
    "float64": 0.0,
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": ZERO_UUID,
    "struct": None,  # the structure of its fields' defaults
}
_WORDS: Final[Mapping[str, object]] = {"null": None, "true": True}


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field over all versions; version ranges exclude their stop. ``tag`` is -1 if untagged.

    ``default`` is None also for an array or a structure, whose default is empty.
    """

    name: str
    wire_type: str
    is_array: bool
    versions: range
    nullable: range
    tag: int
    default: object
    default_is_null: bool
    fields: tuple["FieldSchema", ...]


@dataclass(frozen=True, slots=True)
class ApiSchema:
    """Both messages of one API; ``versions`` excludes its stop."""

    api_key: int
    name: str
    versions: range
    request: tuple[FieldSchema, ...]
    response: tuple[FieldSchema, ...]


@cache
def _sections() -> Mapping[int, str]:
    """Return the text of each API by its key."""
    text = files("tidemark_wire").joinpath("kafka_messages.txt").read_text(encoding="ascii")
    sections = text.split("\napi ")[1:]
    return {int(section.split(" ", 1)[0]): section for section in sections}


def covers(api_key: int) -> bool:
    """True if the table has this API."""
    return api_key in _sections()


@cache
def load_schema(api_key: int) -> ApiSchema:
    """Return the schema of one API; raises KeyError if the table does not have it."""
    head, *lines = _sections()[api_key].strip().split("\n")
    _, name, span = head.split(" ")
    versions = _span(span)
    at = lines.index("response")
    assert lines[0] == "request", head
    return ApiSchema(
        api_key, name, versions, _fields(lines[1:at], versions), _fields(lines[at + 1 :], versions)
    )


def _span(text: str) -> range:
    first, last = text.split("-")
    return range(int(first), int(last) + 1)


def _fields(lines: list[str], around: range) -> tuple[FieldSchema, ...]:
    """Return the fields of one level; the lines below a field, two spaces deeper, are its own."""
    starts = [index for index, line in enumerate(lines) if not line.startswith("    ")]
    ends = [*starts, len(lines)][1:]
    return tuple(
        _field(lines[start].split(), [line[2:] for line in lines[start + 1 : end]], around)
        for start, end in zip(starts, ends, strict=True)
    )


def _field(words: list[str], below: list[str], around: range) -> FieldSchema:
    name, kind, *rest = words
    versions, options = around, {}
    for word in rest:
        key, equals, value = word.partition("=")
        if equals:
            options[key] = value
        else:
            versions = _span(word)
    wire_type = kind.removesuffix("[]")
    is_array = kind.endswith("[]")
    default = None if is_array else _ZEROES[wire_type]
    if "default" in options:
        text = options["default"]
        default = _WORDS[text] if text in _WORDS else int(text)
    return FieldSchema(
        name=name,
        wire_type=wire_type,
        is_array=is_array,
        versions=versions,
        nullable=_span(options["null"]) if "null" in options else range(0),
        tag=int(options.get("tag", -1)),
        default=default,
        default_is_null=options.get("default") == "null",
        fields=_fields(below, versions),
    )
