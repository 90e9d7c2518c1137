"""Failures in answers name what failed in words."""

from types import SimpleNamespace
from typing import Any

import pytest
from tidemark.client.admin.answers import by_name
from tidemark.client.admin.types import ConfigResource
from tidemark.client.errors import ClientError
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import DEFAULT, QuotaEntity


@pytest.mark.feature("AD53")
@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ("orders", "altering 'orders' failed"),
        (ConfigResource("topic", "orders"), "altering 'orders' failed"),
        (ConfigResource("broker", "1"), "altering broker 1 failed"),
        (ConfigResource("broker", ""), "altering the default of all brokers failed"),
        (QuotaEntity("alice", DEFAULT), "altering user alice, client-id <default> failed"),
        (QuotaEntity(ip="home"), "altering ip home failed"),
    ],
)
def test_a_failure_names_its_subject_in_words(thing: Any, words: str) -> None:
    refused = SimpleNamespace(error_code=ErrorCode.INVALID_REQUEST, error_message=None)
    with pytest.raises(ClientError) as raised:
        by_name([refused], lambda _: thing, "altering {}")
    assert raised.value.what == words
