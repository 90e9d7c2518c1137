"""Kafka's settings and APIs beside ours, as the pages of the reference show them."""

import kafka_apis
import kafka_settings
import pytest
from tidemark.kafka.apis import APIS, INTERNAL_APIS, ApiKey
from tidemark.model.broker_configs import BROKER_CONFIG_KINDS
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS


def names(rows: object) -> set[str]:
    return {row[0].strip("`") for row in rows}  # type: ignore[attr-defined]


def test_every_setting_of_ours_stands_on_the_page() -> None:
    ours = {*kafka_settings.own_settings(), *TOPIC_CONFIG_KEYS, *BROKER_CONFIG_KINDS}
    shown = [kafka_settings.broker_rows(), kafka_settings.topic_rows(), kafka_settings.own_rows()]
    assert ours <= set.union(*map(names, shown))


def test_every_setting_of_kafka_has_a_state() -> None:
    rows = [*kafka_settings.broker_rows(), *kafka_settings.topic_rows()]
    assert len(rows) == len(kafka_settings.kafka_settings()) > 370
    states = ("works", "other name: ", "not applicable: ", "not there")
    assert [row for row in rows if not row[-1].startswith(states)] == []


def test_a_setting_without_a_reason_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"does not say why new\.setting"):
        kafka_settings.why_absent("new.setting")


def test_no_reason_is_about_a_setting_that_is_not_kafkas() -> None:
    kafkas = {one.name for one in kafka_settings.kafka_settings()}
    reasons = {kafka_settings.why_absent(one) for one in kafkas if _is_named(one)}
    assert reasons == set(kafka_settings.ABSENT.values())


def _is_named(name: str) -> bool:
    try:
        return bool(kafka_settings.why_absent(name))
    except LookupError:
        return False


@pytest.mark.parametrize(
    ("name", "here", "state"),
    [
        ("log.retention.ms", "run time", "works"),
        ("num.partitions", "start", "works"),
        ("max.connections", "run time", "works; default here: `10000`"),
        ("remote.log.reader.threads", "", "not there: tiered storage (KIP-405)"),
        ("log.dir", "", "other name: log.dirs"),
    ],
)
def test_a_setting_says_how_it_is_changed_here(name: str, here: str, state: str) -> None:
    (row,) = [row for row in kafka_settings.broker_rows() if row[0] == f"`{name}`"]
    assert row[-2:] == (here, state)


def test_every_dynamic_setting_is_shown_as_such() -> None:
    rows = [*kafka_settings.broker_rows(), *kafka_settings.own_rows()]
    found = {row[0].strip("`") for row in rows if "run time" in row[-2:] and "topic" not in row}
    assert set(BROKER_CONFIG_KINDS) <= found


@pytest.mark.parametrize(
    "row",
    [
        ("1", "Fetch", "4 to 18", "4 to 18", ""),
        ("4", "LeaderAndIsr", "none", "", "Kafka 4 does not have it either"),
    ],
)
def test_an_api_is_served_or_says_why_not(row: tuple[str, ...]) -> None:
    served = [key for key in ApiKey if key not in INTERNAL_APIS]
    assert row in list(kafka_apis.api_rows(served))


def test_an_api_that_is_neither_served_nor_explained_is_an_error() -> None:
    with pytest.raises(LookupError, match="does not say why Produce is not served"):
        list(kafka_apis.api_rows([]))


def test_we_serve_no_version_that_kafka_does_not_have() -> None:
    kafkas = {api.key: api for api in kafka_apis.kafka_apis()}
    for key, ours in APIS.items():
        assert ours.max <= kafkas[int(key)].version_max, key
