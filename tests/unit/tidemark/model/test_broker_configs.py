"""Settings of a broker that may change while it runs."""

import pytest
from tidemark.model.broker_configs import (
    BROKER_CONFIG_KINDS,
    OVERRIDES_MAX,
    connections_by_address,
    contradiction,
)
from tidemark.model.config_values import InvalidConfigError


def test_addresses_are_read_with_their_counts() -> None:
    read = connections_by_address("127.0.0.1:3, [::1]:0,host:2147483647,")
    assert read == {"127.0.0.1": 3, "::1": 0, "host": 2147483647}


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:-1", "a:2147483648"])
def test_an_address_without_a_count_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError):
        connections_by_address(text)


def test_addresses_are_bounded() -> None:
    with pytest.raises(InvalidConfigError, match="at most 1000"):
        connections_by_address(",".join(["a:1"] * (OVERRIDES_MAX + 1)))


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"max.connections.per.ip": "0"}, "only if"),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "a:1"}, ""),
        ({"max.connections.per.ip": "1"}, ""),
        ({}, ""),
    ],
)
def test_nobody_may_connect_only_with_exceptions(configs: dict[str, str], words: str) -> None:
    assert words in (contradiction(configs) or "")
    assert (contradiction(configs) is None) == (words == "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.cleaner.io.max.bytes.per.second", "0"),
        ("log.cleaner.backoff.ms", "-1"),
        ("max.connections", "0"),
        ("producer.id.expiration.ms", "x"),
        ("log.segment.bytes", "1"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError):
        BROKER_CONFIG_KINDS[name].parse(text)


def test_kafkas_default_of_the_rate_of_compaction_is_valid() -> None:
    BROKER_CONFIG_KINDS["log.cleaner.io.max.bytes.per.second"].parse("1.7976931348623157E308")
