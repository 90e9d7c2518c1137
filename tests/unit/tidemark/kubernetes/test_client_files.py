"""Configurations of clients: whole, and read as their formats are."""

import pytest
from tidemark.kubernetes.client_files import client_files

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.feature("KU22")
def test_java_reads_the_authority_from_the_properties() -> None:
    text = client_files("demo:9092", "admin", "secret", PEM)["client.properties"]
    values = dict(line.partition("=")[::2] for line in text.replace("\\\n", "").splitlines())
    assert values["ssl.truststore.certificates"].replace("\\n", "\n") == PEM.strip()
    assert values["sasl.jaas.config"].endswith('username="admin" password="secret";')
    assert values["bootstrap.servers"] == "demo:9092"


@pytest.mark.feature("KU22")
def test_librdkafka_finds_the_authority_beside_its_configuration() -> None:
    files = client_files("demo:9092", "admin", "secret", PEM)
    values = dict(line.partition("=")[::2] for line in files["client.conf"].splitlines())
    assert files[values["ssl.ca.location"]] == PEM
    assert (values["sasl.username"], values["sasl.password"]) == ("admin", "secret")
