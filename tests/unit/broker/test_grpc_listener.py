"""Options of the listener GRPC, and which of them no client could use."""

from typing import Any

import pytest
from broker.config import BrokerConfig
from pydantic import ValidationError
from tidemark.model.metadata import SSL, BrokerImage, Endpoint
from tidemark.runtime.service_config import HostPort

pytestmark = pytest.mark.feature("SE30")

BASE: dict[str, Any] = {
    "broker_id": 1,
    "listeners": "CLIENT://127.0.0.1:9092,GRPC://127.0.0.1:9792",
    "listener_security_protocol_map": "GRPC:SASL_SSL",
    "ssl_certificate_location": "/etc/tls.crt",
    "sasl_enabled_mechanisms": "SCRAM-SHA-512",
}


def own(**options: str) -> dict[str, Any]:
    return {"listener_name": {f"grpc_{name}": value for name, value in options.items()}}


def test_it_takes_passwords_whatever_the_other_listeners_take() -> None:
    config = BrokerConfig(**BASE)
    listener = config.grpc_listener()
    assert listener is not None
    assert config.mechanisms_of(listener) == ("PLAIN",)
    assert [one.name for one in config.kafka_listeners()] == ["CLIENT"]


def test_without_one_there_is_none() -> None:
    assert BrokerConfig(broker_id=1).grpc_listener() is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"listener_security_protocol_map": "GRPC:SASL_PLAINTEXT"}, "give it SASL_SSL"),
        ({"ssl_certificate_location": ""}, "needs ssl.certificate.location"),
        (own(sasl_enabled_mechanisms="SCRAM-SHA-512"), "exchange of messages"),
        (own(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER"), "needs sasl.oauthbearer.jwks"),
        (own(ssl_client_auth="requested"), "required or none"),
        ({"listeners": "GRPC://127.0.0.1:9792"}, "one at least besides GRPC"),
    ],
)
def test_options_that_no_client_could_use_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        BrokerConfig(**{**BASE, **changed})


def test_its_endpoint_is_for_nobody_elses_protocol() -> None:
    grpc, safe = Endpoint("GRPC", "h", 1), Endpoint("SAFE", "h", 2, SSL)
    broker = BrokerImage(1, 1, bytes(16), (grpc, safe), "h:3", None, "n", fenced=False)  # type: ignore[arg-type]
    assert broker.client_endpoint() == safe
    assert broker.replication_endpoint() is None


def test_advertised_listeners_move_it_like_any_other() -> None:
    config = BrokerConfig(**BASE, advertised_listeners="GRPC://broker-1.example:443")
    shown = {one.listener: HostPort(one.host, one.port) for one in config.endpoints()}
    assert str(shown["GRPC"]) == "broker-1.example:443"
