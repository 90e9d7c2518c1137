"""Messages written out by hand, a field a line (``messages.json``), against our codec."""

import json
from pathlib import Path
from typing import Any

import pytest
from tidemark.kafka import api_versions, fetch, list_offsets, long_tail, metadata, produce
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader, read_request_header, request_header
from tidemark.kafka.primitives import ZERO_UUID, NodeEndpoint
from tidemark.kafka.share_requests import AcknowledgedBatch, read_share_acknowledge_request

GOLDEN = {
    entry["name"]: bytes.fromhex("".join(row[0] for row in entry["bytes"]))
    for entry in json.loads((Path(__file__).parent / "messages.json").read_text())
}
TOPIC_ID = bytes(range(16))
RECORDS = memoryview(bytes.fromhex("cafebabe"))

PRODUCE_7 = produce.ProduceRequest(
    None,
    -1,
    30_000,
    [produce.ProduceTopic("orders", ZERO_UUID, [produce.ProducePartition(3, RECORDS)])],
)
PRODUCE_13 = produce.ProduceRequest(
    None,
    1,
    1_500,
    [
        produce.ProduceTopic(
            "",
            TOPIC_ID,
            [produce.ProducePartition(0, RECORDS), produce.ProducePartition(1, None)],
        )
    ],
)
PRODUCED_10 = produce.ProduceResponse(
    [("orders", ZERO_UUID, [produce.ProducePartitionResult(3, 6, current_leader=(2, 5))])],
    0,
    [NodeEndpoint(2, "local", 9092, "r2")],
)
FETCH_12 = fetch.FetchRequest(
    replica_id=-1,
    replica_epoch=-1,
    wait_ms_max=500,
    bytes_min=1,
    bytes_max=50 << 20,
    isolation_level=1,
    session_id=7,
    session_epoch=2,
    topics=[
        fetch.FetchTopic("orders", ZERO_UUID, [fetch.FetchPartition(0, 4, 100, -1, -1, 1 << 20)])
    ],
    forgotten=[("a", ZERO_UUID, [1, 2])],
    rack_id="az1",
    cluster_id=None,
)
FETCHED_12 = fetch.FetchResponse(
    0,
    0,
    7,
    [
        fetch.FetchedTopic(
            "orders",
            ZERO_UUID,
            [
                fetch.FetchedPartition(
                    fetch.FetchPartitionResult(
                        0, 0, 102, 101, 0, aborted=[(9, 100)], records_bytes=4
                    ),
                    RECORDS,
                ),
                fetch.FetchedPartition(
                    fetch.FetchPartitionResult(1, 0, -1, diverging_epoch=(3, 80)), memoryview(b"")
                ),
            ],
        )
    ],
    [],
)
METADATA_13 = metadata.MetadataResponse(
    [NodeEndpoint(1, "local", 9092)],
    "c1",
    1,
    [
        metadata.MetadataTopic(
            0,
            "orders",
            TOPIC_ID,
            is_internal=False,
            partitions=[metadata.MetadataPartition(0, 0, 1, 5, [1, 2], [1], [2])],
        )
    ],
)
LIST_OFFSETS_7 = list_offsets.ListOffsetsRequest(
    -1,
    0,
    [
        list_offsets.ListOffsetsTopic(
            "orders", [list_offsets.ListOffsetsPartition(0, list_offsets.MAX_TIMESTAMP)]
        )
    ],
)
API_VERSIONS_3 = api_versions.ApiVersionsResponse(
    0,
    [api_versions.ApiVersion(0, 0, 13), api_versions.ApiVersion(18, 0, 4)],
    finalized_features_epoch=7,
    finalized_features=(api_versions.FinalizedFeature("group.version", 1, 1),),
)
UNSUPPORTED = api_versions.ApiVersionsResponse(35, [api_versions.ApiVersion(18, 0, 4)])
CREATED_7 = {
    "topics": [
        {
            "name": "orders",
            "topic_id": TOPIC_ID,
            "error_code": 29,
            "error_message": "no",
            "topic_config_error_code": 29,
            "configs": None,
        }
    ]
}

