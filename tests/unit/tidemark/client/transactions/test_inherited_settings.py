"""What a writer has from the client that enlists it."""

import pytest
from tidemark.client.config import ClientConfig
from tidemark.client.security_config import SecurityConfig
from tidemark.client.transactions.multi_writer import inherited_by_writers

OWN = {"transactional_id": "t", "client_id": "c"}


def test_without_a_login_a_writer_keeps_its_own_settings() -> None:
    assert inherited_by_writers(ClientConfig(client_id="c"), "t") == OWN


@pytest.mark.feature("SE27")
def test_a_login_is_that_of_the_writer_too() -> None:
    login = {
        "security_protocol": "SASL_SSL",
        "sasl_username": "alice",
        "sasl_password": "secret",
        "ssl_ca_location": "ca.pem",
    }
    security = SecurityConfig(**login)  # type: ignore[arg-type]
    config = ClientConfig(client_id="c", transport="grpc", kafka_security=security)
    found = inherited_by_writers(config, "t")
    assert found.items() >= (OWN | login).items()
    assert found.keys().isdisjoint({"transport", "kafka_security"})
