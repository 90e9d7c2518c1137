"""Readers of responses about groups and transactions. Pure."""

import struct
from collections.abc import Iterable
from typing import Any, Final

from tidemark.client.admin.group_types import (
    OPEN_STATES,
    GroupDescription,
    MemberDescription,
    TransactionDescription,
)
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.client.errors import ClientError, error_for
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_DEAD: Final = "Dead"


def problem(code: int, doing: str, detail: str | None = None) -> ClientError | None:
    """Return the error of a response, if any."""
    return error_for(code, f"{doing} failed", detail=detail) if code else None


def partition_problem(topics: Iterable[Any], doing: str) -> ClientError | None:
    """Return the first error of a partition; one that is not retriable takes precedence."""
    problems = [
        error_for(each.error_code, f"{doing} failed for {topic.name}-{each.partition_index}")
        for topic in topics
        for each in topic.partitions
        if each.error_code
    ]
    problems.sort(key=lambda each: each.retriable)
    return problems[0] if problems else None


def committed_offsets(topics: Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of OffsetFetch; partitions without one are left out."""
    return {
        TopicPartition(topic.name, each.partition_index): OffsetAndMetadata(
            each.committed_offset, each.metadata or "", each.committed_leader_epoch
        )
        for topic in topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def consumer_group(group: Any) -> GroupDescription:
    """Read a group of KIP-848."""
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        group.assignor_name,
        tuple(
            MemberDescription(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.member_epoch,
                _partitions(each.assignment),
                _partitions(each.target_assignment),
            )
            for each in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def classic_group(group: Any) -> GroupDescription | None:
    """Read a classic group; None if there is none with this id."""
    if group.group_state == _DEAD or group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    return GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_data,
        tuple(
            MemberDescription(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                -1,
                classic_assignment(each.member_assignment),
            )
            for each in group.members
        ),
    )


def classic_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """Read a classic member's assignment in the consumers' embedded protocol.

    Returns () for bytes of another protocol.
    """
    try:
        return tuple(_read_assignment(memoryview(content)))
    except (struct.error, UnicodeDecodeError, ValueError):
        return ()


def transaction(each: Any) -> TransactionDescription:
    """Read one state of DescribeTransactions."""
    return TransactionDescription(
        each.transactional_id,
        each.transaction_state,
        each.producer_id,
        each.producer_epoch,
        each.transaction_timeout,
        each.transaction_start_time if each.transaction_state in OPEN_STATES else -1,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in each.topics
                for number in topic.partitions
            )
        ),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _read_assignment(content: memoryview) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    if not content:
        return found
    position = _INT16.size  # later versions only append
    (topics,) = _INT32.unpack_from(content, position)
    position += _INT32.size
    for _ in range(topics):
        (length,) = _INT16.unpack_from(content, position)
        position += _INT16.size
        name = bytes(content[position : position + length]).decode()
        position += length
        (count,) = _INT32.unpack_from(content, position)
        position += _INT32.size
        for _ in range(count):
            (number,) = _INT32.unpack_from(content, position)
            position += _INT32.size
            found.append(TopicPartition(name, number))
    return sorted(found)
