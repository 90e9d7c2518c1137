"""What a group may set for itself."""

import pytest
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.group_configs import GROUP_CONFIG_KEYS, group_config


def test_values_are_whole_numbers_of_milliseconds() -> None:
    configs = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    assert group_config(configs) == {
        "consumer.session.timeout.ms": 50_000,
        "consumer.heartbeat.interval.ms": 6_000,
    }


def test_keys_are_sorted_and_of_kafkas_type() -> None:
    assert list(GROUP_CONFIG_KEYS) == sorted(GROUP_CONFIG_KEYS)
    assert {key.kind.type_number for key in GROUP_CONFIG_KEYS.values()} == {3}


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"session.timeout.ms": "1"}, "Unknown group config name: session.timeout.ms"),
        ({"consumer.session.timeout.ms": "soon"}, "not a number of type INT"),
        ({"consumer.heartbeat.interval.ms": "0"}, "at least 1"),
        ({"consumer.session.timeout.ms": str(2**31)}, "at most 2147483647"),
        (
            {"consumer.session.timeout.ms": "5", "consumer.heartbeat.interval.ms": "5"},
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        ),
    ],
)
def test_what_cannot_be_is_refused(configs: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        group_config(configs)
