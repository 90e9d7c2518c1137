"""Settings in force: per broker, cluster-wide, at the start."""

from dataclasses import fields

import pytest
from broker.config import BrokerConfig
from broker.core.live_settings import LiveSettings, settings_in_force
from tidemark.model.broker_configs import OWN_KINDS
from tidemark.model.ids import BrokerId

NAME = "producer.id.expiration.ms"
AT_START = BrokerConfig(broker_id=1, producer_id_expiration_ms=7_000)


def in_force(**by_owner: str) -> LiveSettings:
    configs = {owner.replace("all", "").lstrip("b"): {NAME: v} for owner, v in by_owner.items()}
    return settings_in_force(AT_START, configs, BrokerId(1))


@pytest.mark.parametrize(
    ("by_owner", "expected"),
    [
        ({}, 7_000),
        ({"all": "8000"}, 8_000),
        ({"all": "8000", "b1": "9000"}, 9_000),
        ({"all": "8000", "b2": "9000"}, 8_000),
        ({"all": "8000", "b1": "soon"}, 8_000),
        ({"all": "0"}, 7_000),
    ],
)
def test_the_strongest_valid_setting_counts(by_owner: dict[str, str], expected: int) -> None:
    assert in_force(**by_owner).producer_id_expiration_ms == expected


def test_every_dynamic_setting_of_its_own_is_in_force() -> None:
    throttles = {name for name in OWN_KINDS if name.endswith("throttled.rate")}  # throttles.py
    live = {each.name.replace("_", ".") for each in fields(LiveSettings)}
    assert live == OWN_KINDS.keys() - throttles


def test_every_setting_is_read_as_its_own() -> None:
    texts = {
        name: "a:3" if name.endswith("overrides") else str(2_000 + number)
        for number, name in enumerate(OWN_KINDS)
    }
    settings = settings_in_force(AT_START, {"1": texts}, BrokerId(1))
    for each in fields(LiveSettings):
        value, text = getattr(settings, each.name), texts[each.name.replace("_", ".")]
        assert value == ({"a": 3} if text == "a:3" else int(text))