SHARE_ACKNOWLEDGE_2 = {
    "group_id": "g",
    "member_id": "m",
    "share_session_epoch": 3,
    "topics": [
        {
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition_index": 1,
                    "acknowledgement_batches": [
                        {
                            "first_offset": 5,
                            "last_offset": 6,
                            "acknowledge_types": [2],
                            "release_delay": 700,
                        },
                        {
                            "first_offset": 7,
                            "last_offset": 7,
                            "acknowledge_types": [2],
                            "is_unseen": True,
                        },
                        {"first_offset": 8, "last_offset": 9, "acknowledge_types": [1, 3]},
                    ],
                }
            ],
        }
    ],
}


def produced(version: int, answer: produce.ProduceResponse) -> bytes:
    return produce.write_produce_response(
        version, answer.topics, answer.throttle_time_ms, answer.node_endpoints
    )


MESSAGES: list[tuple[str, Any, Any, int, Any]] = [
    (
        "ApiVersions response v0, unsupported version",
        api_versions.write_api_versions_response,
        api_versions.read_api_versions_response,
        0,
        UNSUPPORTED,
    ),
    (
        "ApiVersions response v3",
        api_versions.write_api_versions_response,
        api_versions.read_api_versions_response,
        3,
        API_VERSIONS_3,
    ),
    (
        "Produce request v7",
        produce.write_produce_request,
        produce.read_produce_request,
        7,
        PRODUCE_7,
    ),
    (
        "Produce request v13",
        produce.write_produce_request,
        produce.read_produce_request,
        13,
        PRODUCE_13,
    ),
    (
        "Produce response v10, not the leader",
        produced,
        produce.read_produce_response,
        10,
        PRODUCED_10,
    ),
    ("Fetch request v12", fetch.write_fetch_request, fetch.read_fetch_request, 12, FETCH_12),
    ("Fetch response v12", fetch.write_fetch_response, fetch.read_fetch_response, 12, FETCHED_12),
    (
        "Metadata request v1, all topics",
        metadata.write_metadata_request,
        metadata.read_metadata_request,
        1,
        metadata.MetadataRequest(None),
    ),
    (
        "Metadata response v13",
        metadata.write_metadata_response,
        metadata.read_metadata_response,
        13,
        METADATA_13,
    ),
    (
        "ListOffsets request v7, max timestamp",
        list_offsets.write_list_offsets_request,
        list_offsets.read_list_offsets_request,
        7,
        LIST_OFFSETS_7,
    ),
]


@pytest.mark.feature("Y01")
@pytest.mark.parametrize(
    ("name", "write", "read", "version", "message"), MESSAGES, ids=[row[0] for row in MESSAGES]
)
def test_a_golden_message(name: str, write: Any, read: Any, version: int, message: Any) -> None:
    assert write(version, message) == GOLDEN[name]
    assert read(memoryview(GOLDEN[name]), version) == message


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("request header v1, Produce 7", RequestHeader(0, 7, 5, "rdkafka", 17)),
        ("request header v2, Produce 9", RequestHeader(0, 9, -2, None, 11)),
    ],
)
def test_a_golden_header(name: str, header: RequestHeader) -> None:
    assert request_header(*header[:4]) == GOLDEN[name]
    assert read_request_header(memoryview(GOLDEN[name])) == header


def test_the_golden_create_topics_response() -> None:
    golden = GOLDEN["CreateTopics response v7"]
    assert long_tail.write_response(ApiKey.CREATE_TOPICS, 7, CREATED_7) == golden
    read: Any = long_tail.read_response(ApiKey.CREATE_TOPICS, 7, memoryview(golden))
    assert read.topics[0].topic_config_error_code == 29
    assert long_tail.write_response(ApiKey.CREATE_TOPICS, 7, read) == golden


@pytest.mark.feature("Y12")
def test_the_golden_share_acknowledge_request_with_our_own_fields() -> None:
    golden = GOLDEN["ShareAcknowledge request v2, own fields"]
    assert long_tail.write_request(ApiKey.SHARE_ACKNOWLEDGE, 2, SHARE_ACKNOWLEDGE_2) == golden
    read = read_share_acknowledge_request(memoryview(golden), 2)
    ((_, (partition,)),) = read.topics
    assert partition.batches == [
        AcknowledgedBatch(5, 6, b"\x02", 700, is_unseen=False),
        AcknowledgedBatch(7, 7, b"\x02", 0, is_unseen=True),
        AcknowledgedBatch(8, 9, b"\x01\x03"),
    ]


def test_every_golden_message_is_tested() -> None:
    tested = {row[0] for row in MESSAGES}
    others = ("header", "Create", "ShareAcknowledge")
    assert {name for name in GOLDEN if not any(one in name for one in others)} == tested
