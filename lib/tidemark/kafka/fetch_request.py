"""The Fetch request, versions 4 to 18, both directions.

v5 log start offset, v7 sessions (KIP-227), v9 leader epoch (KIP-320), v11 rack (KIP-392), v12
compact and last fetched epoch (KIP-595), v13 topic ids (KIP-516), v15 replica state with broker
epoch (KIP-903), v17 replica directory id, v18 the replica's high watermark (KIP-1166). Tag 100 of a
partition is Tidemark's own: the end of the replica's log on disk.
"""

import struct
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    COMPACT,
    INT32,
    PLAIN,
    UUID_BYTES,
    ZERO_UUID,
    Encoding,
    MalformedRequestError,
    check_elements,
    compact_string_bytes,
    guarded,
    read_compact_nullable_string,
    read_tags,
    read_uuid,
    tags_bytes,
)

FLEXIBLE_FROM: Final = 12
TOPIC_ID_FROM: Final = 13
SESSION_FROM: Final = 7
RACK_FROM: Final = 11
REPLICA_STATE_FROM: Final = 15
DIRECTORY_FROM: Final = 17
HIGH_WATERMARK_FROM: Final = 18
HIGH_WATERMARK_UNSUPPORTED: Final = 0x7FFF_FFFF_FFFF_FFFF
SYNCED_END_TAG: Final = 100
SYNCED_END_UNKNOWN: Final = -1
_TAGS_OF_REPLICA: Final = (2, 1, 8, SYNCED_END_TAG, 8)

_HEAD: Final = struct.Struct(">iiiib")  # replica id, wait, min bytes, max bytes, isolation level
_HEAD_WITHOUT_REPLICA: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_OFFSET: Final = struct.Struct(">q")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
_OF_REPLICA: Final = struct.Struct(">BBBqBBq")
"""Both tagged fields of a Tidemark replica's partition, each with its number and length."""
_PARTITION_OF_REPLICA: Final = struct.Struct(">iiqiqiBBBqBBq")
"""A whole partition of a Tidemark replica."""


class FetchPartition(NamedTuple):
    """Position from which to read one partition. Only replicas set log start, directory, high
    watermark and synced end (the first offset that is not on their disk).
    """

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    bytes_max: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = HIGH_WATERMARK_UNSUPPORTED
    synced_end: int = SYNCED_END_UNKNOWN


_NOT_A_REPLICA: Final = (ZERO_UUID, HIGH_WATERMARK_UNSUPPORTED, SYNCED_END_UNKNOWN)


class FetchTopic(NamedTuple):
    """One topic; ``topic`` is '' from version 13, ``topic_id`` sixteen zero bytes before."""

    topic: str
    topic_id: bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """Fetch request. ``isolation_level``: 0 read uncommitted, 1 read committed. ``replica_id`` is
    -1 for a consumer.

    ``forgotten``: (name, topic id, partitions) to remove from an incremental fetch session.
    """

    replica_id: int
    replica_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[str, bytes, list[int]]]
    rack_id: str
    cluster_id: str | None


@guarded
def read_fetch_request(body: memoryview, version: int) -> FetchRequest:
    """Parse a request of a served version."""
    encoding = COMPACT if version >= FLEXIBLE_FROM else PLAIN
    replica_id, replica_epoch, cluster_id = -1, -1, None
    session_id, session_epoch = 0, -1
    if version >= REPLICA_STATE_FROM:
        wait, least, most, isolation = _HEAD_WITHOUT_REPLICA.unpack_from(body, 0)
        position = _HEAD_WITHOUT_REPLICA.size
    else:
        replica_id, wait, least, most, isolation = _HEAD.unpack_from(body, 0)
        position = _HEAD.size
    if version >= SESSION_FROM:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += 8
    topics, position = _read_topics(body, position, version, encoding)
    forgotten: list[tuple[str, bytes, list[int]]] = []
    rack_id = ""
    if version >= SESSION_FROM:
        forgotten, position = _read_forgotten(body, position, version, encoding)
    if version >= RACK_FROM:
        rack_id, position = encoding.read_string(body, position)
    if encoding.flexible and body[position]:
        tags, _ = read_tags(body, position)
        cluster_id, replica_id, replica_epoch = _read_request_tags(
            tags, version, (replica_id, replica_epoch)
        )
    return FetchRequest(
        replica_id,
        replica_epoch,
        wait,
        least,
        most,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
    )


