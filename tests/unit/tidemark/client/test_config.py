import pytest
from tidemark.client.config import (
    Address,
    AdminConfig,
    Bootstrap,
    ConsumerConfig,
    ProducerConfig,
    over_kafka,
    with_settings,
)
from tidemark.client.errors import ClientConfigError
from tidemark.client.security_config import SecurityConfig


@pytest.mark.feature("A14")
def test_several_bootstrap_servers_are_read_from_one_text_or_a_list() -> None:
    expected = (Address("a", 1), Address("::1", 2))
    assert Bootstrap.parse("a:1, [::1]:2").addresses == expected
    assert Bootstrap.parse(["a:1", "[::1]:2"]).addresses == expected
    assert str(expected[1]) == "[::1]:2"


@pytest.mark.parametrize(
    "text", ["", ",", "host", "host:", ":9092", "host:x", "host:²", "host:0", "h:99999"]
)
def test_a_bad_bootstrap_server_is_refused(text: str) -> None:
    with pytest.raises(ClientConfigError):
        Bootstrap.parse(text)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(ClientConfigError, match="did you mean linger_ms"):
        with_settings(ProducerConfig(), {"linger.ms": 5})


@pytest.mark.feature("C05")
def test_defaults_are_kafkas() -> None:
    config = ProducerConfig()
    assert (config.batch_size, config.linger_ms, config.buffer_memory) == (16384, 5, 33554432)
    assert config.idempotent
    assert config.required_acks == -1


def test_fewer_acks_switch_idempotence_off_unless_it_was_asked_for() -> None:
    assert not ProducerConfig(acks=1).idempotent
    assert not ProducerConfig(max_in_flight_requests_per_connection=6).idempotent
    with pytest.raises(ClientConfigError, match="acks='all'"):
        ProducerConfig(acks=1, enable_idempotence=True)
    with pytest.raises(ClientConfigError, match="at most 5"):
        ProducerConfig(enable_idempotence=True, max_in_flight_requests_per_connection=6)


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 2},
        {"compression_type": "brotli"},
        {"batch_size": 0},
        {"linger_ms": -1},
        {"compression_type": "gzip", "compression_level": 10},
        {"compression_type": "gzip", "compression_level": -2},
        {"compression_type": "zstd", "compression_level": 23},
        {"transaction_timeout_ms": 2**31},
        {"delivery_timeout_ms": 10},
        {"transport": "http"},
    ],
)
def test_a_bad_producer_setting_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ClientConfigError):
        with_settings(ProducerConfig(), settings)


@pytest.mark.parametrize(
    "settings",
    [{"auto_offset_reset": "middle"}, {"fetch_max_wait_ms": 40_000}, {"max_poll_records": 0}],
)
def test_a_bad_consumer_setting_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ClientConfigError):
        with_settings(ConsumerConfig(), settings)


def test_an_admin_call_has_a_deadline() -> None:
    with pytest.raises(ClientConfigError, match="default_api_timeout_ms"):
        AdminConfig(default_api_timeout_ms=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_username"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "a"}, "needs sasl_password"),
        ({"sasl_username": "a", "sasl_password": "b"}, "has no login"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "without TLS"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "must be one of SCRAM"),
        (
            {
                "security_protocol": "SSL",
                "transport": "grpc",
                "ssl_endpoint_identification_algorithm": "none",
            },
            "gRPC always checks the host name",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "transport": "grpc",
                "sasl_username": "a",
                "sasl_password": "b",
            },
            "needs transport='kafka'",
        ),
    ],
)
def test_a_bad_login_is_refused_before_it_connects(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ClientConfigError, match=words):
        AdminConfig(**settings)  # type: ignore[arg-type]


LOGIN = {"security_protocol": "SASL_SSL", "sasl_username": "alice", "sasl_password": "pa55"}


@pytest.mark.feature("SE27")
def test_a_client_over_grpc_may_have_a_login_at_kafkas_listeners() -> None:
    login = SecurityConfig(**LOGIN)  # type: ignore[arg-type]
    config = over_kafka(AdminConfig(transport="grpc", client_id="c", kafka_security=login))
    own = {name: getattr(config, name) for name in LOGIN}
    assert (own, config.transport, config.client_id) == (LOGIN, "kafka", "c")
    assert over_kafka(config) == config
    with pytest.raises(ClientConfigError, match="needs transport='grpc'"):
        AdminConfig(kafka_security=login)


@pytest.mark.feature("SE24")
def test_secrets_are_not_printed_with_a_configuration() -> None:
    login = {"sasl_username": "alice", "sasl_password": "pa55", "ssl_key_password": "k3y"}
    shown = repr(AdminConfig(security_protocol="SASL_SSL", **login))  # type: ignore[arg-type]
    assert "alice" in shown
    assert not any(secret in shown for secret in ("pa55", "k3y"))
