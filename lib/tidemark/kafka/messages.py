"""Messages of the long tail by API key, version and direction.

The table of `tidemark.kafka.schemas` is compiled into readers and writers, for each message and
version at its first use. The public interface is `tidemark.kafka.long_tail`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from tidemark.kafka.apis import is_flexible
from tidemark.kafka.own_fields import with_own_fields
from tidemark.kafka.primitives import COMPACT, PLAIN, REQUEST_ELEMENTS_MAX, guarded
from tidemark.kafka.schemas import ApiSchema, FieldSchema, load_schema
from tidemark.kafka.struct_codec import (
    Budget,
    Read,
    Struct,
    Write,
    struct_reader,
    struct_writer,
)

Direction = Literal["request", "response"]
RESPONSE_ELEMENTS_MAX: Final = 1 << 24  # a server's response may be large, and is not hostile


def read_request(api_key: int, version: int, body: memoryview) -> Struct:
    """Parse a request; raises MalformedRequestError."""
    return _read(api_key, version, "request", body)


def read_response(api_key: int, version: int, body: memoryview) -> Struct:
    """Parse a response; raises MalformedRequestError."""
    return _read(api_key, version, "response", body)


def write_request(api_key: int, version: int, fields: Mapping[str, object] | Struct) -> bytes:
    """Return the body of a request; raises UnencodableError."""
    return _writer(api_key, version, "request")(fields)


def write_response(api_key: int, version: int, fields: Mapping[str, object] | Struct) -> bytes:
    """Return the body of a response; raises UnencodableError."""
    return _writer(api_key, version, "response")(fields)


def response_fields(api_key: int) -> frozenset[str]:
    """Return the names of the fields that responses of an API have, in any version."""
    return frozenset(field.name for field in load_schema(api_key).response)


@guarded
def _read(api_key: int, version: int, direction: Direction, body: memoryview) -> Struct:
    elements_max = REQUEST_ELEMENTS_MAX if direction == "request" else RESPONSE_ELEMENTS_MAX
    message, _ = _reader(api_key, version, direction)(body, 0, Budget(elements_max))
    assert isinstance(message, Struct)
    return message


def _fields_of(schema: ApiSchema, direction: Direction) -> tuple[FieldSchema, ...]:
    if direction == "response":
        return schema.response
    return with_own_fields(schema.api_key, schema.request)


@cache
def _reader(api_key: int, version: int, direction: Direction) -> Read:
    schema = load_schema(api_key)
    assert version in schema.versions, (schema.name, version)
    encoding = COMPACT if is_flexible(api_key, version) else PLAIN
    return struct_reader(_fields_of(schema, direction), version, encoding)


@cache
def _writer(api_key: int, version: int, direction: Direction) -> Write:
    schema = load_schema(api_key)
    assert version in schema.versions, (schema.name, version)
    encoding = COMPACT if is_flexible(api_key, version) else PLAIN
    where = f"{schema.name} {direction} v{version}"
    return struct_writer(_fields_of(schema, direction), version, encoding, where)
