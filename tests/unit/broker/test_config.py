"""The broker's configuration: listeners, defaults of topics, and what is refused."""

from typing import Any

import pytest
from broker.config import BrokerConfig, Listener
from tidemark.runtime.service_config import ConfigError, load


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(**{"broker_id": 1, **settings})


def test_listeners_are_named_and_may_be_advertised_otherwise() -> None:
    made = config(
        listeners="CLIENT://:9092,INTERNAL://127.0.0.1:0",
        advertised_listeners="CLIENT://kafka.example:19092",
    )
    assert made.parsed_listeners()[0] == Listener("CLIENT", "0.0.0.0", 9092)
    client, internal = made.endpoints({"INTERNAL": 5555})
    assert (client.host, client.port) == ("kafka.example", 19092)
    assert (internal.host, internal.port) == ("127.0.0.1", 5555)


def test_topic_defaults_have_kafkas_broker_names() -> None:
    made = load(
        BrokerConfig,
        ["--broker.id", "1", "--log.retention.ms", "1000", "--message.max.bytes=2000"],
        "X_",
        {},
    )
    assert made.topic_defaults() == {"retention.ms": "1000", "max.message.bytes": "2000"}
    assert config(log_preallocate=True).topic_defaults() == {"preallocate": "true"}


@pytest.mark.parametrize(
    "argv",
    [
        ["--listeners", "CLIENT:9092"],
        ["--listeners", "A://h:1,A://h:2"],
        ["--advertised.listeners", "NOBODY://h:1"],
        ["--log.retention.ms", "soon"],
        ["--max.connections", "0"],
        ["--log.dir", "typo"],
    ],
)
def test_bad_settings_are_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError):
        load(BrokerConfig, ["--broker.id", "1", *argv], "X_", {})


@pytest.mark.feature("G03", "G08")
def test_followers_lag_for_ten_seconds_and_poll_for_half_a_second_by_default() -> None:
    config = BrokerConfig(broker_id=1)
    assert config.replica_lag_time_max_ms == 10_000
    assert config.replica_fetch_wait_max_ms == 500
