"""Metadata, versions 0 to 13, both directions.

v1 rack, controller id, null for all topics; v2 cluster id; v5 offline replicas; v7 leader epoch; v8
authorized operations; v9 compact; v10 topic ids (KIP-516); v12 null names; v13 top-level error code
(KIP-1102).
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    COMPACT,
    INT16,
    INT32,
    PLAIN,
    ZERO_UUID,
    Encoding,
    NodeEndpoint,
    check_elements,
    guarded,
    read_uuid,
)

AUTHORIZED_OPERATIONS_OMITTED: Final = -(1 << 31)

_FLEXIBLE_FROM: Final = 9
_TOPIC_ID_FROM: Final = 10
_LEADER_EPOCH_FROM: Final = 7
_OFFLINE_FROM: Final = 5
_ERROR_CODE_FROM: Final = 13
_AUTO_CREATION_FROM: Final = 4
_SHORT_COUNT_MAX: Final = 126  # a compact count up to here is one byte
_LEADER_HEAD: Final = struct.Struct(">hii")
_LEADER_EPOCH_HEAD: Final = struct.Struct(">hiii")


class MetadataQuery(NamedTuple):
    """Query for one topic by name, or from version 10 by id with name None."""

    topic: str | None
    topic_id: bytes = ZERO_UUID


class MetadataRequest(NamedTuple):
    """Metadata request; ``topics`` is None for all topics (in version 0 an empty array)."""

    topics: list[MetadataQuery] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class MetadataPartition(NamedTuple):
    """State of one partition; ``leader_id`` is -1 if it has no leader."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: list[int] | tuple[int, ...]
    isr: list[int] | tuple[int, ...]
    offline_replicas: list[int] | tuple[int, ...] = ()


class MetadataTopic(NamedTuple):
    """State of one topic; ``topic`` is None only for an unknown topic id (written as '' before
    version 12).
    """

    error_code: int
    topic: str | None
    topic_id: bytes
    is_internal: bool
    partitions: list[MetadataPartition]
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


class MetadataResponse(NamedTuple):
    """Metadata response; ``controller_id`` is -1 if unknown."""

    brokers: list[NodeEndpoint]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataTopic]
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED
    error_code: int = 0


def _has_cluster_operations(version: int) -> bool:
    return 8 <= version <= 10


# -- request


@guarded
def read_metadata_request(body: memoryview, version: int) -> MetadataRequest:
    """Parse a request of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    topics, position = _read_queries(body, version, encoding)
    allow_auto_creation = True
    cluster_operations = topic_operations = False
    if version >= _AUTO_CREATION_FROM:
        allow_auto_creation = body[position] != 0
        position += 1
    if _has_cluster_operations(version):
        cluster_operations = body[position] != 0
        position += 1
    if version >= 8:
        topic_operations = body[position] != 0
        position += 1
    encoding.skip_tags(body, position)
    return MetadataRequest(topics, allow_auto_creation, cluster_operations, topic_operations)


def _read_queries(
    body: memoryview, version: int, encoding: Encoding
) -> tuple[list[MetadataQuery] | None, int]:
    count, position = (encoding.read_nullable_count if version >= 1 else encoding.read_count)(
        body, 0
    )
    if count == -1 or (count == 0 and version == 0):
        return None, position
    check_elements(count)
    topics = []
    topic: str | None
    for _ in range(count):
        topic_id = ZERO_UUID
        if version >= _TOPIC_ID_FROM:
            topic_id, position = read_uuid(body, position)
            topic, position = encoding.read_nullable_string(body, position)
        else:
            topic, position = encoding.read_string(body, position)
        position = encoding.skip_tags(body, position)
        topics.append(MetadataQuery(topic, topic_id))
    return topics, position


def write_metadata_request(version: int, request: MetadataRequest) -> bytes:
    """Return the body of a request, without fields that the version lacks."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    if request.topics is None:
        pieces = [encoding.array_length(-1 if version >= 1 else 0)]
    else:
        assert request.topics or version >= 1, "version 0 cannot ask for no topic"
        pieces = [encoding.array_length(len(request.topics))]
    for topic, topic_id in request.topics or ():
        if version >= _TOPIC_ID_FROM:
            pieces.append(topic_id)
        else:
            assert topic is not None, "topics are asked by id from version 10"
        pieces += (encoding.string(topic), encoding.no_tags)
    if version >= _AUTO_CREATION_FROM:
        pieces.append(bytes((request.allow_auto_topic_creation,)))
    if _has_cluster_operations(version):
        pieces.append(bytes((request.include_cluster_authorized_operations,)))
    if version >= 8:
        pieces.append(bytes((request.include_topic_authorized_operations,)))
    pieces.append(encoding.no_tags)
    return b"".join(pieces)


