import pytest
from controller.core.cluster import Change, Cluster
from controller.core.configs import decide_alter_configs
from controller.core.effects import ConfigResult
from controller.core.inputs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    RequestHeader,
)
from tidemark.model.errors import ErrorCode
from unit.controller.worlds import NEVER, a_cluster, a_topic, applied

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT
TOPIC, BROKER, GROUP = 2, 4, 32
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


def alter(
    cluster: Cluster, *resources: ConfigResource, validate_only: bool = False
) -> tuple[Change | None, tuple[ConfigResult, ...]]:
    return decide_alter_configs(
        cluster, AlterConfigs(RequestHeader(1, NEVER), resources, validate_only)
    )


def topic(*changes: ConfigChange, replace_all: bool = False) -> ConfigResource:
    return ConfigResource(TOPIC, "a", changes, replace_all)


def a_cluster_with(**configs: str) -> Cluster:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return a_cluster(a_topic("a", (1,), configs=named))


def topic_configs_after(cluster: Cluster, resource: ConfigResource) -> dict[str, str]:
    change, (result,) = alter(cluster, resource)
    assert result.error is ErrorCode.NONE, result.message
    if change is not None:
        applied(cluster, change)
    return dict(cluster.image.topics["a"].configs)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ConfigChange("retention.ms", SET, "5"),
            {"cleanup.policy": "compact", "retention.ms": "5"},
        ),
        (ConfigChange("cleanup.policy", DELETE), {}),
        (ConfigChange("cleanup.policy", APPEND, "delete"), {"cleanup.policy": "compact,delete"}),
        (ConfigChange("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        (ConfigChange("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": "compact"}),
        (ConfigChange("retention.ms", DELETE), {"cleanup.policy": "compact"}),
    ],
)
def test_each_operation_does_what_its_name_says(
    change: ConfigChange, expected: dict[str, str]
) -> None:
    assert topic_configs_after(a_cluster_with(cleanup_policy="compact"), topic(change)) == expected


def test_appending_starts_from_the_default() -> None:
    configs = topic_configs_after(
        a_cluster_with(), topic(ConfigChange("cleanup.policy", APPEND, "compact"))
    )
    assert configs == {"cleanup.policy": "delete,compact"}


