"""ListOffsets, versions 1 to 11, both directions.

v2 isolation level, v4 leader epochs (KIP-320), v6 compact, v7 max timestamp (KIP-734), v8 and v9
tiered offsets (KIP-405, KIP-1005), v10 the request's timeout (KIP-1075), v11 earliest pending
upload (KIP-1023).
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    COMPACT,
    INT32,
    PLAIN,
    Encoding,
    MalformedRequestError,
    check_elements,
    guarded,
)

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6

_MARK_FROM: Final[Mapping[int, int]] = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""First version that has a mark."""

_FLEXIBLE_FROM: Final = 6
_ISOLATION_FROM: Final = 2
_LEADER_EPOCH_FROM: Final = 4
_TIMEOUT_FROM: Final = 10

_HEAD: Final = struct.Struct(">ib")
_QUERY_V1: Final = struct.Struct(">iq")
_QUERY_V4: Final = struct.Struct(">iiq")
_QUERY_COMPACT: Final = struct.Struct(">iiqB")
_RESULT_V1: Final = struct.Struct(">ihqq")
_RESULT_V4: Final = struct.Struct(">ihqqi")
_RESULT_COMPACT: Final = struct.Struct(">ihqqiB")


def is_unknown_mark(timestamp: int, version: int) -> bool:
    """Return True for a negative timestamp that has no meaning in this version."""
    return timestamp < 0 and (timestamp not in _MARK_FROM or version < _MARK_FROM[timestamp])


class ListOffsetsPartition(NamedTuple):
    """Query for one partition; ``timestamp`` in ms, or a negative constant of this module."""

    partition: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(NamedTuple):
    """Queries for partitions of one topic."""

    topic: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(NamedTuple):
    """ListOffsets request. ``isolation_level``: 0 read uncommitted, 1 read committed.
    ``replica_id`` is -1 for a consumer.
    """

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int = 0


class ListOffsetsResult(NamedTuple):
    """Result for one partition; ``offset`` is -1 if no record matches."""

    partition: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


ListOffsetsTopicResult = tuple[str, list[ListOffsetsResult]]


class ListOffsetsResponse(NamedTuple):
    """ListOffsets response as read by a client; ``topics`` are (name, results)."""

    topics: list[ListOffsetsTopicResult]
    throttle_time_ms: int


# -- request


@guarded
def read_list_offsets_request(body: memoryview, version: int) -> ListOffsetsRequest:
    """Parse a request of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    isolation_level, timeout_ms = 0, 0
    if version >= _ISOLATION_FROM:
        replica_id, isolation_level = _HEAD.unpack_from(body, 0)
        position = _HEAD.size
    else:
        (replica_id,), position = INT32.unpack_from(body, 0), 4
    topic_count, position = encoding.read_count(body, position)
    elements = topic_count
    topics = []
    for _ in range(topic_count):
        topic, position = encoding.read_string(body, position)
        count, position = encoding.read_count(body, position)
        elements += count
        check_elements(elements)
        partitions, position = _read_queries(body, position, count, version)
        position = encoding.skip_tags(body, position)
        topics.append(ListOffsetsTopic(topic, partitions))
    if version >= _TIMEOUT_FROM:
        (timeout_ms,), position = INT32.unpack_from(body, position), position + 4
    encoding.skip_tags(body, position)
    return ListOffsetsRequest(replica_id, isolation_level, topics, timeout_ms)


def _read_queries(
    body: memoryview, position: int, count: int, version: int
) -> tuple[list[ListOffsetsPartition], int]:
    if version >= _FLEXIBLE_FROM:
        partitions = []
        for _ in range(count):
            index, epoch, timestamp = _QUERY_V4.unpack_from(body, position)
            position = COMPACT.skip_tags(body, position + _QUERY_V4.size)
            partitions.append(ListOffsetsPartition(index, timestamp, epoch))
        return partitions, position
    layout = _QUERY_V4 if version >= _LEADER_EPOCH_FROM else _QUERY_V1
    end = position + count * layout.size
    if end > len(body):
        raise MalformedRequestError(f"{count} partitions are cut short")
    rows = layout.iter_unpack(body[position:end])
    if version >= _LEADER_EPOCH_FROM:
        return [
            ListOffsetsPartition(index, timestamp, epoch) for index, epoch, timestamp in rows
        ], end
    return [ListOffsetsPartition(index, timestamp) for index, timestamp in rows], end


def write_list_offsets_request(version: int, request: ListOffsetsRequest) -> bytes:
    """Return the body of a request, without fields that the version lacks."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    pieces = [
        _HEAD.pack(request.replica_id, request.isolation_level)
        if version >= _ISOLATION_FROM
        else INT32.pack(request.replica_id)
    ]
    pieces.append(encoding.array_length(len(request.topics)))
    for topic, partitions in request.topics:
        pieces += (encoding.string(topic), encoding.array_length(len(partitions)))
        pieces += [_write_query(version, query) for query in partitions]
        pieces.append(encoding.no_tags)
    if version >= _TIMEOUT_FROM:
        pieces.append(INT32.pack(request.timeout_ms))
    pieces.append(encoding.no_tags)
    return b"".join(pieces)


def _write_query(version: int, query: ListOffsetsPartition) -> bytes:
    index, timestamp, epoch = query
    if version >= _FLEXIBLE_FROM:
        return _QUERY_COMPACT.pack(index, epoch, timestamp, 0)
    if version >= _LEADER_EPOCH_FROM:
        return _QUERY_V4.pack(index, epoch, timestamp)
    return _QUERY_V1.pack(index, timestamp)


# -- response


def write_list_offsets_response(
    version: int, topics: Sequence[ListOffsetsTopicResult], throttle_time_ms: int = 0
) -> bytes:
    """Return the body of a response with ``topics`` of (name, results)."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    pieces = [INT32.pack(throttle_time_ms)] if version >= _ISOLATION_FROM else []
    pieces.append(encoding.array_length(len(topics)))
    for topic, results in topics:
        pieces += (encoding.string(topic), encoding.array_length(len(results)))
        if encoding.flexible:
            pieces += [_RESULT_COMPACT.pack(*result, 0) for result in results]
        elif version >= _LEADER_EPOCH_FROM:
            pieces += [_RESULT_V4.pack(*result) for result in results]
        else:
            pieces += [_RESULT_V1.pack(*result[:4]) for result in results]
        pieces.append(encoding.no_tags)
    pieces.append(encoding.no_tags)
    return b"".join(pieces)


@guarded
def read_list_offsets_response(body: memoryview, version: int) -> ListOffsetsResponse:
    """Parse a response of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    throttle_time_ms = position = 0
    if version >= _ISOLATION_FROM:
        (throttle_time_ms,), position = INT32.unpack_from(body, 0), 4
    topic_count, position = encoding.read_count(body, position)
    topics = []
    for _ in range(topic_count):
        topic, position = encoding.read_string(body, position)
        results, position = _read_results(body, position, version, encoding)
        position = encoding.skip_tags(body, position)
        topics.append((topic, results))
    return ListOffsetsResponse(topics, throttle_time_ms)


def _read_results(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[list[ListOffsetsResult], int]:
    layout = _RESULT_V4 if version >= _LEADER_EPOCH_FROM else _RESULT_V1
    count, position = encoding.read_count(body, position)
    results = []
    for _ in range(count):
        results.append(ListOffsetsResult(*layout.unpack_from(body, position)))
        position = encoding.skip_tags(body, position + layout.size)
    return results, position
