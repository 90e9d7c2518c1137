"""Produce, versions 3 to 13, both directions. Records are views into the frame; readers do not copy
them.

v5 log start offset, v8 record errors and error message, v9 compact, v10 current leader and node
endpoints (KIP-951), v13 topic ids instead of names (KIP-516).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    COMPACT,
    INT16,
    INT32,
    INT64,
    PLAIN,
    ZERO_UUID,
    Buffer,
    Encoding,
    MalformedRequestError,
    NodeEndpoint,
    check_elements,
    compact_string_bytes,
    guarded,
    node_endpoints_bytes,
    read_node_endpoints,
    read_tags,
    read_uuid,
    read_uvarint,
    string_bytes,
    tags_bytes,
    uvarint,
)

_FLEXIBLE_FROM: Final = 9
_RECORD_ERRORS_FROM: Final = 8
_LOG_START_FROM: Final = 5
_LEADER_FROM: Final = 10
_TOPIC_ID_FROM: Final = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_SIZE: Final = struct.Struct(">ii")
_RESULT_V3: Final = struct.Struct(">ihqq")
_RESULT: Final = struct.Struct(">ihqqq")
_LEADER: Final = struct.Struct(">ii")


class ProducePartition(NamedTuple):
    """Batches for one partition; ``records`` is a view into the frame."""

    partition: int
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """One topic; ``topic`` is '' from version 13, ``topic_id`` sixteen zero bytes before."""

    topic: str
    topic_id: bytes
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """Produce request; ``acks`` is 0, 1, or -1 for all in-sync replicas."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResult(NamedTuple):
    """Result for one partition. ``current_leader`` is (leader id, leader epoch).

    ``record_errors``: (index of the record in the batch, message or None) of each record that
    caused the error.
    """

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


ProduceTopicResult = tuple[str, bytes, list[ProducePartitionResult]]


class ProduceResponse(NamedTuple):
    """Produce response as read by a client; ``topics`` are (name, topic id, results)."""

    topics: list[ProduceTopicResult]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


# -- request


@guarded
def read_produce_request(body: memoryview, version: int) -> ProduceRequest:
    """Parse a request of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    read_partitions = _read_compact_partitions if encoding.flexible else _read_plain_partitions
    transactional_id, position = encoding.read_nullable_string(body, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    topic_count, position = encoding.read_count(body, position + 6)
    elements = topic_count
    topics = []
    for _ in range(topic_count):
        topic, topic_id = "", ZERO_UUID
        if version >= _TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        count, position = encoding.read_count(body, position)
        elements += count
        check_elements(elements)
        partitions, position = read_partitions(body, position, count)
        topics.append(ProduceTopic(topic, topic_id, partitions))
    encoding.skip_tags(body, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_compact_partitions(
    body: memoryview, position: int, count: int
) -> tuple[list[ProducePartition], int]:
    partitions = []
    skip_tags = COMPACT.skip_tags
    new = tuple.__new__  # a NamedTuple's own constructor takes twice as long
    for _ in range(count):
        (index,) = INT32.unpack_from(body, position)
        size, position = read_uvarint(body, position + 4)
        if size == 0:
            records = None
        else:
            end = position + size - 1
            if end > len(body):
                raise MalformedRequestError(f"records of {size - 1} bytes are cut short")
            records = body[position:end]
            position = end
        position = skip_tags(body, position) if body[position] else position + 1
        partitions.append(new(ProducePartition, (index, records)))
    return partitions, skip_tags(body, position)


def _read_plain_partitions(
    body: memoryview, position: int, count: int
) -> tuple[list[ProducePartition], int]:
    partitions = []
    for _ in range(count):
        index, size = _INDEX_SIZE.unpack_from(body, position)
        position += 8
        end = position + size
        if end > len(body) or size < -1:
            raise MalformedRequestError(f"records of {size} bytes are cut short")
        if size == -1:
            partitions.append(ProducePartition(index, None))
            continue
        partitions.append(ProducePartition(index, body[position:end]))
        position = end
    return partitions, position


def write_produce_request_parts(version: int, request: ProduceRequest) -> list[Buffer]:
    """Return the body in pieces; each partition's records are a piece of their own, not copied."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    string, count, no_tags = encoding.string, encoding.array_length, encoding.no_tags
    parts: list[Buffer] = []
    pending = (
        string(request.transactional_id)
        + _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
        + count(len(request.topics))
    )
    for topic, topic_id, partitions in request.topics:
        pending += topic_id if version >= _TOPIC_ID_FROM else string(topic)
        pending += count(len(partitions))
        for partition, records in partitions:
            size = -1 if records is None else len(records)
            parts.append(pending + INT32.pack(partition) + count(size))
            if records is not None:
                parts.append(records)
            pending = no_tags
        pending += no_tags
    parts.append(pending + no_tags)
    return parts


