"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.kafka.conftest import Ask, StubController

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, object]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.feature("A17")
def test_a_topic_shows_its_settings_and_what_stands_behind_them(ask: Ask, version: int) -> None:
    fields = {
        "resources": [resource(TOPIC, "orders", ["retention.ms", "no.such.key"])],
        "include_synonyms": True,
        "include_documentation": True,
    }
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields, version).results
    (config,) = result.configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "5", 1)
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.hours", "168", 5),
    ]
    if version >= 3:
        assert (config.config_type, bool(config.documentation)) == (5, True)


@pytest.mark.feature("A19")
def test_a_compacted_topic_says_so(ask: Ask) -> None:
    fields = {"resources": [resource(TOPIC, "compacted", ["cleanup.policy"])]}
    (config,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results[0].configs
    assert (config.value, config.config_type, config.synonyms) == ("compact", 7, [])
    assert config.documentation is None


def test_a_broker_shows_all_its_keys_and_the_cluster_only_what_is_set(ask: Ask) -> None:
    fields = {"resources": [resource(BROKER, "1"), resource(BROKER, "")]}
    own, all_brokers = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    values = {config.name: config.value for config in own.configs}
    assert (values["broker.id"], values["log.segment.bytes"]) == ("1", "2097152")
    assert [config.name for config in all_brokers.configs] == ["log.segment.bytes"]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_here_is_refused_and_the_rest_answered(
    ask: Ask, kind: int, name: str, error: ErrorCode
) -> None:
    fields = {"resources": [resource(kind, name), resource(TOPIC, "orders")]}
    refused, answered = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    assert (refused.error_code, refused.configs) == (error, [])
    assert (refused.resource_type, refused.resource_name) == (kind, name)
    assert answered.error_code == 0


def test_a_group_shows_its_settings_and_what_stands_behind_them(ask: Ask) -> None:
    names = ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"]
    asked = {**resource(GROUP, "billing"), "configuration_keys": names}
    fields = {"resources": [asked], "include_synonyms": True}
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    shown = {one.name: (one.value, one.config_source, one.config_type) for one in result.configs}
    assert shown == {
        "consumer.session.timeout.ms": ("50000", 8, 3),
        "consumer.heartbeat.interval.ms": ("5000", 5, 3),
    }
    assert [(one.name, one.value, one.source) for one in result.configs[1].synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


def test_a_group_that_sets_nothing_shows_the_brokers_settings(ask: Ask) -> None:
    fields = {"resources": [resource(GROUP, "nobody yet")]}
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    of_members = [one.value for one in result.configs if "session" in one.name]
    assert of_members == ["45000", "45000"]


def test_a_group_shows_the_keys_of_share_groups(ask: Ask) -> None:
    fields = {"resources": [resource(GROUP, "nobody yet")]}
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    names = [one.name for one in result.configs]
    assert (names, len(names)) == (sorted(names), 15)
    shown = {one.name: (one.value, one.config_source, one.config_type) for one in result.configs}
    assert shown["share.auto.offset.reset"] == ("latest", 5, 2)
    assert shown["share.record.lock.duration.ms"] == ("30000", 5, 3)
    assert shown["share.renew.acknowledge.enable"] == ("true", 5, 1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("consumer.session.timeout.ms", "44999", "group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
        ("consumer.session.timeout.ms", "x", "not a number of type INT"),
        ("no.such.key", "1", "Unknown group config name: no.such.key"),
        ("share.session.timeout.ms", "44999", "group.share.min.session.timeout.ms"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("share.auto.offset.reset", "by_duration:x", "no duration of the form"),
    ],
)
def test_a_groups_settings_are_judged_by_the_broker_that_is_asked(
    ask: Ask, controller: StubController, name: str, value: str, words: str
) -> None:
    asked = {"resource_type": GROUP, "resource_name": "g", "configs": [change(name, 0, value)]}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]}).responses
    assert (result.error_code, controller.asked) == (ErrorCode.INVALID_CONFIG, [])
    assert words in result.error_message


@pytest.mark.parametrize("name", ["consumer.session.timeout.ms", "share.record.lock.duration.ms"])
def test_a_groups_settings_within_bounds_are_relayed(
    ask: Ask, controller: StubController, name: str
) -> None:
    controller.answers["AlterConfigs"] = pb.AlterConfigsResponse(
        position=SEEN,
        results=[pb.AlterConfigsResponse.Result(resource_type=GROUP, resource_name="billing")],
    )
    configs = [change(name, 0, "50000")]
    asked = {"resource_type": GROUP, "resource_name": "billing", "configs": configs}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]}).responses
    (relayed,) = controller.asked[0][1].resources
    assert (result.error_code, relayed.resource_type) == (0, GROUP)


def altered(name: str, error_code: int = 0, message: str = "") -> pb.AlterConfigsResponse:
    result = pb.AlterConfigsResponse.Result(
        resource_type=TOPIC, resource_name=name, error_code=error_code, error_message=message
    )
    return pb.AlterConfigsResponse(position=SEEN, results=[result])


