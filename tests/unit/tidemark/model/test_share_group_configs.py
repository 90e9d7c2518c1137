from dataclasses import replace
from typing import Any

import pytest
from tidemark.model.config_values import InvalidConfigError
from tidemark.model.share_group_configs import (
    SHARE_GROUP_CONFIG_KEYS,
    IsolationLevel,
    OffsetReset,
    ResetTo,
    ShareGroupOptions,
    share_group_config,
)

OPTIONS = ShareGroupOptions()
COMMITTED = IsolationLevel.READ_COMMITTED


def test_a_group_that_sets_nothing_has_the_options() -> None:
    found = OPTIONS.of_group({})
    assert found.session_timeout_ms == 45_000
    assert found.delivery_count_limit == 5
    assert found.auto_offset_reset == OffsetReset(ResetTo.LATEST)
    assert found.isolation_level is IsolationLevel.READ_UNCOMMITTED


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("share.session.timeout.ms", "50000", "session_timeout_ms", 50_000),
        ("share.heartbeat.interval.ms", "15000", "heartbeat_interval_ms", 15_000),
        ("share.record.lock.duration.ms", "15000", "record_lock_duration_ms", 15_000),
        ("share.delivery.count.limit", "10", "delivery_count_limit", 10),
        ("share.partition.max.record.locks", "100", "partition_max_record_locks", 100),
        ("share.auto.offset.reset", "earliest", "auto_offset_reset", (ResetTo.EARLIEST, 0)),
        (
            "share.isolation.level",
            "read_committed",
            "isolation_level",
            COMMITTED,
        ),
        ("share.renew.acknowledge.enable", "false", "renew_acknowledge_enable", False),
        ("errors.deadletterqueue.topic.name", "dlq.a", "dead_letter_topic", "dlq.a"),
        ("errors.deadletterqueue.copy.record.enable", "TRUE", "dead_letter_copy_record", True),
    ],
)
def test_a_groups_own_value_is_in_force(name: str, text: str, field: str, value: Any) -> None:
    OPTIONS.check_of_group({name: text})
    assert getattr(OPTIONS.of_group({name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("share.session.timeout.ms", "44999", "equal to group.share.min.session.timeout.ms"),
        ("share.heartbeat.interval.ms", "15001", "equal to group.share.max.heartbeat.interval.ms"),
        ("share.record.lock.duration.ms", "60001", "max.record.lock.duration.ms"),
        ("share.delivery.count.limit", "1", "group.share.min.delivery.count.limit"),
        ("share.delivery.count.limit", "eleven", "not a number of type INT"),
        ("share.partition.max.record.locks", "99", "min.partition.max.record.locks"),
        ("share.auto.offset.reset", "none", "must be latest, earliest or by_duration"),
        ("share.auto.offset.reset", "by_duration:1h", "PnDTnHnMn.nS"),
        ("share.isolation.level", "committed", "read_uncommitted, read_committed"),
        ("share.renew.acknowledge.enable", "yes", "true or false"),
        ("errors.deadletterqueue.topic.name", "a b", "only ASCII letters"),
        ("share.session.timeout", "1", "Unknown group config name: share.session.timeout"),
    ],
)
def test_a_bad_value_is_refused_with_a_reason(name: str, text: str, problem: str) -> None:
    with pytest.raises(InvalidConfigError, match=problem):
        OPTIONS.check_of_group({name: text})


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P3D", 259_200_000),
        ("PT1H2M3.5S", 3_723_500),
        ("p1dt1s", 86_401_000),
        ("PT0S", 0),
        ("PT0.0019S", 1),
    ],
)
def test_durations_are_iso_8601(text: str, duration_ms: int) -> None:
    found = share_group_config({"share.auto.offset.reset": f"by_duration:{text}"})
    assert found["share.auto.offset.reset"] == OffsetReset(ResetTo.BY_DURATION, duration_ms)


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "", "-PT1S", "P1Y", "PT1", "1D", "PT.5S"])
def test_other_durations_are_none(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="is no duration"):
        share_group_config({"share.auto.offset.reset": f"by_duration:{text}"})


def test_a_session_must_outlast_a_heartbeat_interval() -> None:
    wide = replace(OPTIONS, group_share_max_heartbeat_interval_ms=60_000)
    with pytest.raises(InvalidConfigError, match=r"must be greater than share\.heartbeat"):
        wide.check_of_group({"share.heartbeat.interval.ms": "45000"})


def test_values_that_do_not_hold_together_count_as_not_set() -> None:
    configs = {"share.heartbeat.interval.ms": "45000", "share.delivery.count.limit": "7"}
    assert OPTIONS.of_group(configs) == OPTIONS.of_group({})
    assert OPTIONS.of_group({"share.of.a.newer.release": "1"}) == OPTIONS.of_group({})


def test_keys_are_sorted() -> None:
    assert list(SHARE_GROUP_CONFIG_KEYS) == sorted(SHARE_GROUP_CONFIG_KEYS)


def test_the_default_of_a_key_without_an_option_is_the_value_in_force() -> None:
    own = {key.name: key.default for key in SHARE_GROUP_CONFIG_KEYS.values() if not key.bounded}
    options = ShareGroupOptions()
    assert options.of_group(own) == options.of_group({})
