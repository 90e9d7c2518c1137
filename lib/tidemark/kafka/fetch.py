"""Fetch, versions 4 to 18: names of `fetch_request` and `fetch_response` in one module."""

from tidemark.kafka.fetch_request import (
    HIGH_WATERMARK_UNSUPPORTED,
    SYNCED_END_UNKNOWN,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_request,
    write_fetch_request,
)
from tidemark.kafka.fetch_response import (
    FetchedPartition,
    FetchedTopic,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
    read_fetch_response,
    write_fetch_response,
    write_fetch_response_parts,
)
from tidemark.kafka.primitives import NodeEndpoint

__all__ = [
    "HIGH_WATERMARK_UNSUPPORTED",
    "SYNCED_END_UNKNOWN",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResult",
    "FetchedPartition",
    "FetchedTopic",
    "NodeEndpoint",
    "read_fetch_request",
    "read_fetch_response",
    "write_fetch_request",
    "write_fetch_response",
    "write_fetch_response_parts",
]
