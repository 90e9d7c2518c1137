"""Settings: Kafka's names, defaults and bounds."""

import pytest
from broker.core.groups.settings import GroupSettings, MigrationPolicy
from tidemark.model.config_values import InvalidConfigError


def test_defaults_are_kafkas() -> None:
    defaults = GroupSettings()
    assert defaults.group_initial_rebalance_delay_ms == 3_000
    assert defaults.offset_metadata_max_bytes == 4_096
    assert defaults.offsets_retention_ms == 7 * 24 * 3_600_000
    assert defaults.group_consumer_assignors[0] == "uniform"


def test_policies_convert_one_way_or_both() -> None:
    ways = {one.value: (one.upgrades, one.downgrades) for one in MigrationPolicy}
    assert ways == {
        "disabled": (False, False),
        "upgrade": (True, False),
        "downgrade": (False, True),
        "bidirectional": (True, True),
    }
    assert GroupSettings().group_consumer_migration_policy is MigrationPolicy.BIDIRECTIONAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9},
        {"group_min_session_timeout_ms": 0},
        {"group_initial_rebalance_delay_ms": -1},
        {"group_max_size": 0},
        {"group_consumer_max_size": 0},
        {"group_consumer_session_timeout_ms": 5_000},
        {"group_consumer_assignors": ()},
        {"group_consumer_min_session_timeout_ms": 60_001},
        {"group_consumer_min_heartbeat_interval_ms": 0},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        GroupSettings(**wrong)  # type: ignore[arg-type]


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
CLOSE = GroupSettings(
    group_consumer_session_timeout_ms=10_000,
    group_consumer_min_session_timeout_ms=6_000,
    group_consumer_max_session_timeout_ms=20_000,
    group_consumer_max_heartbeat_interval_ms=12_000,
)


@pytest.mark.parametrize(
    ("configs", "in_force"),
    [
        ({}, (10_000, 5_000)),
        ({SESSION: "12000"}, (12_000, 5_000)),
        ({HEARTBEAT: "6000"}, (10_000, 6_000)),
        ({SESSION: "20000", HEARTBEAT: "12000"}, (20_000, 12_000)),
        ({SESSION: "7000", "share.session.timeout.ms": "1"}, (7_000, 5_000)),
        ({HEARTBEAT: "10000"}, (10_000, 5_000)),
        ({SESSION: "of a newer release"}, (10_000, 5_000)),
    ],
)
def test_what_a_group_sets_is_in_force_where_it_can_be(
    configs: dict[str, str], in_force: tuple[int, int]
) -> None:
    found = CLOSE.of_group(configs)
    shown = found.group_consumer_session_timeout_ms, found.group_consumer_heartbeat_interval_ms
    assert shown == in_force


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {SESSION: "6000"},
        {SESSION: "20000"},
        {HEARTBEAT: "5000"},
        {SESSION: "13000", HEARTBEAT: "12000"},
    ],
)
def test_what_a_group_sets_within_bounds_is_taken_as_it_is(configs: dict[str, str]) -> None:
    CLOSE.check_of_group(configs)
    found = CLOSE.of_group(configs)
    assert found.group_consumer_session_timeout_ms == int(configs.get(SESSION, "10000"))
    assert found.group_consumer_heartbeat_interval_ms == int(configs.get(HEARTBEAT, "5000"))


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({SESSION: "5999"}, f"{SESSION} must be .* equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "20001"}, f"{SESSION} must be .* to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, f"{HEARTBEAT} must be .* group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "12001"}, f"{HEARTBEAT} must be .* group.consumer.max.heartbeat.interval.ms"),
        ({HEARTBEAT: "10000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        ({"no.such.key": "1"}, "Unknown group config name: no.such.key"),
    ],
)
def test_what_is_out_of_bounds_is_refused(configs: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        CLOSE.check_of_group(configs)
