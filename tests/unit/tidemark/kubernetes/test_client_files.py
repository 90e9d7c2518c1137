"""Configurations of clients: whole, and read as their formats are."""

import pytest
from tidemark.kubernetes.client_files import MOUNTED_AT, Addresses, client_files
from tidemark_spark.security import client_security, kafka_properties

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
AT = Addresses("demo:9092", "demo:9792")


@pytest.mark.feature("KU22")
def test_java_reads_the_authority_from_the_properties() -> None:
    text = client_files(AT, "admin", "secret", PEM)["client.properties"]
    values = dict(line.partition("=")[::2] for line in text.replace("\\\n", "").splitlines())
    assert values["ssl.truststore.certificates"].replace("\\n", "\n") == PEM.strip()
    assert values["sasl.jaas.config"].endswith('username="admin" password="secret";')
    assert values["bootstrap.servers"] == "demo:9092"


@pytest.mark.feature("KU22")
def test_librdkafka_finds_the_authority_beside_its_configuration() -> None:
    files = client_files(AT, "admin", "secret", PEM)
    values = dict(line.partition("=")[::2] for line in files["client.conf"].splitlines())
    assert files[values["ssl.ca.location"]] == PEM
    assert (values["sasl.username"], values["sasl.password"]) == ("admin", "secret")


@pytest.mark.feature("KU22", "SE27", "SE30")
def test_a_spark_job_reads_its_login_at_both_wires_from_its_properties() -> None:
    files = client_files(AT, "admin", "secret", PEM)
    login = client_security(kafka_properties(files["client.spark.properties"]))
    assert (login["security_protocol"], login["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (login["sasl_username"], str(login["sasl_password"])) == ("admin", "secret")
    assert login["ssl_ca_location"] == f"{MOUNTED_AT}/ca.crt"
    assert login["kafka_security"].sasl_mechanism == "SCRAM-SHA-512"
    assert "client.spark.properties" not in client_files(Addresses("a:1", ""), "b", "c", PEM)
