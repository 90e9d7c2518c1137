"""Write gen/tidemark_wire/kafka_messages.txt: the fields of Kafka's messages, version by version.

They come from kio's schemas. The broker decodes from this table and not from kio's classes, which
would take seconds of CPU and tens of megabytes to load. `make proto` runs this, like protoc.
"""

import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path

from kio.index import load_request_schema, load_response_schema
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    is_optional,
)
from tidemark.kafka.apis import APIS, ApiKey

OUTPUT = Path(__file__).parent.parent / "gen/tidemark_wire/kafka_messages.txt"
HAND_WRITTEN = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
}
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
ALWAYS_NULLABLE = {"uuid"}  # kio reads the zero uuid as None; on the wire a uuid has no null
HEADER = """\
# Kafka's messages, as far as they are not hand-written. Written by tools/write_kafka_schemas.py; do
# not edit.  api <key> <NAME> <first version>-<last version>, then the request's and the response's
# fields, one a line:  name type [versions] [null=versions] [tag=number] [default=value]  A field
# without versions exists in all versions of what holds it. `[]` makes an array, `struct` is
# followed by its fields, one level deeper. Without a default it is 0, false, "", an empty array or
# the zero uuid. Times are milliseconds, error codes int16.
"""


@dataclass
class Node:
    """One field over all versions."""

    name: str
    wire_type: str
    versions: list[int] = field(default_factory=list)
    nullable: list[int] = field(default_factory=list)
    tag: int | None = None
    default: str | None = None
    children: dict[str, "Node"] = field(default_factory=dict)


def wire_type(schema: "Field[object]") -> tuple[str, type | None]:
    """The type as the table writes it, and the nested class of a structure."""
    match classify_field(schema):
        case EntityField(nested):
            return "struct", nested
        case EntityTupleField(nested):
            return "struct[]", nested
        case primitive:
            name = schema.metadata["kafka_type"]
            return WIRE_TYPES.get(name, name) + ("[]" if primitive.is_array else ""), None


def default_of(schema: "Field[object]") -> str | None:
    """The default as the table writes it; None where it is the implicit one of the type."""
    match schema.default:
        case None:
            return None if schema.metadata.get("kafka_type") in ALWAYS_NULLABLE else "null"
        case bool(value):
            return "true" if value else None
        case timedelta() as value:
            return str(value // timedelta(milliseconds=1)) if value else None
        case int(value) if value:
            return str(value)
        case value if value is MISSING or not value:
            return None
        case value:
            raise TypeError(f"{schema.name}: a default of {value!r} is new to this tool")


def merge(into: dict[str, Node], schema: type, version: int) -> None:
    """Add one version's fields, in order: a new field goes behind the one that precedes it here."""
    previous: str | None = None
    for part in fields(schema):
        kind, nested = wire_type(part)
        if part.name not in into:
            insert_after(into, previous, Node(part.name, kind, tag=get_field_tag(part)))
        node = into[part.name]
        assert node.wire_type == kind, (schema, part.name)
        node.versions.append(version)
        node.default = default_of(part)
        if is_optional(part) and part.metadata.get("kafka_type") not in ALWAYS_NULLABLE:
            node.nullable.append(version)
        if kind == "records":  # RecordsWritable may be null wherever it stands
            node.nullable.append(version)
        if nested is not None:
            merge(node.children, nested, version)
        previous = part.name


def insert_after(nodes: dict[str, Node], previous: str | None, new: Node) -> None:
    """Keep the order of the fields within each version."""
    items = list(nodes.items())
    names = list(nodes)
    at = 0 if previous is None else names.index(previous) + 1
    items.insert(at, (new.name, new))
    nodes.clear()
    nodes.update(items)


def span(versions: list[int]) -> str:
    """`a-b` of contiguous versions."""
    assert versions == list(range(versions[0], versions[-1] + 1)), versions
    return f"{versions[0]}-{versions[-1]}"


def lines_of(nodes: dict[str, Node], around: list[int], depth: int) -> Iterator[str]:
    """The table's lines for these fields and all below them."""
    for node in nodes.values():
        words = [node.name, node.wire_type]
        if node.versions != around:
            words.append(span(node.versions))
        if node.nullable:
            words.append(f"null={span(node.nullable)}")
        if node.tag is not None:
            words.append(f"tag={node.tag}")
        default = node.default
        if default is None and node.nullable and node.name == "error_message":
            default = "null"  # what Kafka's brokers send beside error code 0
        if default is not None:
            words.append(f"default={default}")
        yield "  " * depth + " ".join(words)
        yield from lines_of(node.children, node.versions, depth + 1)


def render() -> str:
    """The whole table."""
    lines = [HEADER]
    for key, versions in APIS.items():
        if key in HAND_WRITTEN:
            continue
        served = list(range(versions.served_min, versions.max + 1))
        lines.append(f"api {int(key)} {key.name} {span(served)}")
        for direction, load in (
            ("request", load_request_schema),
            ("response", load_response_schema),
        ):
            nodes: dict[str, Node] = {}
            for version in served:
                schema = load(int(key), version)
                assert schema.__flexible__ == versions.is_flexible(version), (key, version)
                merge(nodes, schema, version)
            lines.append(direction)
            lines += lines_of(nodes, served, 1)
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    OUTPUT.write_text(render())
    sys.stdout.write(f"wrote {OUTPUT}\n")
