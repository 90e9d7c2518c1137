"""Subscriptions to metrics of clients: valid values, and Kafka's refusals."""

import pytest
from tidemark.model.client_metrics_configs import (
    CLIENT_METRICS_CONFIG_KEYS,
    check_subscription,
    match_patterns,
)
from tidemark.model.errors import ErrorCode, TidemarkError


def test_keys_and_types_are_kafkas() -> None:
    kinds = {name: key.kind.type_number for name, key in CLIENT_METRICS_CONFIG_KEYS.items()}
    assert kinds == {"interval.ms": 3, "match": 7, "metrics": 7}


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"metrics": "", "interval.ms": "100"},
        {"metrics": "*", "interval.ms": "3600000", "match": "client_id = app-.*"},
    ],
)
def test_a_valid_subscription(configs: dict[str, str]) -> None:
    check_subscription(configs)


@pytest.mark.parametrize(
    ("configs", "error", "message"),
    [
        ({"x": "1"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: x"),
        ({"interval.ms": "1h"}, ErrorCode.INVALID_CONFIG, "Invalid value 1h for configuration"),
        ({"interval.ms": "-1"}, ErrorCode.INVALID_REQUEST, "Invalid value -1 for interval.ms"),
        ({"match": "rack=a"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: rack=a"),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_a_refused_subscription(configs: dict[str, str], error: ErrorCode, message: str) -> None:
    with pytest.raises(TidemarkError, match=message) as refused:
        check_subscription(configs)
    assert refused.value.code is error


def test_patterns_are_split_at_the_sign() -> None:
    found = match_patterns("client_id = a.* , client_source_port=9.*")
    assert found == {"client_id": "a.*", "client_source_port": "9.*"}
