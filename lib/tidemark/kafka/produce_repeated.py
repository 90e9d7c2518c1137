"""Repeated Produce requests: the same partition again, with another batch. Versions 9 to 13.

Nearly every request of a busy producer is for one partition of one topic. Its bytes up to the
partition's index then equal those of an earlier request and need not be parsed again, and its
response differs in three numbers. Both directions agree byte for byte with ``produce`` (shown by a
property test), at a third of the cost.
"""

import struct
from typing import Final, NamedTuple

from tidemark.kafka.primitives import INT32, compact_string_bytes
from tidemark.kafka.produce import ProduceRequest

FIRST_VERSION: Final = 9
_TOPIC_ID_FROM: Final = 13
_ONE: Final = b"\x02"  # a compact array of one element
_NO_TAGS_THRICE: Final = b"\x00\x00\x00"
_ANSWER_TAIL: Final = (
    b"\x01\x00\x00"  # no record errors, null message, no tagged fields
    b"\x00"  # of the topic
    b"\x00\x00\x00\x00"  # throttle time
    b"\x00"  # of the response
)
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_RESULT: Final = struct.Struct(">ihqqq")


class RepeatedProduce(NamedTuple):
    """Fields of the bytes before the batch, and the bytes before the result in the response."""

    version: int
    acks: int
    timeout_ms: int
    topic: str
    topic_id: bytes
    partition: int
    answer_head: bytes


def learn(request: ProduceRequest, version: int) -> tuple[bytes, RepeatedProduce] | None:
    """Return the prefix with which a repetition of ``request`` begins, and the prefix's fields.

    None if it would not pay: several partitions, a transaction, acks=0 or an older version.
    """
    if version < FIRST_VERSION or request.transactional_id is not None or request.acks == 0:
        return None
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, topic_id, ((partition, _),) = request.topics[0]
    named = topic_id if version >= _TOPIC_ID_FROM else compact_string_bytes(topic)
    prefix = (
        b"\x00"
        + _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
        + _ONE
        + named
        + _ONE
        + INT32.pack(partition)
    )
    known = RepeatedProduce(
        version,
        request.acks,
        request.timeout_ms,
        topic,
        topic_id,
        partition,
        _ONE + named + _ONE,
    )
    return prefix, known


def records_behind(body: memoryview, position: int) -> memoryview | None:
    """Return the batch at ``position``, after a known prefix; None unless the body ends with it and
    three empty tag fields.
    """
    size = body[position]
    position += 1
    if size >= 0x80:
        size &= 0x7F
        shift = 7
        while True:
            if shift > 28 or position >= len(body):
                return None
            byte = body[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    end = position + size - 1
    if size == 0 or end + 3 != len(body) or bytes(body[end:]) != _NO_TAGS_THRICE:
        return None
    return body[position:end]


def write_answer(
    known: RepeatedProduce, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """Return the body of the response to a repetition whose batch was appended."""
    return (
        known.answer_head
        + _RESULT.pack(known.partition, 0, base_offset, log_append_time_ms, log_start_offset)
        + _ANSWER_TAIL
    )
