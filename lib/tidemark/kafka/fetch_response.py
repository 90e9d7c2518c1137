"""The Fetch response, versions 4 to 18, written in pieces between which sendfile sends records.

v5 log start offset, v7 error code and session id (KIP-227), v11 preferred read replica (KIP-392),
v12 compact, with diverging epoch and current leader as tagged fields after the records (KIP-595),
v13 topic ids (KIP-516), v16 node endpoints (KIP-951).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.kafka.fetch_request import FLEXIBLE_FROM, RACK_FROM, SESSION_FROM, TOPIC_ID_FROM
from tidemark.kafka.primitives import (
    COMPACT,
    INT32,
    INT64,
    PLAIN,
    ZERO_UUID,
    Buffer,
    Encoding,
    MalformedRequestError,
    NodeEndpoint,
    guarded,
    node_endpoints_bytes,
    read_node_endpoints,
    read_tags,
    read_uuid,
    read_uvarint,
    tags_bytes,
    uvarint,
)

NODE_ENDPOINTS_FROM: Final = 16
_LOG_START_FROM: Final = 5

_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_RESULT_V4: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_LEADER: Final = struct.Struct(">ii")
_DIVERGING: Final = struct.Struct(">iq")
# A whole partition up to its records. Compact: with a varint for the aborted transactions (0 null,
# 1 none) and the preferred replica. Plain: with their int32 count, the preferred replica and the
# size of the records.
_COMPACT_HEAD: Final = struct.Struct(">ihqqqBi")
_PLAIN_HEAD: Final = struct.Struct(">ihqqqiii")


class FetchPartitionResult(NamedTuple):
    """Result for one partition, without its records.

    ``diverging_epoch``: (epoch, end offset); ``current_leader``: (leader id, leader epoch);
    ``aborted``: (producer id, first offset) of each aborted transaction, None for null (read
    uncommitted). ``records_bytes``: -1 for null records.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    aborted: list[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records_bytes: int = 0


FetchTopicResult = tuple[str, bytes, list[FetchPartitionResult]]


class FetchedPartition(NamedTuple):
    """Result for one partition as read by a client; ``records`` is a view into the frame."""

    result: FetchPartitionResult
    records: memoryview | None


class FetchedTopic(NamedTuple):
    """One topic; ``topic`` is '' from version 13, ``topic_id`` sixteen zero bytes before."""

    topic: str
    topic_id: bytes
    partitions: list[FetchedPartition]


class FetchResponse(NamedTuple):
    """Fetch response as read by a client."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    node_endpoints: list[NodeEndpoint]


def write_fetch_response_parts(
    version: int,
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    topics: Sequence[FetchTopicResult] = (),
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes]:
    """Return N + 1 pieces for N partitions. Piece i precedes partition i's ``records_bytes`` of
    records; the last piece ends the response.

    ``topics`` are (name, topic id, results).
    """
    encoding = COMPACT if version >= FLEXIBLE_FROM else PLAIN
    pieces: list[bytes] = []
    if version >= SESSION_FROM:
        pending = _THROTTLE_ERROR_SESSION.pack(throttle_time_ms, error_code, session_id)
    else:
        pending = INT32.pack(throttle_time_ms)
    pending += encoding.array_length(len(topics))
    for topic, topic_id, results in topics:
        name = topic_id if version >= TOPIC_ID_FROM else encoding.string(topic)
        pending += name + encoding.array_length(len(results))
        if encoding.flexible:
            pending = _add_compact(pieces, pending, results) + b"\x00"
        else:
            pending = _add_plain(pieces, pending, results, version)
    if node_endpoints and version >= NODE_ENDPOINTS_FROM:
        pending += tags_bytes([(0, node_endpoints_bytes(node_endpoints))])
    else:
        pending += encoding.no_tags
    pieces.append(pending)
    return pieces


def _add_compact(pieces: list[bytes], pending: bytes, results: list[FetchPartitionResult]) -> bytes:
    """Append one piece for each partition; return the bytes that follow the last one's records."""
    pack = _COMPACT_HEAD.pack
    for result in results:
        index, error, high, stable, start, diverging, leader, aborted, preferred, size = result
        if aborted:
            fixed = _RESULT_V5.pack(index, error, high, stable, start)
            pending += fixed + _aborted_compact(aborted) + INT32.pack(preferred)
        else:
            count = 0 if aborted is None else 1
            pending += pack(index, error, high, stable, start, count, preferred)
        pieces.append(pending + uvarint(size + 1))
        pending = b"\x00"
        if diverging is not None or leader is not None:
            pending = _result_tags(diverging, leader)
    return pending


def _aborted_compact(aborted: list[tuple[int, int]]) -> bytes:
    rows = [_ABORTED.pack(producer_id, first) + b"\x00" for producer_id, first in aborted]
    return uvarint(len(aborted) + 1) + b"".join(rows)


def _result_tags(diverging: tuple[int, int] | None, leader: tuple[int, int] | None) -> bytes:
    tags = []
    if diverging is not None:
        tags.append((0, _DIVERGING.pack(*diverging) + b"\x00"))
    if leader is not None:
        tags.append((1, _LEADER.pack(*leader) + b"\x00"))
    return tags_bytes(tags)


def _add_plain(
    pieces: list[bytes], pending: bytes, results: list[FetchPartitionResult], version: int
) -> bytes:
    """Do as `_add_compact`, for versions before 12."""
    for result in results:
        index, error, high, stable, start, _, _, aborted, preferred, size = result
        if not aborted and version >= RACK_FROM:
            count = -1 if aborted is None else 0
            head = _PLAIN_HEAD.pack(index, error, high, stable, start, count, preferred, size)
            pieces.append(pending + head)
            pending = b""
            continue
        if version >= _LOG_START_FROM:
            pending += _RESULT_V5.pack(index, error, high, stable, start)
        else:
            pending += _RESULT_V4.pack(index, error, high, stable)
        pending += INT32.pack(-1 if aborted is None else len(aborted))
        pending += b"".join(_ABORTED.pack(*row) for row in aborted or ())
        if version >= RACK_FROM:
            pending += INT32.pack(preferred)
        pieces.append(pending + INT32.pack(size))
        pending = b""
    return pending


def write_fetch_response(version: int, response: FetchResponse) -> bytes:
    """Return the body in one piece with its records, whose sizes replace ``records_bytes``."""
    topics: list[FetchTopicResult] = []
    records: list[Buffer] = []
    for topic, topic_id, partitions in response.topics:
        results = []
        for result, batches in partitions:
            size = -1 if batches is None else len(batches)
            results.append(result._replace(records_bytes=size))
            records.append(b"" if batches is None else batches)
        topics.append((topic, topic_id, results))
    pieces = write_fetch_response_parts(
        version,
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        session_id=response.session_id,
        topics=topics,
        node_endpoints=response.node_endpoints,
    )
    woven: list[Buffer] = []
    for piece, data in zip(pieces, [*records, b""], strict=True):
        woven += (piece, data)
    return b"".join(woven)


# -- reading


@guarded
def read_fetch_response(body: memoryview, version: int) -> FetchResponse:
    """Parse a response of a served version; records are views into ``body``."""
    encoding = COMPACT if version >= FLEXIBLE_FROM else PLAIN
    error_code = session_id = 0
    if version >= SESSION_FROM:
        throttle_time_ms, error_code, session_id = _THROTTLE_ERROR_SESSION.unpack_from(body, 0)
        position = _THROTTLE_ERROR_SESSION.size
    else:
        (throttle_time_ms,) = INT32.unpack_from(body, 0)
        position = 4
    topic_count, position = encoding.read_count(body, position)
    read_partitions = _read_compact_partitions if encoding.flexible else _read_plain_partitions
    topics = []
    for _ in range(topic_count):
        topic, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        count, position = encoding.read_count(body, position)
        partitions, position = read_partitions(body, position, count, version)
        position = encoding.skip_tags(body, position)
        topics.append(FetchedTopic(topic, topic_id, partitions))
    endpoints: list[NodeEndpoint] = []
    if encoding.flexible and body[position]:
        tags, _ = read_tags(body, position)
        if 0 in tags and version >= NODE_ENDPOINTS_FROM:
            endpoints = read_node_endpoints(tags[0])
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _read_compact_partitions(
    body: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchedPartition], int]:
    """Read partitions of a compact response, whose layout does not depend on ``version``."""
    partitions = []
    unpack_from, body_bytes = _COMPACT_HEAD.unpack_from, len(body)
    new = tuple.__new__  # a NamedTuple's own constructor takes twice as long
    for _ in range(count):
        index, error, high, stable, start, aborted_count, preferred = unpack_from(body, position)
        aborted: list[tuple[int, int]] | None = None
        if aborted_count <= 1:
            position += _COMPACT_HEAD.size
            aborted = [] if aborted_count else None
        else:
            aborted, position = _read_aborted(body, position + _RESULT_V5.size, COMPACT)
            (preferred,) = INT32.unpack_from(body, position)
            position += INT32.size
        size, position = read_uvarint(body, position)
        size -= 1
        records = None
        if size >= 0:
            if size > body_bytes - position:
                raise MalformedRequestError(f"records of {size} bytes are cut short")
            records = body[position : position + size]
            position += size
        diverging = leader = None
        if body[position] == 0:
            position += 1
        else:
            tags, position = read_tags(body, position)
            diverging = _DIVERGING.unpack_from(tags[0], 0) if 0 in tags else None
            leader = _LEADER.unpack_from(tags[1], 0) if 1 in tags else None
        fields = (index, error, high, stable, start, diverging, leader, aborted, preferred, size)
        result = new(FetchPartitionResult, fields)
        partitions.append(new(FetchedPartition, (result, records)))
    return partitions, position


