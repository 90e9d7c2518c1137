"""The requests ShareFetch (78) and ShareAcknowledge (79), versions 1 and 2, as a broker reads them.

v2 has the acquire mode (KIP-1206) and the renewal of locks (KIP-1222). Both are compact throughout.
Acknowledgement batches have tagged fields of Tidemark's own (``own_fields``).
"""

import struct
from typing import Final, NamedTuple

from tidemark.kafka.own_fields import RELEASE_DELAY_TAG, UNSEEN_TAG
from tidemark.kafka.primitives import (
    COMPACT,
    INT32,
    MalformedRequestError,
    check_elements,
    guarded,
    read_compact_nullable_string,
    read_tags,
    read_uuid,
)

MODE_AND_RENEWAL_FROM: Final = 2

_EPOCH: Final = struct.Struct(">i")
_FETCH_HEAD: Final = struct.Struct(">iiiiii")  # epoch, wait, min bytes, max bytes, records, batch
_MODE: Final = struct.Struct(">b?")
_PARTITION: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_WHOLE: Final = struct.Struct(">iBqqB1sBB")
"""A partition as most requests have it: one batch with one type, and no tagged field. Counts are
sent with 1 added.
"""
_ONE: Final = 1 + 1


class AcknowledgedBatch(NamedTuple):
    """Consecutive offsets, with one acknowledge type for all or a type for each."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    types: bytes
    release_delay_ms: int = 0
    is_unseen: bool = False
    """The application never received the records that are released."""


class SharePartitionRequest(NamedTuple):
    """One partition of a request, with the acknowledgements of its records."""

    partition: int
    batches: list[AcknowledgedBatch]


ShareTopicRequest = tuple[bytes, list[SharePartitionRequest]]
"""Topic id, and its partitions."""


class ShareFetchRequest(NamedTuple):
    """ShareFetch request. ``forgotten``: (topic id, partitions) that leave the session."""

    group_id: str | None
    member_id: str | None
    session_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_records_max: int
    acquire_mode: int
    renews: bool
    topics: list[ShareTopicRequest]
    forgotten: list[tuple[bytes, list[int]]]


class ShareAcknowledgeRequest(NamedTuple):
    """ShareAcknowledge request."""

    group_id: str | None
    member_id: str | None
    session_epoch: int
    renews: bool
    topics: list[ShareTopicRequest]


@guarded
def read_share_fetch_request(body: memoryview, version: int) -> ShareFetchRequest:
    """Parse a request of a served version."""
    group_id, position = read_compact_nullable_string(body, 0)
    member_id, position = read_compact_nullable_string(body, position)
    epoch, wait, least, most, records, batch = _FETCH_HEAD.unpack_from(body, position)
    position += _FETCH_HEAD.size
    mode, renews = 0, False
    if version >= MODE_AND_RENEWAL_FROM:
        mode, renews = _MODE.unpack_from(body, position)
        position += _MODE.size
    topics, position = _read_topics(body, position)
    forgotten, position = _read_forgotten(body, position)
    COMPACT.skip_tags(body, position)
    return ShareFetchRequest(
        group_id,
        member_id,
        epoch,
        wait,
        least,
        most,
        records,
        batch,
        mode,
        renews,
        topics,
        forgotten,
    )


@guarded
def read_share_acknowledge_request(body: memoryview, version: int) -> ShareAcknowledgeRequest:
    """Parse a request of a served version."""
    group_id, position = read_compact_nullable_string(body, 0)
    member_id, position = read_compact_nullable_string(body, position)
    (epoch,) = _EPOCH.unpack_from(body, position)
    position += _EPOCH.size
    renews = False
    if version >= MODE_AND_RENEWAL_FROM:
        renews = body[position] != 0
        position += 1
    topics, position = _read_topics(body, position)
    COMPACT.skip_tags(body, position)
    return ShareAcknowledgeRequest(group_id, member_id, epoch, renews, topics)


def _read_topics(body: memoryview, position: int) -> tuple[list[ShareTopicRequest], int]:
    topic_count, position = COMPACT.read_count(body, position)
    elements = topic_count
    topics: list[ShareTopicRequest] = []
    for _ in range(topic_count):
        topic_id, position = read_uuid(body, position)
        count, position = COMPACT.read_count(body, position)
        partitions: list[SharePartitionRequest] = []
        for _ in range(count):
            one, position = _read_whole(body, position) or _read_partition(body, position)
            elements += 1 + sum([1 + len(batch.types) for batch in one.batches])
            check_elements(elements)
            partitions.append(one)
        position = COMPACT.skip_tags(body, position)
        topics.append((topic_id, partitions))
    return topics, position


def _read_whole(body: memoryview, position: int) -> tuple[SharePartitionRequest, int] | None:
    """Read a partition of the usual shape by one call; None if it has another one."""
    end = position + _WHOLE.size
    if end > len(body):
        return None
    partition, batches, first, last, types, kind, tags, more_tags = _WHOLE.unpack_from(
        body, position
    )
    if batches != _ONE or types != _ONE or tags or more_tags:
        return None
    return SharePartitionRequest(partition, [AcknowledgedBatch(first, last, kind)]), end


def _read_partition(body: memoryview, position: int) -> tuple[SharePartitionRequest, int]:
    (partition,) = _PARTITION.unpack_from(body, position)
    batches, position = _read_batches(body, position + _PARTITION.size)
    return SharePartitionRequest(partition, batches), COMPACT.skip_tags(body, position)


def _read_batches(body: memoryview, position: int) -> tuple[list[AcknowledgedBatch], int]:
    count, position = COMPACT.read_count(body, position)
    check_elements(count)
    batches: list[AcknowledgedBatch] = []
    for _ in range(count):
        first, last = _OFFSETS.unpack_from(body, position)
        size, position = COMPACT.read_count(body, position + _OFFSETS.size)
        end = position + size
        if end > len(body):
            raise MalformedRequestError(f"{size} acknowledge types are cut short")
        batch = AcknowledgedBatch(first, last, body[position:end].tobytes())
        position = end + 1
        if body[end]:
            tags, position = read_tags(body, end)
            batch = _with_own_fields(batch, tags)
        batches.append(batch)
    return batches, position


def _with_own_fields(batch: AcknowledgedBatch, tags: dict[int, memoryview]) -> AcknowledgedBatch:
    if RELEASE_DELAY_TAG in tags:
        (delay_ms,) = INT32.unpack_from(tags[RELEASE_DELAY_TAG], 0)
        batch = batch._replace(release_delay_ms=delay_ms)
    if UNSEEN_TAG in tags:
        batch = batch._replace(is_unseen=tags[UNSEEN_TAG][0] != 0)
    return batch


def _read_forgotten(body: memoryview, position: int) -> tuple[list[tuple[bytes, list[int]]], int]:
    count, position = COMPACT.read_count(body, position)
    elements = count
    forgotten: list[tuple[bytes, list[int]]] = []
    for _ in range(count):
        topic_id, position = read_uuid(body, position)
        partitions, position = COMPACT.read_int32s(body, position)
        position = COMPACT.skip_tags(body, position)
        elements += len(partitions)
        check_elements(elements)
        forgotten.append((topic_id, partitions))
    return forgotten, position
