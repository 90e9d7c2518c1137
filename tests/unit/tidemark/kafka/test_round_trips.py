"""What is written is what is read, over all versions of the hand-written messages and of the long
tail."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.schemas import load_schema
from unit.tidemark.kafka.catalogue import HAND_WRITTEN, LONG_TAIL, LONG_TAIL_APIS, HandWritten
from unit.tidemark.kafka.strategies import message_fields


@pytest.mark.parametrize("under_test", HAND_WRITTEN, ids=str)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_hand_written_message_survives(under_test: HandWritten, data: st.DataObject) -> None:
    key, _, messages, write, read = under_test
    version = data.draw(st.integers(APIS[key].served_min, APIS[key].max), label="version")
    message = data.draw(messages(version))
    assert read(memoryview(write(version, message)), version) == message


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_message_of_the_long_tail_survives(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(LONG_TAIL))
    schema = load_schema(key)
    request = data.draw(message_fields(schema.request, version))
    body = long_tail.write_request(key, version, request)
    assert_holds(long_tail.read_request(key, version, memoryview(body)), request)
    response = data.draw(message_fields(schema.response, version))
    body = long_tail.write_response(key, version, response)
    assert_holds(long_tail.read_response(key, version, memoryview(body)), response)


def assert_holds(struct: Any, fields: Any) -> None:
    """Every given field is in the structure; further ones are other versions'."""
    if isinstance(fields, dict):
        for name, value in fields.items():
            assert_holds(getattr(struct, name), value)
    elif isinstance(fields, list):
        assert len(struct) == len(fields)
        for part, value in zip(struct, fields, strict=True):
            assert_holds(part, value)
    else:
        assert struct == fields


@pytest.mark.parametrize("key", LONG_TAIL_APIS, ids=lambda key: key.name)
def test_what_was_read_can_be_written_again(key: ApiKey) -> None:
    for version in range(APIS[key].served_min, APIS[key].max + 1):
        body = long_tail.write_request(key, version, {})
        request = long_tail.read_request(key, version, memoryview(body))
        assert long_tail.write_request(key, version, request) == body
        body = long_tail.write_response(key, version, {})
        response = long_tail.read_response(key, version, memoryview(body))
        assert long_tail.write_response(key, version, response) == body
