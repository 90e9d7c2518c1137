import pytest
from broker.config import BrokerConfig
from broker.shell.kafka.broker_configs import (
    ConfigSource,
    ShownConfig,
    broker_configs_shown,
    cluster_configs_shown,
    shown_text,
    topic_configs_shown,
)
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS

BROKER = BrokerId(1)
CONFIG = BrokerConfig(broker_id=1, log_retention_ms="1000", log_dirs=("a", "b"))


def image(**broker_configs: dict[str, str]) -> ClusterImage:
    """Dynamic configuration: ``all`` for every broker, ``b1`` for broker 1."""
    names = {"all": "", "b1": "1"}
    return ClusterImage(broker_configs={names[key]: set_ for key, set_ in broker_configs.items()})


def named(shown: list[ShownConfig], name: str) -> ShownConfig:
    return next(config for config in shown if config.name == name)


def test_every_topic_key_is_shown_in_order_with_its_default() -> None:
    shown = topic_configs_shown(BrokerConfig(broker_id=1), image(), BROKER, {})
    assert [config.name for config in shown] == sorted(TOPIC_CONFIG_KEYS)
    assert all(config.source is ConfigSource.DEFAULT for config in shown)
    assert {config.name: config.value for config in shown} == {
        key.name: key.default for key in TOPIC_CONFIG_KEYS.values()
    }


@pytest.mark.feature("A17")
def test_the_strongest_setting_is_in_force_and_the_others_stand_behind_it() -> None:
    dynamic = image(all={"log.retention.ms": "2000"}, b1={"log.retention.ms": "3000"})
    shown = topic_configs_shown(CONFIG, dynamic, BROKER, {"retention.ms": "4000"})
    assert [setting[:3] for setting in named(shown, "retention.ms").settings] == [
        ("retention.ms", "4000", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "3000", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.ms", "1000", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("options", "value", "settings"),
    [
        ({}, "604800000", [("log.retention.hours", "168", 5)]),
        (
            {"log_retention_hours": 2},
            "7200000",
            [("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)],
        ),
        (
            {"log_retention_hours": 2, "log_retention_minutes": -1},
            "-1",
            [
                ("log.retention.minutes", "-1", 4),
                ("log.retention.hours", "2", 4),
                ("log.retention.hours", "168", 5),
            ],
        ),
    ],
)
def test_times_in_minutes_and_hours_are_synonyms(
    options: dict[str, int], value: str, settings: list[tuple[str, str, int]]
) -> None:
    config = BrokerConfig(broker_id=1, **options)  # type: ignore[arg-type]
    shown = named(topic_configs_shown(config, image(), BROKER, {}), "retention.ms")
    assert (shown.value, [one[:3] for one in shown.settings]) == (value, settings)


def test_the_round_s_interval_is_no_default_of_flush_ms_unless_set_while_running() -> None:
    config = BrokerConfig(broker_id=1, log_flush_interval_ms=500)
    key = named(broker_configs_shown(config, image(), BROKER), "log.flush.interval.ms")
    assert (key.value, key.source) == ("500", ConfigSource.STATIC_BROKER)
    flush = named(topic_configs_shown(config, image(), BROKER, {}), "flush.ms")
    assert (flush.value, flush.source) == (str(2**63 - 1), ConfigSource.DEFAULT)
    dynamic = image(all={"log.flush.interval.ms": "700"})
    flush = named(topic_configs_shown(config, dynamic, BROKER, {}), "flush.ms")
    assert (flush.value, flush.source) == ("700", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_broker_shows_what_it_was_started_with_and_what_can_change() -> None:
    shown = broker_configs_shown(CONFIG, image(), BROKER)
    dirs, retention = named(shown, "log.dirs"), named(shown, "log.retention.ms")
    assert (dirs.value, dirs.source, dirs.read_only) == ("a,b", ConfigSource.STATIC_BROKER, True)
    assert (retention.value, retention.read_only, retention.type_number) == ("1000", False, 5)
    assert all(config.doc for config in shown)


def test_all_brokers_together_show_only_what_is_set_for_all() -> None:
    dynamic = image(all={"log.retention.ms": "2000", "from.a.newer.release": "x"})
    shown = cluster_configs_shown(BrokerConfig, dynamic)
    assert [(one.name, one.value, one.source) for one in shown] == [
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (("a", "b"), "a,b"), (42, "42"), (None, None), ({"a": 1}, "a:1")],
)
def test_values_are_spelled_as_kafka_spells_them(value: object, text: str | None) -> None:
    assert shown_text(value) == text
