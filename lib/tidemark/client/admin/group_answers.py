"""Readers of responses about groups and transactions. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from tidemark.client.admin.group_types import (
    CLASSIC,
    CONSUMER,
    OPEN_STATES,
    GroupDescription,
    MemberDescription,
    TransactionDescription,
)
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.client.errors import ClientError, error_for
from tidemark.codec.consumer_protocol import read_assignment
from tidemark.codec.coordinator_fields import DamagedRecordError
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

_DEAD: Final = "Dead"
_CLASSIC_TYPE: Final = 0
"""Kafka's number of the classic protocol, from version 1 of ConsumerGroupDescribe on."""


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
                CLASSIC if getattr(each, "member_type", None) == _CLASSIC_TYPE else CONSUMER,
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
                protocol=CLASSIC,
            )
            for each in group.members
        ),
    )


def classic_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """Read a classic member's assignment in the consumers' embedded protocol.

    Returns () for bytes of another protocol.
    """
    try:
        topics = read_assignment(content)
    except DamagedRecordError:
        return ()
    return tuple(sorted(TopicPartition(name, one) for name, numbers in topics for one in numbers))


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