def write_produce_request(version: int, request: ProduceRequest) -> bytes:
    """Return the body in one piece."""
    return b"".join(write_produce_request_parts(version, request))


# -- response


def write_produce_response(
    version: int,
    topics: Sequence[ProduceTopicResult],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the body of a response with ``topics`` of (name, topic id, results)."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    write_result = _write_compact_result if encoding.flexible else _write_plain_result
    pieces = [encoding.array_length(len(topics))]
    for topic, topic_id, results in topics:
        pieces.append(topic_id if version >= _TOPIC_ID_FROM else encoding.string(topic))
        pieces.append(encoding.array_length(len(results)))
        pieces += [write_result(version, result) for result in results]
        pieces.append(encoding.no_tags)
    pieces.append(INT32.pack(throttle_time_ms))
    if node_endpoints and version >= _LEADER_FROM:
        pieces.append(tags_bytes([(0, node_endpoints_bytes(node_endpoints))]))
    else:
        pieces.append(encoding.no_tags)
    return b"".join(pieces)


def _write_compact_result(version: int, result: ProducePartitionResult) -> bytes:
    partition, error, base, append_ms, log_start, message, leader, record_errors = result
    fixed = _RESULT.pack(partition, error, base, append_ms, log_start)
    if message is None and leader is None and not record_errors:
        return fixed + b"\x01\x00\x00"  # no record errors, null message, no tagged fields
    pieces = [fixed, uvarint(len(record_errors) + 1)]
    for index, text in record_errors:
        pieces += (INT32.pack(index), compact_string_bytes(text), b"\x00")
    pieces.append(compact_string_bytes(message))
    if leader is not None and version >= _LEADER_FROM:
        pieces.append(tags_bytes([(0, _LEADER.pack(*leader) + b"\x00")]))
    else:
        pieces.append(b"\x00")
    return b"".join(pieces)


def _write_plain_result(version: int, result: ProducePartitionResult) -> bytes:
    partition, error, base, append_ms, log_start, message, _, record_errors = result
    if version < _LOG_START_FROM:
        return _RESULT_V3.pack(partition, error, base, append_ms)
    fixed = _RESULT.pack(partition, error, base, append_ms, log_start)
    if version < _RECORD_ERRORS_FROM:
        return fixed
    pieces = [fixed, INT32.pack(len(record_errors))]
    for index, text in record_errors:
        pieces += (INT32.pack(index), string_bytes(text))
    pieces.append(string_bytes(message))
    return b"".join(pieces)


@guarded
def read_produce_response(body: memoryview, version: int) -> ProduceResponse:
    """Parse a response of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    topic_count, position = encoding.read_count(body, 0)
    topics: list[ProduceTopicResult] = []
    for _ in range(topic_count):
        topic, topic_id = "", ZERO_UUID
        if version >= _TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        count, position = encoding.read_count(body, position)
        results = []
        for _ in range(count):
            result, position = _read_result(body, position, version, encoding)
            results.append(result)
        position = encoding.skip_tags(body, position)
        topics.append((topic, topic_id, results))
    (throttle_time_ms,) = INT32.unpack_from(body, position)
    endpoints: list[NodeEndpoint] = []
    if encoding.flexible:
        tags, _ = read_tags(body, position + 4)
        if 0 in tags:
            endpoints = read_node_endpoints(tags[0])
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_result(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[ProducePartitionResult, int]:
    partition, error = (
        INT32.unpack_from(body, position)[0],
        INT16.unpack_from(body, position + 4)[0],
    )
    base, append_ms = struct.unpack_from(">qq", body, position + 6)
    position += _RESULT_V3.size
    log_start, message, leader = -1, None, None
    record_errors: list[tuple[int, str | None]] = []
    if version >= _LOG_START_FROM:
        (log_start,) = INT64.unpack_from(body, position)
        position += 8
    if version >= _RECORD_ERRORS_FROM:
        record_errors, position = _read_record_errors(body, position, encoding)
        message, position = encoding.read_nullable_string(body, position)
    if encoding.flexible:
        tags, position = read_tags(body, position)
        if 0 in tags and version >= _LEADER_FROM:
            leader = _LEADER.unpack_from(tags[0], 0)
    result = ProducePartitionResult(
        partition, error, base, append_ms, log_start, message, leader, tuple(record_errors)
    )
    return result, position


def _read_record_errors(
    body: memoryview, position: int, encoding: Encoding
) -> tuple[list[tuple[int, str | None]], int]:
    count, position = encoding.read_count(body, position)
    errors: list[tuple[int, str | None]] = []
    for _ in range(count):
        (index,) = INT32.unpack_from(body, position)
        text, position = encoding.read_nullable_string(body, position + 4)
        position = encoding.skip_tags(body, position)
        errors.append((index, text))
    return errors, position
