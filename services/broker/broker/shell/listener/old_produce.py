"""Produce before version 3: refused in a form that old clients can read.

The versions are advertised, because librdkafka before 2.11.1 drops compression without them
(KAFKA-18659). No client that supports record batches uses them. Layout of the answer: v1 adds the
throttle time, v2 the append time.
"""

import struct
from typing import Final

from tidemark.kafka.primitives import string_bytes
from tidemark.kafka.produce import read_produce_request
from tidemark.model.errors import ErrorCode

_COUNT: Final = struct.Struct(">i")
_RESULT_V0: Final = struct.Struct(">ihq")
_RESULT_V2: Final = struct.Struct(">ihqq")
_NO_TRANSACTIONAL_ID: Final = b"\xff\xff"


def refuse(body: memoryview, version: int) -> bytes | None:
    """Return UNSUPPORTED_VERSION for every partition; None for acks=0, which has no answer. Raises
    MalformedRequestError.
    """
    # Version 3 is version 2 with a transactional id before it.
    request = read_produce_request(memoryview(_NO_TRANSACTIONAL_ID + bytes(body)), 3)
    if request.acks == 0:
        return None
    code = int(ErrorCode.UNSUPPORTED_VERSION)
    pieces = [_COUNT.pack(len(request.topics))]
    for topic, _, partitions in request.topics:
        pieces += (string_bytes(topic), _COUNT.pack(len(partitions)))
        for partition, _ in partitions:
            pieces.append(
                _RESULT_V2.pack(partition, code, -1, -1)
                if version >= 2
                else _RESULT_V0.pack(partition, code, -1)
            )
    if version >= 1:
        pieces.append(_COUNT.pack(0))
    return b"".join(pieces)
