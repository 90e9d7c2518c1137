"""Messages of every API without a module of its own, as plain Python values; versions are hidden.

Field names are kio's (Kafka's in snake case, times without ``Ms``: ``throttle_time``, ``timeout``).
Values are int, bool, float, str, bytes, None, list and `Struct`: times are int milliseconds, error
codes int, uuids 16 bytes.

A field that a version lacks is read as its schema default, and dropped when written. An omitted
field is written as its default. A name that no version has is refused, so that misspellings are
found.
"""

from tidemark.kafka.messages import (
    read_request,
    read_response,
    response_fields,
    write_request,
    write_response,
)
from tidemark.kafka.struct_codec import Struct, UnencodableError

__all__ = [
    "Struct",
    "UnencodableError",
    "read_request",
    "read_response",
    "response_fields",
    "write_request",
    "write_response",
]