# -- response


def write_metadata_response(version: int, response: MetadataResponse) -> bytes:
    """Return the body of a response, without fields that the version lacks."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    pieces = [INT32.pack(response.throttle_time_ms)] if version >= 3 else []
    pieces.append(encoding.array_length(len(response.brokers)))
    for node_id, host, port, rack in response.brokers:
        pieces += (INT32.pack(node_id), encoding.string(host), INT32.pack(port))
        if version >= 1:
            pieces.append(encoding.string(rack))
        pieces.append(encoding.no_tags)
    if version >= 2:
        pieces.append(encoding.string(response.cluster_id))
    if version >= 1:
        pieces.append(INT32.pack(response.controller_id))
    pieces.append(encoding.array_length(len(response.topics)))
    for topic in response.topics:
        _add_topic(pieces, version, encoding, topic)
    if _has_cluster_operations(version):
        pieces.append(INT32.pack(response.cluster_authorized_operations))
    if version >= _ERROR_CODE_FROM:
        pieces.append(INT16.pack(response.error_code))
    pieces.append(encoding.no_tags)
    return b"".join(pieces)


def _add_topic(pieces: list[bytes], version: int, encoding: Encoding, topic: MetadataTopic) -> None:
    name = topic.topic
    if name is None and version < 12:
        name = ""
    pieces += (INT16.pack(topic.error_code), encoding.string(name))
    if version >= _TOPIC_ID_FROM:
        pieces.append(topic.topic_id)
    if version >= 1:
        pieces.append(bytes((topic.is_internal,)))
    pieces.append(encoding.array_length(len(topic.partitions)))
    if encoding.flexible:
        pieces += [_compact_partition(partition) for partition in topic.partitions]
    else:
        pieces += [_plain_partition(version, partition) for partition in topic.partitions]
    if version >= 8:
        pieces.append(INT32.pack(topic.authorized_operations))
    pieces.append(encoding.no_tags)


@lru_cache(maxsize=256)
def _compact_layout(replicas: int, isr: int, offline: int) -> struct.Struct:
    """Return the layout of a partition with arrays of these lengths, each count in one byte, and
    without tagged fields.
    """
    return struct.Struct(f">hiiiB{replicas}iB{isr}iB{offline}iB")


def _compact_partition(partition: MetadataPartition) -> bytes:
    error, index, leader, epoch, replicas, isr, offline = partition
    sizes = (len(replicas), len(isr), len(offline))
    if max(sizes) > _SHORT_COUNT_MAX:
        head = _LEADER_EPOCH_HEAD.pack(error, index, leader, epoch)
        arrays = [COMPACT.int32s(array) for array in (replicas, isr, offline)]
        return b"".join((head, *arrays, b"\x00"))
    return _compact_layout(*sizes).pack(
        error,
        index,
        leader,
        epoch,
        sizes[0] + 1,
        *replicas,
        sizes[1] + 1,
        *isr,
        sizes[2] + 1,
        *offline,
        0,
    )


def _plain_partition(version: int, partition: MetadataPartition) -> bytes:
    error, index, leader, epoch, replicas, isr, offline = partition
    if version >= _LEADER_EPOCH_FROM:
        head = _LEADER_EPOCH_HEAD.pack(error, index, leader, epoch)
    else:
        head = _LEADER_HEAD.pack(error, index, leader)
    head += PLAIN.int32s(replicas) + PLAIN.int32s(isr)
    return head + PLAIN.int32s(offline) if version >= _OFFLINE_FROM else head


@guarded
def read_metadata_response(body: memoryview, version: int) -> MetadataResponse:
    """Parse a response of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    throttle_time_ms = position = 0
    if version >= 3:
        (throttle_time_ms,), position = INT32.unpack_from(body, 0), 4
    brokers, position = _read_brokers(body, position, version, encoding)
    cluster_id, controller_id = None, -1
    if version >= 2:
        cluster_id, position = encoding.read_nullable_string(body, position)
    if version >= 1:
        (controller_id,), position = INT32.unpack_from(body, position), position + 4
    count, position = encoding.read_count(body, position)
    topics = []
    for _ in range(count):
        topic, position = _read_topic(body, position, version, encoding)
        topics.append(topic)
    operations, error_code = AUTHORIZED_OPERATIONS_OMITTED, 0
    if _has_cluster_operations(version):
        (operations,) = INT32.unpack_from(body, position)
    if version >= _ERROR_CODE_FROM:
        (error_code,) = INT16.unpack_from(body, position)
    return MetadataResponse(
        brokers, cluster_id, controller_id, topics, throttle_time_ms, operations, error_code
    )


