"""What the long tail promises beyond its bytes: defaults, dropped fields, clear refusals."""

from typing import Any

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import (
    UnencodableError,
    read_request,
    read_response,
    write_request,
    write_response,
)
from tidemark.kafka.primitives import INT32, REQUEST_ELEMENTS_MAX, MalformedRequestError


def through(key: ApiKey, version: int, fields: dict[str, object]) -> Any:
    return read_response(key, version, memoryview(write_response(key, version, fields)))


def test_a_field_that_the_version_lacks_is_dropped_and_read_as_its_default() -> None:
    topic = {"name": "orders", "num_partitions": 6, "topic_id": bytes(range(16))}
    (old,) = through(ApiKey.CREATE_TOPICS, 2, {"topics": [topic]}).topics
    assert (old.name, old.num_partitions, old.topic_id) == ("orders", -1, bytes(16))
    (new,) = through(ApiKey.CREATE_TOPICS, 7, {"topics": [topic]}).topics
    assert (new.num_partitions, new.topic_id) == (6, bytes(range(16)))


def test_defaults_are_never_shared() -> None:
    body = memoryview(write_request(ApiKey.DELETE_TOPICS, 6, {}))
    first: Any = read_request(ApiKey.DELETE_TOPICS, 6, body)
    first.topic_names.append("orders")
    second: Any = read_request(ApiKey.DELETE_TOPICS, 6, body)
    assert second.topic_names == []


def test_an_error_message_is_cut_to_what_every_version_can_carry() -> None:
    results = [{"name": "a", "error_message": "\u20ac" * 40_000}]
    (told,) = through(ApiKey.CREATE_PARTITIONS, 0, {"results": results}).results
    assert told.error_message == "\u20ac" * 4_096 + "..."


def test_a_misspelt_field_is_refused_by_name() -> None:
    with pytest.raises(UnencodableError, match=r"CREATE_TOPICS response v5\.topics.*erorr_code"):
        write_response(ApiKey.CREATE_TOPICS, 5, {"topics": [{"erorr_code": 1}]})


@pytest.mark.parametrize(
    "fields",
    [
        {"error_code": 1 << 15},
        {"error_code": None},
        {"throttle_time": "soon"},
        {"throttle_time": 1 << 31},
        {"producer_id": 1 << 63},
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(fields: dict[str, object]) -> None:
    (name,) = fields
    with pytest.raises(UnencodableError, match=rf"INIT_PRODUCER_ID response v4\.{name}"):
        write_response(ApiKey.INIT_PRODUCER_ID, 4, fields)


@pytest.mark.parametrize("topics", ["orders", None, 5])
def test_a_list_must_be_a_list(topics: object) -> None:
    with pytest.raises(UnencodableError):
        write_request(ApiKey.DELETE_TOPICS, 5, {"topic_names": topics})


@pytest.mark.parametrize("error_code", [-1, 0, 133, 134, 32_767])
def test_every_error_code_passes(error_code: int) -> None:
    assert through(ApiKey.END_TXN, 3, {"error_code": error_code}).error_code == error_code


@pytest.mark.parametrize("timestamp", [-1, 0, -(1 << 63), (1 << 63) - 1])
def test_every_timestamp_passes(timestamp: int) -> None:
    producer = {"producer_id": 7, "last_timestamp": timestamp}
    topics = [{"name": "orders", "partitions": [{"active_producers": [producer]}]}]
    (topic,) = through(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics}).topics
    assert topic.partitions[0].active_producers[0].last_timestamp == timestamp


@pytest.mark.parametrize("cursor", [None, {"topic_name": "orders", "partition_index": 3}])
def test_a_nullable_structure_passes(cursor: dict[str, object] | None) -> None:
    read = through(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"next_cursor": cursor}).next_cursor
    assert (None if read is None else read.__dict__) == cursor


def test_no_error_is_said_with_a_null_message() -> None:
    (topic,) = through(ApiKey.CREATE_TOPICS, 5, {"topics": [{"name": "orders"}]}).topics
    assert topic.error_message is None


def test_a_request_of_too_many_elements_is_refused() -> None:
    count = REQUEST_ELEMENTS_MAX + 1
    body = INT32.pack(count) + bytes(2 * count) + bytes(4)  # empty names
    with pytest.raises(MalformedRequestError, match="elements"):
        read_request(ApiKey.DELETE_TOPICS, 1, memoryview(body))
