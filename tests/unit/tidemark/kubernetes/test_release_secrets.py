"""Secrets of a release: made once, kept, and certificates are replaced when they are due."""

import base64
from dataclasses import replace

import pytest
from cryptography import x509
from tidemark.kubernetes.api import Document, KubernetesApi, KubernetesError, Request
from tidemark.kubernetes.client_files import Addresses
from tidemark.kubernetes.release_secrets import Given, SecretStore, Wanted, keep
from tidemark.model.ids import WallMs

NOW = WallMs(1_800_000_000_000)
DAY_MS = 86_400_000
HOSTS = {"broker": ["*.demo-broker.log.svc"], "zookeeper": ["*.demo-zookeeper.log.svc"]}
WANTED = Wanted(
    "demo", "admin", Addresses("demo-bootstrap:9092", "demo-bootstrap:9792"), HOSTS, Given("", "")
)


class Secrets(KubernetesApi):
    """An API server that has Secrets alone."""

    is_inside = True

    def __init__(self) -> None:
        self.data: dict[str, dict[str, str]] = {}

    def send(self, request: Request) -> Document:
        name = request.path.rpartition("/secrets")[2].lstrip("/")
        if request.method == "POST":
            assert request.body is not None
            self.data[request.body["metadata"]["name"]] = request.body["data"]
        elif name not in self.data:
            raise KubernetesError(404, "NotFound", name)
        elif request.method == "PATCH":
            assert request.body is not None
            changed = self.data[name] | request.body["data"]
            self.data[name] = {key: text for key, text in changed.items() if text is not None}
        return {"data": self.data.get(name, {})}

    def text(self, name: str, key: str) -> str:
        return base64.b64decode(self.data[name][key]).decode()


def made(api: Secrets, wanted: Wanted = WANTED, now_ms: int = NOW) -> list[str]:
    return keep(SecretStore(api, "log", {"a": "b"}), wanted, WallMs(now_ms))


@pytest.mark.feature("SE29", "KU06")
def test_what_is_missing_is_made_and_what_is_there_is_kept() -> None:
    api = Secrets()
    assert [line.split()[1] for line in made(api)] == [
        "demo-ca",
        "demo-broker-tls",
        "demo-zookeeper-tls",
        "demo-zookeeper-user",
        "demo-admin",
        "demo-client",
    ]
    before = {name: dict(content) for name, content in api.data.items()}
    assert made(api) == []
    assert api.data == before
    assert api.text("demo-zookeeper-user", "digest").startswith("tidemark:")


@pytest.mark.feature("SE29", "SE30")
def test_without_a_listener_grpc_the_configuration_for_spark_goes() -> None:
    api = Secrets()
    made(api)
    assert "client.spark.properties" in api.data["demo-client"]
    without = replace(WANTED, addresses=Addresses("demo-bootstrap:9092", ""))
    assert made(api, without) == ["Secret demo-client changed"]
    assert "client.spark.properties" not in api.data["demo-client"]
    assert made(api, without) == []


@pytest.mark.feature("SE29")
def test_certificates_are_replaced_in_time_and_everything_else_is_kept() -> None:
    api = Secrets()
    made(api)
    kept = {name: dict(api.data[name]) for name in ("demo-ca", "demo-admin", "demo-client")}
    assert made(api, now_ms=NOW + 240 * DAY_MS) == []
    due = made(api, now_ms=NOW + 250 * DAY_MS)
    assert due == ["Secret demo-broker-tls changed", "Secret demo-zookeeper-tls changed"]
    assert {name: api.data[name] for name in kept} == kept


@pytest.mark.feature("SE29")
def test_a_further_name_replaces_one_certificate() -> None:
    api = Secrets()
    made(api)
    more = replace(WANTED, certificates={**HOSTS, "broker": [*HOSTS["broker"], "192.0.2.7"]})
    assert made(api, more) == ["Secret demo-broker-tls changed"]
    certificate = x509.load_pem_x509_certificate(api.text("demo-broker-tls", "tls.crt").encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(it) for it in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert certificate.subject.rfc4514_string() == "CN=demo-broker"


@pytest.mark.feature("SE29")
def test_another_authority_is_trusted_beside_the_one_before() -> None:
    api = Secrets()
    made(api)
    before = api.text("demo-ca", "tls.crt")
    del api.data["demo-ca"]
    made(api)
    assert api.text("demo-broker-tls", "ca.crt") == before + api.text("demo-ca", "tls.crt")


@pytest.mark.feature("KU06")
def test_given_secrets_are_read_and_never_changed() -> None:
    api = Secrets()
    pem = base64.b64encode(b"PEM\n").decode()
    api.data["own-tls"] = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), pem)
    api.data["own-user"] = {"password": base64.b64encode(b"secret\n").decode()}
    wanted = replace(WANTED, certificates={}, given=Given("own-tls", "own-user"))
    assert [line.split()[1] for line in made(api, wanted)] == [
        "demo-operator-tls",
        "demo-zookeeper-user",
        "demo-client",
    ]
    assert api.data["demo-operator-tls"] == api.data["own-tls"]
    assert 'password="secret";' in api.text("demo-client", "client.properties")
    assert api.text("demo-client", "ca.crt") == "PEM\n"


@pytest.mark.feature("SE29")
def test_what_needs_the_authority_of_cert_manager_comes_when_it_is_there() -> None:
    api = Secrets()
    wanted = replace(WANTED, certificates={}, given=Given("", "", "demo-operator-tls"))
    assert made(api, wanted) == [
        "Secret demo-zookeeper-user made",
        "Secret demo-admin made",
        "Secret demo-operator-tls has no ca.crt yet: configurations of clients come later",
    ]
    api.data["demo-operator-tls"] = {"ca.crt": base64.b64encode(b"PEM\n").decode()}
    assert made(api, wanted) == ["Secret demo-client made"]
    assert api.text("demo-client", "ca.crt") == "PEM\n"
    api.data["demo-operator-tls"] = {"ca.crt": base64.b64encode(b"NEW\n").decode()}
    assert made(api, wanted) == ["Secret demo-client changed"]


@pytest.mark.feature("KU20")
def test_a_further_user_has_a_secret_whose_password_is_kept() -> None:
    api = Secrets()
    wanted = replace(WANTED, users=("alice",))
    assert "Secret demo-user-alice made" in made(api, wanted)
    password = api.text("demo-user-alice", "password")
    assert f'username="alice" password="{password}"' in api.text(
        "demo-user-alice", "client.properties"
    )
    assert made(api, wanted) == []
    api.data["demo-user-alice"]["password"] = base64.b64encode(b"changed").decode()
    assert made(api, wanted) == ["Secret demo-user-alice changed"]
    assert 'password="changed"' in api.text("demo-user-alice", "client.properties")


@pytest.mark.feature("KU06")
def test_a_given_secret_without_its_key_is_refused_by_name() -> None:
    api = Secrets()
    api.data["own-user"] = {"username": ""}
    with pytest.raises(KubernetesError, match="Secret own-user needs the key password"):
        made(api, replace(WANTED, given=Given("", "own-user")))
