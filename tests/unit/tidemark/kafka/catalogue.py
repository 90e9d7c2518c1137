"""Every message and version under test."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidemark.kafka import api_versions, fetch, list_offsets, metadata, produce
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.schemas import covers
from unit.tidemark.kafka import strategies


class HandWritten(NamedTuple):
    """One direction of one API: arbitrary messages of a version, and the functions under test."""

    key: ApiKey
    direction: str
    messages: Callable[[int], Any]
    write: Callable[[int, Any], bytes]
    read: Callable[[memoryview, int], Any]

    def __str__(self) -> str:
        return f"{self.key.name}-{self.direction}"


def write_produce_response(version: int, answer: produce.ProduceResponse) -> bytes:
    return produce.write_produce_response(
        version, answer.topics, answer.throttle_time_ms, answer.node_endpoints
    )


def write_list_offsets_response(version: int, answer: list_offsets.ListOffsetsResponse) -> bytes:
    return list_offsets.write_list_offsets_response(version, answer.topics, answer.throttle_time_ms)


HAND_WRITTEN: Final = [
    HandWritten(
        ApiKey.PRODUCE,
        "request",
        strategies.produce_requests,
        produce.write_produce_request,
        produce.read_produce_request,
    ),
    HandWritten(
        ApiKey.PRODUCE,
        "response",
        strategies.produce_responses,
        write_produce_response,
        produce.read_produce_response,
    ),
    HandWritten(
        ApiKey.FETCH,
        "request",
        strategies.fetch_requests,
        fetch.write_fetch_request,
        fetch.read_fetch_request,
    ),
    HandWritten(
        ApiKey.FETCH,
        "response",
        strategies.fetch_responses,
        fetch.write_fetch_response,
        fetch.read_fetch_response,
    ),
    HandWritten(
        ApiKey.METADATA,
        "request",
        strategies.metadata_requests,
        metadata.write_metadata_request,
        metadata.read_metadata_request,
    ),
    HandWritten(
        ApiKey.METADATA,
        "response",
        strategies.metadata_responses,
        metadata.write_metadata_response,
        metadata.read_metadata_response,
    ),
    HandWritten(
        ApiKey.LIST_OFFSETS,
        "request",
        strategies.list_offsets_requests,
        list_offsets.write_list_offsets_request,
        list_offsets.read_list_offsets_request,
    ),
    HandWritten(
        ApiKey.LIST_OFFSETS,
        "response",
        strategies.list_offsets_responses,
        write_list_offsets_response,
        list_offsets.read_list_offsets_response,
    ),
    HandWritten(
        ApiKey.API_VERSIONS,
        "request",
        strategies.api_versions_requests,
        api_versions.write_api_versions_request,
        api_versions.read_api_versions_request,
    ),
    HandWritten(
        ApiKey.API_VERSIONS,
        "response",
        strategies.api_versions_responses,
        api_versions.write_api_versions_response,
        api_versions.read_api_versions_response,
    ),
]
LONG_TAIL: Final = [
    (key, version)
    for key, versions in APIS.items()
    if covers(key)
    for version in range(versions.served_min, versions.max + 1)
]
LONG_TAIL_APIS: Final = sorted({key for key, _ in LONG_TAIL})
