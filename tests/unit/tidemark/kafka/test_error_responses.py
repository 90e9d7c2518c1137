"""A typed error answer to any served request."""

from typing import Any

import pytest
from tidemark.kafka import api_versions, fetch, list_offsets, long_tail, metadata, produce
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.error_responses import error_response
from tidemark.kafka.long_tail import read_response, write_request
from tidemark.kafka.primitives import ZERO_UUID
from tidemark.kafka.schemas import FieldSchema, load_schema
from unit.tidemark.kafka.catalogue import LONG_TAIL_APIS

REFUSED = 41
TOPIC_ID = bytes(range(16))
WITHOUT_A_PLACE = [(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)]
"""Versions whose errors belong to log directories, which no request names."""


def answer(key: ApiKey, version: int, fields: dict[str, object]) -> Any:
    body = memoryview(write_request(key, version, fields))
    encoded = error_response(key, version, body, REFUSED)
    assert encoded is not None
    return read_response(key, version, memoryview(encoded))


@pytest.mark.parametrize("key", LONG_TAIL_APIS, ids=lambda key: key.name)
def test_every_served_request_has_an_error_answer(key: ApiKey) -> None:
    at_top = [part for part in load_schema(key).response if part.name == "error_code"]
    for version in range(APIS[key].served_min, APIS[key].max + 1):
        says = getattr(answer(key, version, {}), "error_code", None)
        assert says == (REFUSED if at_top and version in at_top[0].versions else says)


def filled(fields: tuple[FieldSchema, ...], version: int) -> dict[str, object]:
    """A message in which each array has one element."""
    arrays = [one for one in fields if version in one.versions and one.is_array]
    return {one.name: [element(one, version)] for one in arrays}


def element(array: FieldSchema, version: int) -> object:
    if array.fields:
        return filled(array.fields, version)
    return {"string": "a", "bytes": b"", "uuid": TOPIC_ID, "bool": True}.get(array.wire_type, 0)


def errors_in(message: object) -> list[object]:
    """Error codes anywhere in a message."""
    found: list[object] = []
    for name, value in vars(message).items():
        if name.endswith("error_code"):
            found.append(value)
        for one in value if isinstance(value, list) else ():
            found += errors_in(one) if hasattr(one, "__dict__") else []
    return found


@pytest.mark.parametrize("key", LONG_TAIL_APIS, ids=lambda key: key.name)
def test_a_refusal_has_its_error_somewhere(key: ApiKey) -> None:
    silent = [
        (key, version)
        for version in range(APIS[key].served_min, APIS[key].max + 1)
        if REFUSED not in errors_in(answer(key, version, filled(load_schema(key).request, version)))
    ]
    assert silent == [one for one in WITHOUT_A_PLACE if one[0] is key]


def test_a_move_to_another_directory_is_refused_for_each_partition() -> None:
    topics = [{"name": "orders", "partitions": [0, 4]}]
    dirs = [{"path": path, "topics": topics} for path in ("/a", "/b")]
    rows = answer(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs}).results
    refused = [(0, REFUSED), (4, REFUSED)]
    assert [
        (row.topic_name, [(one.partition_index, one.error_code) for one in row.partitions])
        for row in rows
    ] == [("orders", refused)] * 2


@pytest.mark.parametrize("version", [2, 5, 7])
def test_create_topics_refuses_each_topic(version: int) -> None:
    topics = [{"name": "orders"}, {"name": "payments"}]
    rows = answer(ApiKey.CREATE_TOPICS, version, {"topics": topics}).topics
    assert [(row.name, row.error_code) for row in rows] == [
        ("orders", REFUSED),
        ("payments", REFUSED),
    ]


@pytest.mark.parametrize(("version", "array"), [(1, "topic_names"), (6, "topics")])
def test_delete_topics_refuses_each_topic(version: int, array: str) -> None:
    wanted: list[object] = ["orders"] if array == "topic_names" else [{"name": "orders"}]
    rows = answer(ApiKey.DELETE_TOPICS, version, {array: wanted}).responses
    assert [(row.name, row.error_code) for row in rows] == [("orders", REFUSED)]


def test_an_error_reaches_every_partition_below_its_topic() -> None:
    topics = [{"name": "orders", "partitions": [{"partition_index": 4}]}]
    (topic,) = answer(ApiKey.DELETE_RECORDS, 2, {"topics": topics}).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.error_code) == ("orders", 4, REFUSED)