def _read_request_tags(
    tags: dict[int, memoryview], version: int, replica: tuple[int, int]
) -> tuple[str | None, int, int]:
    cluster_id = None
    if 0 in tags:
        cluster_id, _ = read_compact_nullable_string(tags[0], 0)
    if 1 in tags and version >= REPLICA_STATE_FROM:
        replica = _REPLICA_STATE.unpack_from(tags[1], 0)
    return cluster_id, *replica


def _read_topics(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[list[FetchTopic], int]:
    topic_count, position = encoding.read_count(body, position)
    read_partitions = _read_compact_partitions if encoding.flexible else _read_plain_partitions
    elements = topic_count
    topics = []
    for _ in range(topic_count):
        topic, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        count, position = encoding.read_count(body, position)
        elements += count
        check_elements(elements)
        partitions, position = read_partitions(body, position, count, version)
        topics.append(FetchTopic(topic, topic_id, partitions))
    return topics, position


def _read_compact_partitions(
    body: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    partitions = []
    unpack_from = _PARTITION_V12.unpack_from
    of_replica = _OF_REPLICA.unpack_from
    new = tuple.__new__  # a NamedTuple's own constructor is a Python function, and twice as slow
    for _ in range(count):
        fields = unpack_from(body, position)
        position += 32
        if body[position] == 0:
            position += 1
            partitions.append(new(FetchPartition, fields + _NOT_A_REPLICA))
            continue
        if version >= HIGH_WATERMARK_FROM and len(body) - position >= _OF_REPLICA.size:
            known, tag, size, high_watermark, tag_2, size_2, synced_end = of_replica(body, position)
            if (known, tag, size, tag_2, size_2) == _TAGS_OF_REPLICA:
                position += _OF_REPLICA.size
                of_tags = (ZERO_UUID, high_watermark, synced_end)
                partitions.append(new(FetchPartition, fields + of_tags))
                continue
        tags, position = read_tags(body, position)
        partitions.append(_tagged_partition(FetchPartition(*fields), tags, version))
    return partitions, COMPACT.skip_tags(body, position)


def _tagged_partition(
    partition: FetchPartition, tags: dict[int, memoryview], version: int
) -> FetchPartition:
    if 0 in tags and version >= DIRECTORY_FROM:
        partition = partition._replace(replica_directory_id=read_uuid(tags[0], 0)[0])
    if 1 in tags and version >= HIGH_WATERMARK_FROM:
        partition = partition._replace(high_watermark=_OFFSET.unpack_from(tags[1], 0)[0])
    if SYNCED_END_TAG in tags:
        (synced_end,) = _OFFSET.unpack_from(tags[SYNCED_END_TAG], 0)
        partition = partition._replace(synced_end=synced_end)
    return partition


def _read_plain_partitions(
    body: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    layout = _plain_partition(version)
    end = position + count * layout.size
    if end > len(body):
        raise MalformedRequestError(f"{count} partitions are cut short")
    rows = layout.iter_unpack(body[position:end])
    if version >= 9:
        partitions = [
            FetchPartition(index, epoch, offset, -1, log_start, most)
            for index, epoch, offset, log_start, most in rows
        ]
    elif version >= 5:
        partitions = [
            FetchPartition(index, -1, offset, -1, log_start, most)
            for index, offset, log_start, most in rows
        ]
    else:
        partitions = [
            FetchPartition(index, -1, offset, -1, -1, most) for index, offset, most in rows
        ]
    return partitions, end


def _plain_partition(version: int) -> struct.Struct:
    if version >= 9:
        return _PARTITION_V9
    return _PARTITION_V5 if version >= 5 else _PARTITION_V4


def _read_forgotten(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[list[tuple[str, bytes, list[int]]], int]:
    count, position = encoding.read_count(body, position)
    elements = count
    forgotten = []
    for _ in range(count):
        topic, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        partitions, position = encoding.read_int32s(body, position)
        position = encoding.skip_tags(body, position)
        elements += len(partitions)
        check_elements(elements)
        forgotten.append((topic, topic_id, partitions))
    return forgotten, position


# -- writing


def write_fetch_request(version: int, request: FetchRequest) -> bytes:
    """Return the body of a request, without fields that the version lacks."""
    encoding = COMPACT if version >= FLEXIBLE_FROM else PLAIN
    head = (request.wait_ms_max, request.bytes_min, request.bytes_max, request.isolation_level)
    pieces = []
    if version < REPLICA_STATE_FROM:
        pieces.append(INT32.pack(request.replica_id))
    pieces.append(_HEAD_WITHOUT_REPLICA.pack(*head))
    if version >= SESSION_FROM:
        pieces.append(_SESSION.pack(request.session_id, request.session_epoch))
    pieces.append(encoding.array_length(len(request.topics)))
    for topic, topic_id, partitions in request.topics:
        pieces.append(topic_id if version >= TOPIC_ID_FROM else encoding.string(topic))
        pieces.append(encoding.array_length(len(partitions)))
        pieces += [_write_partition(version, partition) for partition in partitions]
        pieces.append(encoding.no_tags)
    if version >= SESSION_FROM:
        pieces.append(encoding.array_length(len(request.forgotten)))
        for topic, topic_id, indexes in request.forgotten:
            pieces.append(topic_id if version >= TOPIC_ID_FROM else encoding.string(topic))
            pieces += (encoding.int32s(indexes), encoding.no_tags)
    if version >= RACK_FROM:
        pieces.append(encoding.string(request.rack_id))
    if encoding.flexible:
        pieces.append(_request_tags(version, request))
    return b"".join(pieces)


def _request_tags(version: int, request: FetchRequest) -> bytes:
    tags = []
    if request.cluster_id is not None:
        tags.append((0, compact_string_bytes(request.cluster_id)))
    replica = (request.replica_id, request.replica_epoch)
    if version >= REPLICA_STATE_FROM and replica != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(*replica) + b"\x00"))
    return tags_bytes(tags)


def _write_partition(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset, last_epoch, log_start, most, directory, high_watermark, synced = partition
    if (
        version >= HIGH_WATERMARK_FROM
        and synced != SYNCED_END_UNKNOWN
        and high_watermark != HIGH_WATERMARK_UNSUPPORTED
        and directory == ZERO_UUID
    ):
        known, tag, size, synced_tag, synced_size = _TAGS_OF_REPLICA
        return _PARTITION_OF_REPLICA.pack(
            index, epoch, offset, last_epoch, log_start, most,
            known, tag, size, high_watermark, synced_tag, synced_size, synced,
        )  # fmt: skip
    if version >= FLEXIBLE_FROM:
        fixed = _PARTITION_V12.pack(index, epoch, offset, last_epoch, log_start, most)
        tags = []
        if version >= DIRECTORY_FROM and directory != ZERO_UUID:
            assert len(directory) == UUID_BYTES
            tags.append((0, directory))
        if version >= HIGH_WATERMARK_FROM and high_watermark != HIGH_WATERMARK_UNSUPPORTED:
            tags.append((1, _OFFSET.pack(high_watermark)))
        if synced != SYNCED_END_UNKNOWN:
            tags.append((SYNCED_END_TAG, _OFFSET.pack(synced)))
        return fixed + tags_bytes(tags)
    if version >= 9:
        return _PARTITION_V9.pack(index, epoch, offset, log_start, most)
    if version >= 5:
        return _PARTITION_V5.pack(index, offset, log_start, most)
    return _PARTITION_V4.pack(index, offset, most)
