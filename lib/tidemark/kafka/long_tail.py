"""Every API that is not hand-written: plain Python values in and out, versions hidden.

Field names are kio's (snake case of Kafka's, times without the ``Ms``: ``throttle_time``,
``timeout``). Values are int, bool, float, str, bytes, None, list and `Struct`: times are int
milliseconds, error codes int, uuids 16 bytes.

A field that a version lacks is read as its schema default and dropped when written; a field left
out is written as its default. A name that no version has is refused, so that a misspelling cannot
pass.
"""

from tidemark.kafka.error_responses import error_response
from tidemark.kafka.messages import read_request, read_response, write_request, write_response
from tidemark.kafka.struct_codec import Struct, UnencodableError

__all__ = [
    "Struct",
    "UnencodableError",
    "error_response",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]