def change(name: str, operation: int, value: str | None) -> dict[str, object]:
    return {"name": name, "config_operation": operation, "value": value}


@pytest.mark.parametrize("version", [0, 1])
def test_incremental_changes_are_relayed_one_by_one(
    ask: Ask, controller: StubController, version: int
) -> None:
    controller.answers["AlterConfigs"] = altered("orders")
    configs = [
        change("retention.ms", 0, "1"),
        change("cleanup.policy", 2, "compact"),
        change("segment.ms", 1, None),
    ]
    fields = {"resources": [{**resource(TOPIC, "orders"), "configs": configs}]}
    del fields["resources"][0]["configuration_keys"]
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, version).responses
    (asked,) = controller.asked[0][1].resources
    assert (result.error_code, result.resource_name, asked.replace_all) == (0, "orders", False)
    assert [(one.name, one.operation, one.value) for one in asked.changes] == [
        ("retention.ms", 0, "1"),
        ("cleanup.policy", 2, "compact"),
        ("segment.ms", 1, ""),
    ]


@pytest.mark.parametrize("version", range(3))
def test_the_old_alter_replaces_everything(
    ask: Ask, controller: StubController, version: int
) -> None:
    controller.answers["AlterConfigs"] = altered("orders", 40, "Invalid value x")
    topic = {"resource_type": TOPIC, "resource_name": "orders"}
    fields = {"resources": [{**topic, "configs": [{"name": "retention.ms", "value": "x"}]}]}
    (result,) = ask(ApiKey.ALTER_CONFIGS, fields, version).responses
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Invalid value x",
    )
    assert controller.asked[0][1].resources[0].replace_all


@pytest.mark.parametrize(
    ("kind", "name", "configs", "words"),
    [
        (TOPIC, "t", [change("a", 0, None)], "Null value not supported for : a"),
        (TOPIC, "t", [change("a", 0, "1"), change("a", 0, "2")], "duplicate config keys"),
        (TOPIC, "t", [change("a", 9, "1")], "Unknown operation type 9 for config a"),
        (BROKER, "one", [], "Broker id must be an integer, but it is: one"),
        (LOGGER, "2", [], "Unexpected node id. Expected 1, but received 2"),
        (LOGGER, "--1", [], "Node id must be an integer, but it is: --1"),
        (GROUP, "", [], "Default group resources are not allowed."),
    ],
)
def test_what_cannot_be_asked_is_refused_here(
    ask: Ask,
    controller: StubController,
    kind: int,
    name: str,
    configs: list[dict[str, object]],
    words: str,
) -> None:
    asked = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked]}).responses
    assert (result.error_code, controller.asked) == (ErrorCode.INVALID_REQUEST, [])
    assert words in result.error_message


def test_a_resource_given_twice_is_refused_once(ask: Ask, controller: StubController) -> None:
    asked = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked, asked]}).responses
    assert result.error_message == "Each resource must appear at most once."


@pytest.mark.parametrize(
    ("version", "types", "expected"),
    [
        (0, [], [("all", 16)]),
        (1, [TOPIC], [("compacted", 2), ("orders", 2)]),
        (1, [GROUP], [("billing", 32)]),
        (
            1,
            [],
            [
                *(("compacted", 2), ("orders", 2)),
                *(("1", 4), ("2", 4), ("3", 4), ("1", 8), ("2", 8), ("3", 8)),
                ("all", 16),
                ("billing", 32),
            ],
        ),
    ],
)
def test_resources_with_configuration_are_listed_by_type(
    ask: Ask, version: int, types: list[int], expected: list[tuple[str, int]]
) -> None:
    fields = {"resource_types": types} if version else {}
    answer = ask(ApiKey.LIST_CONFIG_RESOURCES, fields, version)
    assert answer.error_code == 0
    assert [(one.resource_name, one.resource_type) for one in answer.config_resources] == expected


def test_an_unknown_type_of_resource_is_refused(ask: Ask) -> None:
    answer = ask(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": [99]})
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.feature("AD90")
def test_a_subscription_is_described_with_its_sources(ask: Ask) -> None:
    resource = {"resource_type": 16, "resource_name": "all", "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (result,) = ask(ApiKey.DESCRIBE_CONFIGS, fields).results
    found = [(one.name, one.value, one.config_source) for one in result.configs]
    assert found == [("interval.ms", "1000", 7), ("match", "", 5), ("metrics", "*", 7)]


@pytest.mark.parametrize("operation", [0, 2])
def test_a_pattern_that_is_none_is_refused_before_the_controller_is_asked(
    ask: Ask, operation: int
) -> None:
    change = {"name": "match", "config_operation": operation, "value": "client_id=a(b"}
    resource = {"resource_type": 16, "resource_name": "all", "configs": [change]}
    (result,) = ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "Illegal client matching pattern: client_id=a(b" in result.error_message
