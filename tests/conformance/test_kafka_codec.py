"""Our bytes against two other codecs, for every version of every API, requests and responses.

Each oracle decodes what we wrote and encodes it again: identical bytes mean that both sides agree
on every field, its place and its encoding. kio covers all messages; kafka-python those that its
clients use.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.fetch import SYNCED_END_UNKNOWN, FetchRequest
from tidemark.kafka.headers import request_header, response_header
from tidemark.kafka.schemas import load_schema
from unit.tidemark.kafka.catalogue import HAND_WRITTEN, LONG_TAIL, HandWritten
from unit.tidemark.kafka.oracles import (
    kafka_python_again,
    kafka_python_knows,
    kio_again,
    kio_request_header,
    kio_response_header,
)
from unit.tidemark.kafka.strategies import message_fields

ROOT = Path(__file__).parents[2]
EVERY_VERSION = [
    (key, version)
    for key, versions in APIS.items()
    for version in range(versions.served_min, versions.max + 1)
]
HAND_WRITTEN_VERSIONS = [
    pytest.param(row, version, id=f"{row}-v{version}")
    for row in HAND_WRITTEN
    for version in range(APIS[row.key].served_min, APIS[row.key].max + 1)
]


def assert_others_agree(key: int, version: int, direction: str, body: bytes) -> None:
    assert kio_again(key, version, direction, body) == body
    # kafka-python reads an ApiVersions error as version 0, whatever version was asked.
    is_error = (key, direction) == (ApiKey.API_VERSIONS, "response") and body[:2] != b"\0\0"
    if kafka_python_knows(key, version, direction) and not is_error:
        assert kafka_python_again(key, version, direction, body) == body


def _known_to_all(message: Any) -> Any:
    """Without the tagged field that only our followers send: others may drop it, and do."""
    if not isinstance(message, FetchRequest):
        return message
    topics = [
        topic._replace(
            partitions=[one._replace(synced_end=SYNCED_END_UNKNOWN) for one in topic.partitions]
        )
        for topic in message.topics
    ]
    return message._replace(topics=topics)


@pytest.mark.feature("Y01")
@pytest.mark.parametrize(("under_test", "version"), HAND_WRITTEN_VERSIONS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_others_read_our_hand_written_messages(
    under_test: HandWritten, version: int, data: st.DataObject
) -> None:
    body = under_test.write(version, _known_to_all(data.draw(under_test.messages(version))))
    assert_others_agree(under_test.key, version, under_test.direction, body)


@pytest.mark.feature("Y01")
@pytest.mark.parametrize(("key", "version"), LONG_TAIL)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_others_read_our_long_tail(key: ApiKey, version: int, data: st.DataObject) -> None:
    schema = load_schema(key)
    request: Any = data.draw(message_fields(schema.request, version))
    body = long_tail.write_request(key, version, request)
    assert_others_agree(key, version, "request", body)
    response: Any = data.draw(message_fields(schema.response, version))
    body = long_tail.write_response(key, version, response)
    assert_others_agree(key, version, "response", body)


@pytest.mark.feature("Y01")
@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_headers_are_kio_s(key: ApiKey, version: int) -> None:
    ours = request_header(key, version, 77, "client-ü")
    assert ours == kio_request_header(key, version, 77, "client-ü")
    assert response_header(key, version, 77) == kio_response_header(key, version, 77)
