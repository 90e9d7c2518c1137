import pickle

import pytest
from tidemark.client.security_config import SecurityConfig
from tidemark_spark.errors import OptionError
from tidemark_spark.security import client_security, kafka_properties, kafka_security
from tidemark_spark.sink.write_options import write_options
from tidemark_spark.source.read_options import read_options

pytestmark = pytest.mark.feature("SE27")

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="pa\\"55";',
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/etc/ca.pem",
}
SETTINGS = SecurityConfig(
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="alice",
    sasl_password='pa"55',
    ssl_ca_location="/etc/ca.pem",
)
READ = {"bootstrap.servers": "h:9292", "subscribe": "a"}
WRITE = {"bootstrap.servers": "h:9292", "topic": "a"}


def test_options_of_sparks_kafka_connector_are_settings_of_the_client() -> None:
    assert kafka_security(LOGIN | {"subscribe": "a"}) == SETTINGS
    assert kafka_security({}) is None


def test_a_name_and_a_password_may_be_options_of_their_own() -> None:
    plain = {name: text for name, text in LOGIN.items() if "jaas" not in name}
    own = {"kafka.sasl.username": "alice", "kafka.sasl.password": 'pa"55'}
    assert kafka_security(plain | own) == SETTINGS


def test_a_certificate_is_taken_from_pem_files_by_either_name() -> None:
    for name in ("certificate.location", "keystore.location"):
        options = {
            "kafka.security.protocol": "SSL",
            f"kafka.ssl.{name}": "/etc/me.pem",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
        found = kafka_security(options)
        assert found is not None
        assert found.ssl_certificate_location == "/etc/me.pem"
        assert found.ssl_endpoint_identification_algorithm == "none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kafka.ssl.truststore.type": "JKS"}, "store of type JKS"),
        ({"kafka.sasl.jaas.config": "com.example.Login required password=x;"}, "ScramLoginModule"),
        ({"kafka.sasl.jaas.config": f'{MODULE} required username="a";'}, "username or password"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "no token"),
        ({"kafka.security.protocol": "SSLv3"}, "must be one of PLAINTEXT"),
        ({"kafka.ssl.ca.location": "/other.pem"}, "another name of the same file"),
    ],
)
def test_what_cannot_be_used_is_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words) as found:
        kafka_security(LOGIN | changes)
    assert 'pa"55' not in str(found.value)


def test_source_and_sink_take_them_and_do_not_print_the_password() -> None:
    read = read_options(READ | LOGIN, streaming=False)
    write = write_options(WRITE | LOGIN, streaming=False)
    assert read.client == {"kafka_security": SETTINGS}
    assert write.client["kafka_security"] == SETTINGS
    assert write.config.sasl_username == "alice"
    assert 'pa"55' not in repr(read) + repr(write) + repr(write.config)


def test_the_same_login_is_used_over_grpc_with_plain_and_is_not_printed() -> None:
    own = client_security(LOGIN | {"grpc.security.protocol": "sasl_ssl"})
    assert own == {
        "kafka_security": SETTINGS,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": 'pa"55',
        "ssl_ca_location": "/etc/ca.pem",
        "ssl_certificate_location": "",
        "ssl_key_location": "",
        "ssl_key_password": "",
    }
    assert 'pa"55' not in repr(own)
    sent = pickle.loads(pickle.dumps(own))
    assert sent == own
    assert 'pa"55' not in repr(sent)
    options = LOGIN | {"grpc.security.protocol": "SASL_SSL"}
    write = write_options(WRITE | options, streaming=False)
    assert read_options(READ | options, streaming=False).client == own
    assert write.client["sasl_mechanism"] == "PLAIN"
    assert write.config.sasl_mechanism == "SCRAM-SHA-512"
    assert write.config.transport == "kafka"


def test_tls_over_grpc_beside_kafkas_listeners_without_it() -> None:
    own = client_security({"grpc.security.protocol": "SSL"})
    assert own["kafka_security"] == SecurityConfig()
    assert own["security_protocol"] == "SSL"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grpc.security.protocol": "SASL_PLAINTEXT"}, "PLAINTEXT, SSL, SASL_SSL"),
        ({"grpc.security.protocol": "SASL_SSL"}, "there is no user"),
    ],
)
def test_a_login_over_grpc_that_cannot_be_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        client_security(options)


@pytest.mark.parametrize("name", ["client.sasl_password", "client.security.protocol"])
def test_a_login_has_one_way_in(name: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.(sasl|security)"):
        read_options(READ | {name: "x"}, streaming=False)


def test_the_properties_of_kafkas_java_clients_are_options() -> None:
    lines = ["# made by tidemark", "", "bootstrap.servers=127.0.0.1:9092"]
    lines += [f"{name.removeprefix('kafka.')}={text}" for name, text in LOGIN.items()]
    assert kafka_properties("\n".join(lines)) == LOGIN
    lines.append("grpc.security.protocol=SSL")
    assert kafka_properties("\n".join(lines)) == LOGIN | {"grpc.security.protocol": "SSL"}


@pytest.mark.parametrize(("text", "words"), [("acks=all", "acks, which"), ("what", "NAME=VALUE")])
def test_other_properties_are_refused(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        kafka_properties(text)
