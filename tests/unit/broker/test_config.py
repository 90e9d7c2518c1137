"""The broker's configuration: listeners, defaults of topics, and what is refused."""

import re
from typing import Any

import pytest
from broker.config import BrokerConfig
from broker.listener_address import Listener
from broker.shell.kafka.broker_configs import broker_keys
from pydantic import ValidationError
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


def test_the_finest_name_of_a_time_counts() -> None:
    hours = {"log_retention_hours": 3, "log_roll_hours": 2, "log_roll_jitter_hours": 1}
    assert config(**hours).topic_defaults() == {
        "retention.ms": "10800000",
        "segment.ms": "7200000",
        "segment.jitter.ms": "3600000",
    }
    finer = config(**hours, log_retention_minutes=5, log_roll_ms=9).topic_defaults()
    assert (finer["retention.ms"], finer["segment.ms"]) == ("300000", "9")


def protocols(**settings: Any) -> list[str]:
    made = config(ssl_certificate_location="tls.crt", **settings)
    return [one.security_protocol for one in made.parsed_listeners()]


def test_a_listener_speaks_tls_by_the_map_or_by_its_name() -> None:
    both = "CLIENT://h:1,SSL://h:2"
    assert protocols(listeners=both) == ["PLAINTEXT", "SSL"]
    mapped = {"listener_security_protocol_map": "CLIENT:SSL, SSL:plaintext"}
    assert protocols(listeners=both, **mapped) == ["SSL", "PLAINTEXT"]
    points = config(listeners=both, ssl_certificate_location="tls.crt").endpoints()
    assert [point.security_protocol for point in points] == ["PLAINTEXT", "SSL"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listeners": "SSL://h:1"}, "SSL needs ssl.certificate.location"),
        ({"listeners": "SASL_SSL://h:1"}, "with SSL or SASL_SSL needs ssl.certificate.location"),
        ({"sasl_enabled_mechanisms": "GSSAPI"}, "GSSAPI is not served"),
        (
            {"listeners": "SASL_PLAINTEXT://h:1", "sasl_enabled_mechanisms": "PLAIN"},
            "listener SASL_PLAINTEXT with SASL_PLAINTEXT: PLAIN would show secrets to the network",
        ),
        (
            {"listener_security_protocol_map": "CLIENT:TLS"},
            "CLIENT: TLS is not a security protocol",
        ),
        ({"sasl_oauthbearer_algorithms": "HS256"}, "HS256 is not accepted"),
        (
            {
                "listeners": "SASL_SSL://h:1",
                "ssl_certificate_location": "tls.crt",
                "sasl_enabled_mechanisms": "OAUTHBEARER",
            },
            "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url",
        ),
        ({"listener_security_protocol_map": "CLIENT"}, "expected NAME:PROTOCOL, not 'CLIENT'"),
        ({"listener_security_protocol_map": "OTHER:SSL"}, "names ['OTHER'], which listeners does"),
        (
            {"listeners": "INTERNAL://h:1", "listener_security_protocol_map": "INTERNAL:SASL_SSL"},
            "listener INTERNAL: brokers have certificates instead of passwords; give it SSL in"
            " listener.security.protocol.map, and listener.name.internal.ssl.client.auth=required"
            " (mutual TLS)",
        ),
    ],
)
def test_protocols_that_cannot_be_are_refused_and_say_why(
    settings: dict[str, str], why: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        config(**settings)


@pytest.mark.feature("SE09")
@pytest.mark.parametrize(
    "setting",
    [
        "security.inter.broker.protocol=SASL_SSL",
        "inter.broker.listener.name=SAFE",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
    ],
)
def test_who_sets_kafkas_keys_for_brokers_is_shown_the_listener_and_mutual_tls(
    setting: str,
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(BrokerConfig, ["--broker.id", "1", f"--{setting}"], "TIDEMARK_BROKER_", {})
    (problem,) = refused.value.problems
    for words in (f"unknown key: --{setting.partition('=')[0]}", "listener INTERNAL", "mutual TLS"):
        assert words in problem


@pytest.mark.feature("SE07")
def test_plain_is_served_with_tls_only() -> None:
    made = config(
        listeners="SASL_PLAINTEXT://h:1,SASL_SSL://h:2",
        ssl_certificate_location="tls.crt",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
    )
    found = [made.mechanisms_of(one) for one in made.parsed_listeners()]
    assert found == [("SCRAM-SHA-256",), ("PLAIN", "SCRAM-SHA-256")]


def test_a_keys_password_is_not_shown() -> None:
    made = config(ssl_key_password="open sesame")
    assert "sesame" not in repr(made)
    assert "sesame" not in str(made)
    assert broker_keys(BrokerConfig)["ssl.key.password"].is_sensitive


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


def test_bounds_of_what_groups_may_set_leave_something_between_them() -> None:
    with pytest.raises(ValidationError, match=r"group\.consumer\.min.* is 60001"):
        config(group_consumer_min_session_timeout_ms=60_001)


def test_share_groups_have_kafkas_options_and_the_earlier_name_of_one() -> None:
    options = config(group_share_delivery_count_limit=3, share_record_lock_partition_limit=500)
    made = options.share_group_options()
    assert made.group_share_delivery_count_limit == 3
    assert made.group_share_partition_max_record_locks == 500
    assert config().share_group_options().group_share_partition_max_record_locks == 2_000


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {
                "share_record_lock_partition_limit": 500,
                "group_share_partition_max_record_locks": 600,
            },
            "they are one option",
        ),
        ({"group_share_heartbeat_interval_ms": 45_000}, "must be less than"),
        ({"group_share_min_session_timeout_ms": 60_001}, "is 60001, more than"),
    ],
)
def test_options_of_share_groups_that_contradict_are_refused(
    settings: dict[str, int], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        config(**settings)


def test_a_start_names_the_protocols_of_groups_that_a_list_may_have() -> None:
    argv = ["--broker-id", "1", "--group-coordinator-rebalance-protocols", "classic,raft"]
    with pytest.raises(ConfigError, match="of one of: classic, consumer, share, streams"):
        load(BrokerConfig, argv, "UNUSED_", {})


@pytest.mark.parametrize(
    ("protocols", "why"), [("consumer", "classic cannot be disabled"), ("classic,raft", "streams")]
)
def test_classic_is_required_and_unknown_protocols_of_groups_are_refused(
    protocols: str, why: str
) -> None:
    assert config().serves_consumer_protocol
    assert not config(group_coordinator_rebalance_protocols="classic").serves_consumer_protocol
    with pytest.raises(ValidationError, match=why):
        config(group_coordinator_rebalance_protocols=protocols)


def test_the_migration_policy_of_groups_is_named_in_either_case() -> None:
    made = config(group_consumer_migration_policy="Upgrade")
    assert made.group_settings().group_consumer_migration_policy.value == "upgrade"
    with pytest.raises(ValidationError, match="bidirectional"):
        config(group_consumer_migration_policy="both")


SAFE = {
    "listeners": "TLS://h:1,SAFE://h:2",
    "listener_security_protocol_map": "TLS:SSL,SAFE:SASL_PLAINTEXT",
    "ssl_certificate_location": "tls.crt",
}


def test_a_listener_may_have_options_of_its_own() -> None:
    flags = {
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.certificate.location": "own.crt",
        "listener.name.safe.sasl.enabled.mechanisms": "scram-sha-512",
    }
    shared = {name.replace("_", "."): value for name, value in SAFE.items()}
    words = [part for name, value in (flags | shared).items() for part in (f"--{name}", value)]
    made = load(BrokerConfig, ["--broker.id", "1", *words], "X_", {})
    assert made.security_of("TLS").ssl_client_auth == "required"
    assert made.security_of("TLS").ssl_certificate_location == "own.crt"
    assert made.security_of("SAFE").ssl_client_auth == "none"
    assert made.mechanisms_of(made.parsed_listeners()[1]) == ("SCRAM-SHA-512",)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("other_ssl_client_auth", "none", "listener.name.other.ssl.client.auth: a listener of"),
        ("tls_num_partitions", "1", "listener.name.tls.num.partitions: a listener of"),
        ("tls_ssl_client_auth", "maybe", "listener.name.tls.ssl.client.auth: Input should be"),
        ("tls_ssl_principal_mapping_rules", "x", "'x' is no rule"),
        ("safe_sasl_enabled_mechanisms", "PLAIN,SCRAM-SHA-256", "SAFE with SASL_PLAINTEXT: PLAIN"),
    ],
)
def test_an_option_that_no_listener_can_have_is_refused(option: str, value: str, why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        config(**SAFE, listener_name={option: value})


def test_options_of_a_listener_are_not_shown() -> None:
    made = config(**SAFE, listener_name={"tls_ssl_key_password": "open sesame"})
    assert "sesame" not in repr(made)
    assert broker_keys(BrokerConfig)["listener.name"].is_sensitive