def test_a_top_level_error_needs_no_request() -> None:
    encoded = error_response(ApiKey.INIT_PRODUCER_ID, 4, None, REFUSED)
    assert encoded is not None
    reply: Any = read_response(ApiKey.INIT_PRODUCER_ID, 4, memoryview(encoded))
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (REFUSED, -1, -1)


def test_without_a_readable_request_there_is_no_answer_by_topic() -> None:
    assert error_response(ApiKey.CREATE_TOPICS, 5, None, REFUSED) is None
    assert error_response(ApiKey.CREATE_TOPICS, 5, memoryview(b"\xff\xff"), REFUSED) is None
    assert error_response(ApiKey.PRODUCE, 9, memoryview(b"\xff"), REFUSED) is None


def test_an_unknown_api_versions_version_is_answered_in_version_0() -> None:
    encoded = error_response(ApiKey.API_VERSIONS, 99, None, 35)
    assert encoded == bytes.fromhex("0023 00000001 0012 0000 0004")


@pytest.mark.parametrize(("key", "version"), [(0, 2), (1, 3), (3, 14), (999, 0)])
def test_an_unserved_version_has_no_answer(key: int, version: int) -> None:
    assert error_response(key, version, memoryview(b""), 35) is None


@pytest.mark.parametrize("version", range(APIS[ApiKey.PRODUCE].served_min, 14))
def test_produce_refuses_each_partition(version: int) -> None:
    name, topic_id = ("", TOPIC_ID) if version >= 13 else ("orders", ZERO_UUID)
    partitions = [produce.ProducePartition(5, None)]
    request = produce.ProduceRequest(
        None, -1, 1, [produce.ProduceTopic(name, topic_id, partitions)]
    )
    body = memoryview(produce.write_produce_request(version, request))
    encoded = error_response(ApiKey.PRODUCE, version, body, REFUSED)
    assert encoded is not None
    reply = produce.read_produce_response(memoryview(encoded), version)
    assert reply.topics == [(name, topic_id, [produce.ProducePartitionResult(5, REFUSED)])]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_says_its_error_where_the_version_has_it(version: int) -> None:
    topic = fetch.FetchTopic("orders", ZERO_UUID, [fetch.FetchPartition(0, -1, 9, -1, -1, 1)])
    request = fetch.FetchRequest(-1, -1, 1, 1, 1, 0, 0, -1, [topic], [], "", None)
    body = memoryview(fetch.write_fetch_request(version, request))
    encoded = error_response(ApiKey.FETCH, version, body, REFUSED)
    assert encoded is not None
    reply = fetch.read_fetch_response(memoryview(encoded), version)
    assert reply.error_code == (REFUSED if version >= 7 else 0)
    errors = [part.result.error_code for topic in reply.topics for part in topic.partitions]
    assert errors == ([] if version >= 13 else [REFUSED])


@pytest.mark.parametrize("version", range(14))
def test_metadata_refuses_each_topic(version: int) -> None:
    request = metadata.MetadataRequest([metadata.MetadataQuery("orders")])
    body = memoryview(metadata.write_metadata_request(version, request))
    encoded = error_response(ApiKey.METADATA, version, body, REFUSED)
    assert encoded is not None
    reply = metadata.read_metadata_response(memoryview(encoded), version)
    assert [(row.topic, row.error_code) for row in reply.topics] == [("orders", REFUSED)]
    assert reply.error_code == (REFUSED if version >= 13 else 0)


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets_refuses_each_partition(version: int) -> None:
    topic = list_offsets.ListOffsetsTopic("orders", [list_offsets.ListOffsetsPartition(3, -1)])
    request = list_offsets.ListOffsetsRequest(-1, 0, [topic])
    body = memoryview(list_offsets.write_list_offsets_request(version, request))
    encoded = error_response(ApiKey.LIST_OFFSETS, version, body, REFUSED)
    assert encoded is not None
    reply = list_offsets.read_list_offsets_response(memoryview(encoded), version)
    assert reply.topics == [("orders", [list_offsets.ListOffsetsResult(3, REFUSED)])]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_says_another_error_in_its_own_version(version: int) -> None:
    encoded = error_response(ApiKey.API_VERSIONS, version, memoryview(b""), REFUSED)
    assert encoded is not None
    reply = api_versions.read_api_versions_response(memoryview(encoded), version)
    assert (reply.error_code, list(reply.api_versions)) == (REFUSED, [])


def test_the_long_tail_s_face_is_whole() -> None:
    assert all(hasattr(long_tail, name) for name in long_tail.__all__)