def test_replacing_all_unsets_keys_that_are_not_named() -> None:
    change = ConfigChange("retention.ms", SET, "5")
    configs = topic_configs_after(
        a_cluster_with(cleanup_policy="compact"), topic(change, replace_all=True)
    )
    assert configs == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("resource", "code", "words"),
    [
        (topic(ConfigChange("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG, "LONG"),
        (
            topic(ConfigChange("retention.ms", SET, "9" * 5_000)),
            ErrorCode.INVALID_CONFIG,
            "at most",
        ),
        (topic(ConfigChange("retention", SET, "1")), ErrorCode.INVALID_CONFIG, "retention"),
        (topic(ConfigChange("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG, "not LIST"),
        (
            topic(ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", DELETE)),
            ErrorCode.INVALID_REQUEST,
            "duplicate config keys",
        ),
        (
            topic(ConfigChange("follower.replication.throttled.replicas", SET, "0:1," * 9_000)),
            ErrorCode.INVALID_CONFIG,
            "more than 32767 bytes",
        ),
        (ConfigResource(TOPIC, "b", ()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (ConfigResource(8, "a", ()), ErrorCode.INVALID_REQUEST, "resource type 8"),
        (ConfigResource(BROKER, "one", ()), ErrorCode.INVALID_REQUEST, "must be an integer"),
        (
            ConfigResource(BROKER, "7", ()),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No broker with id 7",
        ),
        (
            ConfigResource(BROKER, "9" * 5_000, ()),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No broker with id 9",
        ),
        (ConfigResource(BROKER, "01", ()), ErrorCode.BROKER_ID_NOT_REGISTERED, "No broker with"),
        (
            ConfigResource(BROKER, "", (ConfigChange("log.dir", SET, "/x"),)),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.dir]",
        ),
        (
            ConfigResource(BROKER, "", (ConfigChange("max.connections.per.ip", SET, "0"),)),
            ErrorCode.INVALID_REQUEST,
            "only if max.connections.per.ip.overrides property is set",
        ),
        (
            ConfigResource(BROKER, "1", (ConfigChange("log.retention.ms", SET, "x"),)),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration log.retention.ms",
        ),
        (ConfigResource(GROUP, "", ()), ErrorCode.INVALID_REQUEST, "Default group"),
        (ConfigResource(GROUP, "g" * 256, ()), ErrorCode.INVALID_REQUEST, "more than 255 bytes"),
        (
            ConfigResource(GROUP, "g", (ConfigChange("session.timeout.ms", SET, "1"),)),
            ErrorCode.INVALID_CONFIG,
            "Unknown group config name: session.timeout.ms",
        ),
        (
            ConfigResource(GROUP, "g", (ConfigChange(SESSION, APPEND, "1"),)),
            ErrorCode.INVALID_CONFIG,
            "not LIST",
        ),
        (
            ConfigResource(BROKER, "1", (ConfigChange("min.insync.replicas", SET, "1"),)),
            ErrorCode.INVALID_CONFIG,
            "for a topic or for all brokers, not for one",
        ),
    ],
)
def test_an_invalid_change_is_refused(
    resource: ConfigResource, code: ErrorCode, words: str
) -> None:
    change, (result,) = alter(a_cluster_with(), resource)
    assert (change, result.error) == (None, code)
    assert words in result.message


@pytest.mark.parametrize("name", ["", "1"])
def test_brokers_are_configured_one_by_one_or_all_at_once(name: str) -> None:
    resource = ConfigResource(BROKER, name, (ConfigChange("log.retention.ms", SET, "5"),))
    cluster = a_cluster_with()
    change, _ = alter(cluster, resource)
    applied(cluster, change)
    assert cluster.image.broker_configs == {name: {"log.retention.ms": "5"}}


def group(name: str, *changes: ConfigChange) -> ConfigResource:
    return ConfigResource(GROUP, name, changes)


def test_a_group_sets_and_unsets_whether_it_exists_or_not() -> None:
    cluster = a_cluster()
    change, _ = alter(cluster, group("g", ConfigChange(SESSION, SET, "50000")))
    applied(cluster, change)
    change, _ = alter(cluster, group("g", ConfigChange(HEARTBEAT, SET, "6000")))
    applied(cluster, change)
    assert cluster.image.group_configs == {"g": {SESSION: "50000", HEARTBEAT: "6000"}}
    unset = [ConfigChange(name, DELETE) for name in (SESSION, HEARTBEAT)]
    change, _ = alter(cluster, group("g", *unset))
    applied(cluster, change)
    assert cluster.image.group_configs == {}


def test_a_share_group_sets_its_own_keys() -> None:
    cluster = a_cluster()
    name = "share.auto.offset.reset"
    change, _ = alter(cluster, group("g", ConfigChange(name, SET, "earliest")))
    applied(cluster, change)
    assert cluster.image.group_configs == {"g": {name: "earliest"}}
    _, (result,) = alter(cluster, group("g", ConfigChange(name, SET, "soon")))
    assert result.error is ErrorCode.INVALID_CONFIG


def test_two_changes_of_a_group_must_hold_together() -> None:
    cluster = a_cluster()
    change, _ = alter(cluster, group("g", ConfigChange(SESSION, SET, "6000")))
    applied(cluster, change)
    _, (result,) = alter(cluster, group("g", ConfigChange(HEARTBEAT, SET, "6000")))
    assert (result.error, "must be greater" in result.message) == (ErrorCode.INVALID_CONFIG, True)


def test_no_more_than_so_many_groups_set_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.core.configs.GROUPS_MAX", 2)
    setting = ConfigChange(SESSION, SET, "50000")
    _, results = alter(a_cluster(), *(group(name, setting) for name in "abc"))
    assert [result.error for result in results] == [0, 0, ErrorCode.POLICY_VIOLATION]


def subscription(name: str, **configs: str) -> ConfigResource:
    changes = [ConfigChange(key.replace("_", "."), SET, text) for key, text in configs.items()]
    return ConfigResource(16, name, tuple(changes))


@pytest.mark.feature("AD90")
def test_a_subscription_to_client_metrics_is_made_and_removed() -> None:
    cluster = a_cluster()
    change, _ = alter(cluster, subscription("s", metrics="org.apache.kafka.", interval_ms="100"))
    applied(cluster, change)
    expected = {"metrics": "org.apache.kafka.", "interval.ms": "100"}
    assert cluster.image.client_metrics == {"s": expected}
    unset = [ConfigChange(name, DELETE) for name in expected]
    change, _ = alter(cluster, ConfigResource(16, "s", tuple(unset)))
    applied(cluster, change)
    assert cluster.image.client_metrics == {}


@pytest.mark.parametrize(
    ("name", "configs", "error", "message"),
    [
        ("", {"metrics": "*"}, ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        ("s" * 256, {"metrics": "*"}, ErrorCode.INVALID_REQUEST, "may have 255 bytes"),
        ("s", {"interval_ms": "99"}, ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
    ],
)
def test_a_subscription_is_refused(
    name: str, configs: dict[str, str], error: ErrorCode, message: str
) -> None:
    change, (result,) = alter(a_cluster(), subscription(name, **configs))
    assert (change, result.error, message in result.message) == (None, error, True)


def test_there_is_a_bound_on_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.core.configs.SUBSCRIPTIONS_MAX", 2)
    _, results = alter(a_cluster(), *(subscription(name, metrics="*") for name in "abc"))
    assert [result.error for result in results] == [0, 0, ErrorCode.POLICY_VIOLATION]


def test_a_topics_keys_must_agree_with_the_brokers_defaults() -> None:
    configs = {"": {"log.cleaner.max.compaction.lag.ms": "10"}}
    cluster = a_cluster(a_topic("a", (1,)), configs=configs)
    _, (result,) = alter(cluster, topic(ConfigChange("min.compaction.lag.ms", SET, "11")))
    assert result.error is ErrorCode.INVALID_CONFIG


def test_a_resource_named_twice_is_refused_both_times() -> None:
    change, results = alter(a_cluster_with(), topic(), topic())
    assert change is None
    assert {result.error for result in results} == {ErrorCode.INVALID_REQUEST}


def test_validating_only_and_changing_nothing_write_nothing() -> None:
    setting = topic(ConfigChange("retention.ms", SET, "5"))
    assert alter(a_cluster_with(), setting, validate_only=True)[0] is None
    assert alter(a_cluster_with(retention_ms="5"), setting)[0] is None
