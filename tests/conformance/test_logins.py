"""Every mechanism by Kafka's Java clients and by franz-go, unmodified, at a secure cluster. Run by
``make conformance``. librdkafka, kafka-python and the native client do the same in ``tests/e2e``.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from conformance import go_programs, java_programs
from conformance.java_programs import started
from e2e.client_matrix import Login
from e2e.clusters import START_SECONDS, Cluster
from e2e.identity_provider import CLIENT_SECRET, IdentityProvider, identity_provider
from prometheus_client.parser import text_string_to_metric_families
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import CLIENT, SecureFiles
from tidemark.client import sync
from tidemark.client.admin.types import NewTopic
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

REAUTH_MS = 2_000
MUTUAL_TLS = "mutual TLS"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", MUTUAL_TLS)
WITH_PASSWORD = MECHANISMS[:3]
JAVA, FRANZ_GO = CLIENTS = ("Java", "franz-go")
_REPEATED = "kafka_server_socket_server_metrics_successful_reauthentication_total"
_MODULES = "org.apache.kafka.common.security"

Argv = Callable[[str, str], list[str]]
"""Command of a client, by its file and a topic."""


class World(NamedTuple):
    """A secure cluster, and the provider whose tokens it takes."""

    cluster: Cluster
    provider: IdentityProvider

    @property
    def files(self) -> SecureFiles:
        return SecureFiles.of(self.cluster.layout)

    def password(self) -> str:
        return self.files.password(CLIENT).read_text().strip()

    def topic(self) -> str:
        """A new topic."""
        topic = f"t-{uuid.uuid4().hex[:8]}"
        login = Login(CLIENT, self.password(), str(self.files.ca))
        with sync.Admin(self.cluster.bootstrap, **login.tidemark) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
        return topic

    def repeated(self) -> float:
        """Authentications of connections that were open."""
        page = text_string_to_metric_families(self.cluster.ops("broker-1", "/metrics"))
        samples = [one for family in page for one in family.samples if one.name == _REPEATED]
        return sum(one.value for one in samples)

    def settings(self, client: str, mechanism: str, password: str) -> Mapping[str, str]:
        """A file of the client, as an operator would write it."""
        make = self._java if client == JAVA else self._franz_go
        return make(mechanism, password)

    def _java(self, mechanism: str, password: str) -> Mapping[str, str]:
        files = self.files
        if mechanism == MUTUAL_TLS:
            text = files.java_mutual(CLIENT).read_text()
            return dict(line.split("=", 1) for line in text.splitlines())
        lines = files.java(CLIENT).read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines) | {"sasl.mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            handler = "oauthbearer.OAuthBearerLoginCallbackHandler"
            return settings | {
                "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{_MODULES}.{handler}",
                "sasl.oauthbearer.token.endpoint.url": self.provider.token_url,
                "sasl.oauthbearer.client.credentials.client.id": CLIENT,
                "sasl.oauthbearer.client.credentials.client.secret": password,
            }
        kind = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'{_MODULES}.{kind} required username="{CLIENT}" password="{password}";'
        return settings | {"sasl.jaas.config": jaas}

    def _franz_go(self, mechanism: str, password: str) -> Mapping[str, str]:
        trusted = {"ssl.ca.location": str(self.files.ca)}
        if mechanism == MUTUAL_TLS:
            own = str(self.files.identity(CLIENT))
            address = {"bootstrap.servers": self.cluster.layout.mutual_bootstrap}
            pair = {"ssl.certificate.location": own, "ssl.key.location": own}
            return {**address, **trusted, **pair}
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            **trusted,
            "sasl.mechanisms": mechanism,
            "sasl.username": CLIENT,
            "sasl.password": password,
            "sasl.oauthbearer.token.endpoint.url": self.provider.token_url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": password,
        }


@pytest.fixture(scope="module", params=CLIENTS)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Argv]:
    """Name and command of one client."""
    if request.param == JAVA:
        java = java_programs.build()
        return JAVA, lambda file, topic: java.argv("LoggedIn", file, topic)
    go = go_programs.build(tmp_path_factory.mktemp("go"))
    return FRANZ_GO, lambda file, topic: go.argv("login", file, topic)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("logins")
    layout = Layout.on_free_ports(directory, brokers=1, controllers=1, is_secure=True)
    with identity_provider() as provider:
        keys = {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS[:4]),
            "listener.name.grpc.sasl.enabled.mechanisms": "PLAIN",
            "sasl.oauthbearer.jwks.endpoint.url": provider.url,
            "sasl.oauthbearer.jwks.endpoint.allow.http": "true",
            "sasl.oauthbearer.expected.issuer": provider.url,
            "sasl.oauthbearer.expected.audience": "tidemark",
            "connections.max.reauth.ms": str(REAUTH_MS),
        }
        cluster = Cluster(layout, overrides={"broker": keys})
        try:
            cluster.start(START_SECONDS)
            yield World(cluster, provider)
        finally:
            cluster.end()


def file_of(settings: Mapping[str, str], directory: Path) -> str:
    path = directory / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.feature("SE01", "SE03", "SE06", "SE07", "SE08")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_logs_in_writes_reads_and_logs_in_again(
    client: tuple[str, Argv], world: World, mechanism: str, tmp_path: Path
) -> None:
    name, argv = client
    secret = CLIENT_SECRET if mechanism == "OAUTHBEARER" else world.password()
    file = file_of(world.settings(name, mechanism, secret), tmp_path)
    before = world.repeated()
    with started(argv(file, world.topic()), tmp_path / "log") as running:
        wait_for(lambda: "wrote" in dict(running.told()), running.story)
        if mechanism != MUTUAL_TLS:
            wait_for(lambda: world.repeated() >= before + 2, running.story)
            seen = len(running.told())
            wait_for(lambda: len(running.told()) > seen, running.story)
        facts = dict(running.told())
        assert (facts["read"], "failed" in facts) == (f"by {name}", False), running.story()


@pytest.mark.feature("SE01", "SE07")
@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_a_wrong_password_is_an_error_that_the_client_knows(
    client: tuple[str, Argv], world: World, mechanism: str, tmp_path: Path
) -> None:
    name, argv = client
    file = file_of(world.settings(name, mechanism, "wrong"), tmp_path)
    with started(argv(file, world.topic()), tmp_path / "log") as running:
        wait_for(lambda: running.told(), running.story)
        ((what, error),) = running.told()
    known = {JAVA: "SaslAuthenticationException", FRANZ_GO: "SASL_AUTHENTICATION_FAILED"}
    assert (what, known[name] in error) == ("failed", True), running.story()