def _read_plain_partitions(
    body: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchedPartition], int]:
    partitions = []
    for _ in range(count):
        partition, position = _read_plain(body, position, version)
        partitions.append(partition)
    return partitions, position


def _read_plain(body: memoryview, position: int, version: int) -> tuple[FetchedPartition, int]:
    index, error, high, stable = _RESULT_V4.unpack_from(body, position)
    position += _RESULT_V4.size
    start = preferred = -1
    if version >= _LOG_START_FROM:
        (start,) = INT64.unpack_from(body, position)
        position += 8
    aborted, position = _read_aborted(body, position, PLAIN)
    if version >= RACK_FROM:
        (preferred,) = INT32.unpack_from(body, position)
        position += 4
    records, position = PLAIN.read_nullable_view(body, position)
    size = -1 if records is None else len(records)
    result = FetchPartitionResult(
        index, error, high, stable, start, None, None, aborted, preferred, size
    )
    return FetchedPartition(result, records), position


def _read_aborted(
    body: memoryview, position: int, encoding: Encoding
) -> tuple[list[tuple[int, int]] | None, int]:
    count, position = encoding.read_nullable_count(body, position)
    if count == -1:
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(body, position))
        position = encoding.skip_tags(body, position + _ABORTED.size)
    return aborted, position
