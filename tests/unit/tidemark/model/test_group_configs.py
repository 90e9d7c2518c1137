"""What a group may set for itself."""

import pytest
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.group_configs import (
    GROUP_CONFIG_KEYS,
    GROUP_CONFIG_KINDS,
    check_values,
    group_config,
    split,
)
from tidemark.model.share_group_configs import SHARE_GROUP_CONFIG_KEYS


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


def test_a_group_may_have_keys_of_both_types() -> None:
    configs = {"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "earliest"}
    check_values(configs)
    assert [list(one) for one in split(configs)] == [[name] for name in configs]
    assert GROUP_CONFIG_KINDS.keys() == {*GROUP_CONFIG_KEYS, *SHARE_GROUP_CONFIG_KEYS}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("share.auto.offset.reset", "soon", "must be latest, earliest or by_duration"),
        ("consumer.session.timeout.ms", "soon", "not a number of type INT"),
        ("share.no.such.key", "1", "Unknown group config name: share.no.such.key"),
    ],
)
def test_values_of_both_types_are_checked(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        check_values({name: text})
