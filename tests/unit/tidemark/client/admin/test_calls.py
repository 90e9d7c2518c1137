"""Requests of the admin client: values that no request can carry."""

import asyncio
from typing import cast

import pytest
from tidemark.client.admin import requests
from tidemark.client.admin.calls import ask_one
from tidemark.client.admin.types import NewTopic
from tidemark.client.errors import ClientConfigError
from tidemark.client.wire.connection import BrokerConnection
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.long_tail import UnencodableError
from tidemark.model.errors import ErrorCode


class Unsent:
    """A connection over which nothing may be sent."""

    def version(self, api_key: ApiKey) -> int:
        return APIS[api_key].max

    async def request(self, api_key: ApiKey, version: int, body: list[bytes]) -> bytes:
        raise AssertionError(f"sent: {api_key} {version} {body}")


def ask(api_key: ApiKey, fields: requests.Fields) -> None:
    asyncio.run(ask_one(cast("BrokerConnection", Unsent()), api_key, fields))


@pytest.mark.parametrize(
    ("api_key", "fields", "word"),
    [
        (
            ApiKey.CREATE_TOPICS,
            requests.create_topics(
                [NewTopic("t", 2**31, 1)], timeout_ms=1_000, validate_only=False
            ),
            "num_partitions",
        ),
        (ApiKey.UNREGISTER_BROKER, {"broker_id": 2**31}, "broker_id"),
        (
            ApiKey.ELECT_LEADERS,
            {"topic_partitions": [{"topic": "t", "partitions": [2**31]}], "timeout": 1},
            "partitions",
        ),
    ],
)
def test_a_value_that_no_request_can_carry_is_refused(
    api_key: ApiKey, fields: requests.Fields, word: str
) -> None:
    with pytest.raises(ClientConfigError, match=word) as refused:
        ask(api_key, fields)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_field_that_a_request_does_not_have_is_a_bug() -> None:
    with pytest.raises(UnencodableError):
        ask(ApiKey.UNREGISTER_BROKER, {"broker": 1})