def _read_brokers(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[list[NodeEndpoint], int]:
    count, position = encoding.read_count(body, position)
    brokers = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(body, position)
        host, position = encoding.read_string(body, position + 4)
        (port,) = INT32.unpack_from(body, position)
        position += 4
        rack = None
        if version >= 1:
            rack, position = encoding.read_nullable_string(body, position)
        position = encoding.skip_tags(body, position)
        brokers.append(NodeEndpoint(node_id, host, port, rack))
    return brokers, position


def _read_topic(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[MetadataTopic, int]:
    name: str | None
    (error_code,) = INT16.unpack_from(body, position)
    if version >= 12:
        name, position = encoding.read_nullable_string(body, position + 2)
    else:
        name, position = encoding.read_string(body, position + 2)
    topic_id, is_internal, operations = ZERO_UUID, False, AUTHORIZED_OPERATIONS_OMITTED
    if version >= _TOPIC_ID_FROM:
        topic_id, position = read_uuid(body, position)
    if version >= 1:
        is_internal = body[position] != 0
        position += 1
    count, position = encoding.read_count(body, position)
    partitions = []
    for _ in range(count):
        partition, position = _read_partition(body, position, version, encoding)
        partitions.append(partition)
    if version >= 8:
        (operations,), position = INT32.unpack_from(body, position), position + 4
    position = encoding.skip_tags(body, position)
    return MetadataTopic(error_code, name, topic_id, is_internal, partitions, operations), position


def _read_partition(
    body: memoryview, position: int, version: int, encoding: Encoding
) -> tuple[MetadataPartition, int]:
    epoch = -1
    if version >= _LEADER_EPOCH_FROM:
        error, index, leader, epoch = _LEADER_EPOCH_HEAD.unpack_from(body, position)
        position += _LEADER_EPOCH_HEAD.size
    else:
        error, index, leader = _LEADER_HEAD.unpack_from(body, position)
        position += _LEADER_HEAD.size
    replicas, position = encoding.read_int32s(body, position)
    isr, position = encoding.read_int32s(body, position)
    offline: list[int] = []
    if version >= _OFFLINE_FROM:
        offline, position = encoding.read_int32s(body, position)
    position = encoding.skip_tags(body, position)
    return MetadataPartition(error, index, leader, epoch, replicas, isr, offline), position
