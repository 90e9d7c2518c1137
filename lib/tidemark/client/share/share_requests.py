"""ShareFetch and ShareAcknowledge: fields of requests, and their answers as plain values."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidemark.client.share.share_session import SessionRequest, SharePartition
from tidemark.kafka.long_tail import Struct

Fields = dict[str, Any]


class FetchSettings(NamedTuple):
    """Limits of one fetch."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    records_max: int
    acquire_mode: int
    """Acquire mode: 0 batch_optimized, 1 record_limit (KIP-1206)."""


class Acquired(NamedTuple):
    """Acquired offsets from first to last, inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class FetchedPartition(NamedTuple):
    """Answer about one partition: errors of the fetch and of the acknowledgements, and records."""

    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: memoryview = memoryview(b"")
    acquired: tuple[Acquired, ...] = ()


class ShareAnswer(NamedTuple):
    """Answer to ShareFetch or ShareAcknowledge; ``lock_timeout_ms`` is 0 if it has none."""

    error_code: int
    error_message: str | None
    lock_timeout_ms: int
    partitions: Mapping[SharePartition, FetchedPartition]


def fetch_fields(
    group_id: str, member_id: str, request: SessionRequest, settings: FetchSettings
) -> Fields:
    """Return the fields of ShareFetch."""
    return {
        **_session_fields(group_id, member_id, request),
        "max_wait": settings.wait_ms_max,
        "min_bytes": settings.bytes_min,
        "max_bytes": settings.bytes_max,
        "max_records": settings.records_max,
        "batch_size": settings.records_max,
        "share_acquire_mode": settings.acquire_mode,
        "forgotten_topics_data": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in _by_topic(request.forgotten).items()
        ],
    }


def acknowledge_fields(group_id: str, member_id: str, request: SessionRequest) -> Fields:
    """Return the fields of ShareAcknowledge."""
    return _session_fields(group_id, member_id, request)


def with_renewals(fields: Fields) -> Fields:
    """Return the fields of a request whose acknowledgements may be renewals (version 2)."""
    return {**fields, "is_renew_ack": True}


def read_fetched(answer: Struct) -> ShareAnswer:
    """Read the answer to ShareFetch."""
    return ShareAnswer(
        answer.error_code,
        answer.error_message,
        answer.acquisition_lock_timeout,
        {
            (topic.topic_id, one.partition_index): FetchedPartition(
                one.error_code,
                one.error_message,
                one.acknowledge_error_code,
                one.acknowledge_error_message,
                memoryview(one.records or b""),
                tuple(
                    Acquired(each.first_offset, each.last_offset, each.delivery_count)
                    for each in one.acquired_records
                ),
            )
            for topic in answer.responses
            for one in topic.partitions
        },
    )


def read_acknowledged(answer: Struct) -> ShareAnswer:
    """Read the answer to ShareAcknowledge: its errors are those of acknowledgements."""
    return ShareAnswer(
        answer.error_code,
        answer.error_message,
        answer.acquisition_lock_timeout,
        {
            (topic.topic_id, one.partition_index): FetchedPartition(
                acknowledge_error_code=one.error_code, acknowledge_error_message=one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        },
    )


def _session_fields(group_id: str, member_id: str, request: SessionRequest) -> Fields:
    topics: dict[bytes, list[Fields]] = {}
    for (topic_id, partition), batches in request.partitions.items():
        row = {
            "partition_index": partition,
            "acknowledgement_batches": [
                {
                    "first_offset": one.first_offset,
                    "last_offset": one.last_offset,
                    "acknowledge_types": list(one.types),
                    "release_delay": one.delay_ms,
                    "is_unseen": one.is_unseen,
                }
                for one in batches
            ],
        }
        topics.setdefault(topic_id, []).append(row)
    return {
        "group_id": group_id,
        "member_id": member_id,
        "share_session_epoch": request.epoch,
        "topics": [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()],
    }


def _by_topic(partitions: Iterable[SharePartition]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    return topics
