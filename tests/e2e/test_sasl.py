"""Kafka's clients that log in with SCRAM at a real broker, and those that should not get in."""

import base64
import contextlib
import itertools
import random
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kafka
import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from e2e.clusters import START_SECONDS, Cluster
from e2e.command_line import Cli
from e2e.identity_provider import IdentityProvider, TokenProvider, identity_provider
from e2e.load import under_load
from e2e.secrets_seen import shown
from e2e.shared_zookeeper import with_shared_zookeeper
from free_ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.client import sync
from tidemark.client.errors import AuthenticationError, ConnectionLostError
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import request_header
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "correct horse"
FIRST_USER = "root"
KEY_PASSWORD = "unlocks-the-key"
REAUTH_MS = 2_000
FUZZED = 500
Settings = dict[str, str | int | float | bool]
_FAILED = "kafka_server_socket_server_metrics_failed_authentication_total"
_REPEATED = "kafka_server_socket_server_metrics_successful_reauthentication_total"


class Doors:
    """One cluster with three listeners: plain, with SASL, and with SASL over TLS."""

    def __init__(self, cluster: Cluster, ports: dict[str, int], ca: str) -> None:
        self.cluster = cluster
        self.ports = ports
        self.ca = ca
        self.admin = AdminClient({"bootstrap.servers": cluster.kafka()})
        self._numbers = itertools.count()

    def a_user(self, password: str = PASSWORD, iterations: int = 4_096) -> str:
        """A new user with a credential for each mechanism."""
        name = f"user-{next(self._numbers)}"
        self.set_password(name, password, iterations)
        return name

    def set_password(
        self,
        name: str,
        password: str,
        iterations: int = 4_096,
        kinds: Sequence[ScramMechanism] = (
            ScramMechanism.SCRAM_SHA_256,
            ScramMechanism.SCRAM_SHA_512,
        ),
    ) -> None:
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                name, ScramCredentialInfo(kind, iterations), password.encode()
            )
            for kind in kinds
        ]
        for one in self.admin.alter_user_scram_credentials(wanted).values():
            one.result(PATIENCE_S)

    def client(
        self,
        user: str,
        password: str = PASSWORD,
        mechanism: str = MECHANISMS[0],
        door: str = "SAFE",
    ) -> Settings:
        """librdkafka's configuration."""
        settings: Settings = {
            "bootstrap.servers": f"{HOST}:{self.ports[door]}",
            "security.protocol": "sasl_ssl" if door == "TLS" else "sasl_plaintext",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
        return {**settings, "ssl.ca.location": self.ca} if door == "TLS" else settings

    def count(self, name: str, door: str = "SAFE") -> float:
        page = self.cluster.ops("broker-1", "/metrics")
        families = text_string_to_metric_families(page)
        samples = [one for family in families for one in family.samples if one.name == name]
        return next(one.value for one in samples if one.labels == {"listener": door})


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as found:
        yield found


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("sasl")
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    names = {"ca": "ca.pem", "crt": "tls.crt", "key": "tls.key"}
    paths = {name: str(directory / file) for name, file in names.items()}
    authority.cert_pem.write_to_path(paths["ca"])
    issued.cert_chain_pems[0].write_to_path(paths["crt"])
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = BestAvailableEncryption(KEY_PASSWORD.encode())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    Path(paths["key"]).write_bytes(pem)
    layout = Layout.on_free_ports(directory / "cluster", brokers=1, controllers=1)
    own = layout.member("broker-1").ports
    ports = {"CLIENT": own["client"], "INTERNAL": own["internal"]}
    ports |= {"SAFE": free_port(), "TLS": free_port()}
    keys = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,TLS:SASL_SSL",
        "ssl.certificate.location": paths["crt"],
        "ssl.key.location": paths["key"],
        "ssl.key.password": KEY_PASSWORD,
        "audit.sinks": "log",
        "audit.interval.ms": "200",
        "sasl.enabled.mechanisms": ",".join([*MECHANISMS, "PLAIN", "OAUTHBEARER"]),
        "sasl.oauthbearer.jwks.endpoint.url": provider.url,
        "sasl.oauthbearer.jwks.endpoint.allow.http": "true",
        "sasl.oauthbearer.expected.issuer": provider.url,
        "sasl.oauthbearer.expected.audience": "tidemark",
        "connections.max.reauth.ms": str(REAUTH_MS),
        "sasl.login.deadline.ms": "6000",
        "failed.authentication.burst.per.ip": "1000000",
    }
    first_users = directory / "users"
    first_users.write_text(f"# The super user.\n{FIRST_USER}:{PASSWORD}\n")
    controller = {"initial.users.file": str(first_users)}
    cluster = Cluster(
        with_shared_zookeeper(layout), overrides={"broker": keys, "controller": controller}
    )
    try:
        cluster.start(START_SECONDS)
        yield Doors(cluster, ports, paths["ca"])
    finally:
        cluster.end()


def a_topic(admin: AdminClient) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
    return name


WAYS = [(mechanism, door) for mechanism in MECHANISMS for door in ("SAFE", "TLS")]
PLAIN_WAY = pytest.param("PLAIN", "TLS", marks=pytest.mark.feature("SE07"))


@pytest.mark.parametrize(("mechanism", "door"), [*WAYS, PLAIN_WAY])
@pytest.mark.feature("SE01")
def test_librdkafka_logs_in_and_writes_and_reads(doors: Doors, mechanism: str, door: str) -> None:
    client = doors.client(doors.a_user(), mechanism=mechanism, door=door)
    topic = a_topic(AdminClient(client))
    producer = Producer(client)
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=PATIENCE_S)
    consumer.close()
    assert message.value() == b"value"


@pytest.mark.parametrize(("mechanism", "door"), [*WAYS[::2], PLAIN_WAY])
@pytest.mark.feature("SE01")
def test_kafka_python_logs_in_and_writes(doors: Doors, mechanism: str, door: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=f"{HOST}:{doors.ports[door]}",
        security_protocol="SASL_SSL" if door == "TLS" else "SASL_PLAINTEXT",
        ssl_cafile=doors.ca,
        sasl_mechanism=mechanism,
        sasl_plain_username=doors.a_user(),
        sasl_plain_password=PASSWORD,
    )
    try:
        topic = a_topic(doors.admin)
        assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    finally:
        producer.close()


def refused_with(client: Settings) -> KafkaError:
    """The error with which librdkafka gives up."""
    errors: list[KafkaError] = []
    producer = Producer({**client, "error_cb": errors.append})
    wait_for(lambda: producer.poll(0.05) or errors, "an error of the client")
    return errors[0]


@pytest.mark.parametrize(("mechanism", "door"), [*WAYS[:1], PLAIN_WAY])
@pytest.mark.feature("SE01", "SE04", "SE05")
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer_and_are_counted(
    doors: Doors, mechanism: str, door: str
) -> None:
    before = doors.count(_FAILED, door)
    for user in (doors.a_user(), "nobody"):
        error = refused_with(doors.client(user, "wrong", mechanism, door))
        assert error.code() == KafkaError._AUTHENTICATION
        assert f"invalid credentials with SASL mechanism {mechanism}" in error.str()
    assert doors.count(_FAILED, door) >= before + 2
    lines = [one for one in doors.cluster.log("broker-1").splitlines() if "login failed" in one]
    assert any("nobody" in one and HOST in one for one in lines)
    assert not any(secret in one for one in lines for secret in ("wrong", PASSWORD))


@pytest.mark.feature("SE02")
def test_users_are_set_described_and_removed_with_kafkas_admin(doors: Doors) -> None:
    name = doors.a_user(iterations=8_192)
    answers = doors.admin.describe_user_scram_credentials([name])
    assert isinstance(answers, dict)
    described = answers[name].result(PATIENCE_S)
    shown = {(one.mechanism, one.iterations) for one in described.scram_credential_infos}
    assert {iterations for _, iterations in shown} == {8_192}
    assert len(shown) == 2
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    doors.admin.alter_user_scram_credentials([gone])[name].result(PATIENCE_S)
    refused_with(doors.client(name))
    AdminClient(doors.client(name, mechanism=MECHANISMS[1])).list_topics(timeout=PATIENCE_S)
    assert PASSWORD not in doors.cluster.log("controller-1") + doors.cluster.log("broker-1")


@pytest.mark.feature("SE02")
def test_the_first_user_comes_from_a_file_and_keeps_its_next_password(doors: Doors) -> None:
    AdminClient(doors.client(FIRST_USER)).list_topics(timeout=PATIENCE_S)
    doors.set_password(FIRST_USER, "another")
    doors.cluster.restart("controller-1")
    AdminClient(doors.client(FIRST_USER, "another")).list_topics(timeout=PATIENCE_S)
    assert PASSWORD not in doors.cluster.log("controller-1")
    assert doors.cluster.log("controller-1").count("first users made") == 1


@pytest.mark.feature("SE02")
def test_a_new_password_is_the_only_one_and_outlives_the_controller(doors: Doors) -> None:
    name = doors.a_user()
    doors.set_password(name, "another")
    doors.cluster.kill("controller-1")
    doors.cluster.restart("controller-1")
    AdminClient(doors.client(name, "another")).list_topics(timeout=PATIENCE_S)
    refused_with(doors.client(name, PASSWORD))


@pytest.mark.feature("SE03")
def test_a_client_authenticates_again_on_the_same_connection(doors: Doors) -> None:
    before = doors.count(_REPEATED)
    client = doors.client(doors.a_user())
    topic = a_topic(doors.admin)
    failed: list[KafkaError | None] = []
    producer = Producer({**client, "retries": 0, "error_cb": failed.append})

    def written() -> bool:
        producer.produce(topic, b"value", on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(PATIENCE_S) == 0
        return doors.count(_REPEATED) >= before + 2

    wait_for(written, "two authentications of connections that were open")
    assert [one for one in failed if one is not None] == []


@pytest.mark.feature("SE03")
def test_a_password_is_replaced_under_load_without_a_failed_request(doors: Doors) -> None:
    """Of one mechanism, then of the other: sessions end every two seconds, and there is always a
    mechanism that has the password of the client.
    """
    user, topic = doors.a_user("old"), a_topic(doors.admin)
    failed: list[KafkaError | None] = []

    def writer(password: str, mechanism: str) -> Callable[[], None]:
        client = doors.client(user, password, mechanism)
        producer = Producer({**client, "retries": 0, "error_cb": failed.append})

        def write() -> None:
            producer.produce(topic, b"value", on_delivery=lambda error, _: failed.append(error))
            assert producer.flush(PATIENCE_S) == 0

        return write

    def logs_in_again() -> None:
        before = doors.count(_REPEATED)
        wait_for(lambda: doors.count(_REPEATED) >= before + 2, "clients log in again")

    old = writer("old", MECHANISMS[0])
    with under_load(old):
        doors.set_password(user, "new", kinds=[ScramMechanism.SCRAM_SHA_512])
        new = writer("new", MECHANISMS[1])
        with under_load(new):
            logs_in_again()
    with under_load(new):
        doors.set_password(user, "new")
        logs_in_again()
    assert [one for one in failed if one is not None] == []
    refused_with(doors.client(user, "old"))


@pytest.mark.feature("SE02")
def test_the_command_line_adds_lists_and_removes_users(doors: Doors, tmp_path: Path) -> None:
    cli, name, file = Cli(doors.cluster), "alice, of sales", tmp_path / "password"
    file.write_text("first\n")
    added = cli.run("user", "add", name, "--password-file", str(file), *cli.kafka)
    assert (added.returncode, added.stderr) == (0, b"")
    AdminClient(doors.client(name, "first")).list_topics(timeout=PATIENCE_S)
    again = cli.run("user", "add", name, "--password-file", str(file), *cli.kafka)
    assert (again.returncode, b"set-password" in again.stderr) == (1, True)
    asked = ("user", "set-password", name, "--password-file", "-", *cli.kafka)
    assert cli.run(*asked, stdin=b"second\n").returncode == 0
    AdminClient(doors.client(name, "second")).list_topics(timeout=PATIENCE_S)
    listed = [one for one in cli.json("user", "list", *cli.kafka) if one["user"] == name]
    assert listed == [{"user": name, "mechanism": one, "iterations": 8_192} for one in MECHANISMS]
    assert cli.run("user", "remove", name, "--yes", *cli.kafka).returncode == 0
    assert cli.run(*asked, stdin=b"third\n").returncode == 1


# -- tokens


def with_token(doors: Doors, token: Callable[[], str]) -> dict[str, Any]:
    """librdkafka's configuration."""
    client = doors.client("", "", "OAUTHBEARER", "TLS")
    words = {name: value for name, value in client.items() if value}
    return {**words, "oauth_cb": lambda _: (token(), Clock().wall_ms() / 1_000 + 60)}


@pytest.mark.feature("SE06")
def test_librdkafka_logs_in_with_tokens_again_and_again(
    doors: Doors, provider: IdentityProvider
) -> None:
    before, topic = doors.count(_REPEATED, "TLS"), a_topic(doors.admin)
    failed: list[KafkaError | None] = []
    client = with_token(doors, lambda: provider.token("alice"))
    producer = Producer({**client, "retries": 0, "error_cb": failed.append})

    def written() -> bool:
        producer.produce(topic, b"value", on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(PATIENCE_S) == 0
        return doors.count(_REPEATED, "TLS") > before

    wait_for(written, "an authentication of a connection that was open")
    assert [one for one in failed if one is not None] == []


@pytest.mark.feature("SE06")
def test_kafka_python_and_the_native_client_log_in_with_tokens(
    doors: Doors, provider: IdentityProvider
) -> None:
    topic = a_topic(doors.admin)
    producer = kafka.KafkaProducer(
        bootstrap_servers=f"{HOST}:{doors.ports['TLS']}",
        security_protocol="SASL_SSL",
        ssl_cafile=doors.ca,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=TokenProvider(provider),
    )
    try:
        assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    finally:
        producer.close()
    client = native(doors.client("", "", "OAUTHBEARER", "TLS"))
    with sync.Producer(**client, sasl_oauthbearer_token=provider.token) as second:
        assert second.send(topic, b"value").offset == 1


@pytest.mark.parametrize(
    "claims", [{"aud": "another"}, {"exp": 1}, {"iss": "https://evil"}, {"sub": "x" * 20_000}]
)
@pytest.mark.feature("SE06")
def test_tokens_for_others_expired_and_oversized_ones_are_refused(
    doors: Doors, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    client = native(doors.client("", "", "OAUTHBEARER", "TLS"))
    token = provider.token(**claims)
    refused = pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism")
    with sync.Admin(**client, sasl_oauthbearer_token=lambda: token) as admin, refused:
        admin.list_topics()
    assert token not in doors.cluster.log("broker-1")


# -- the native client and the command line


def native(client: Settings) -> dict[str, Any]:
    """The native client's settings, from librdkafka's."""
    words = {name.replace(".", "_"): value for name, value in client.items()}
    words["security_protocol"] = str(words["security_protocol"]).upper()
    return words


@pytest.mark.parametrize(("mechanism", "door"), [*WAYS, PLAIN_WAY])
@pytest.mark.feature("SE01")
def test_the_native_client_logs_in_and_writes_and_reads(
    doors: Doors, mechanism: str, door: str
) -> None:
    client = native(doors.client(doors.a_user(), mechanism=mechanism, door=door))
    topic = a_topic(doors.admin)
    with sync.Producer(**client) as producer:
        assert producer.send(topic, b"value").offset == 0
    with sync.Consumer(**client, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        wait_for(lambda: consumer.poll(timeout_ms=200), "the record")


@pytest.mark.feature("SE03")
def test_the_native_client_authenticates_again_beside_its_long_polls(doors: Doors) -> None:
    before, topic = doors.count(_REPEATED), a_topic(doors.admin)
    client = native(doors.client(doors.a_user()))
    with sync.Producer(**client) as producer, sync.Consumer(**client) as consumer:
        consumer.assign([(topic, 0)])

        def written() -> bool:
            producer.send(topic, b"value")
            consumer.poll(timeout_ms=100)
            return doors.count(_REPEATED) >= before + 4

        wait_for(written, "two authentications of both clients' connections")
    assert "session has expired" not in doors.cluster.log("broker-1")


@pytest.mark.feature("SE01")
def test_the_native_client_says_why_it_cannot_log_in(doors: Doors) -> None:
    user = doors.a_user()
    wrong = native(doors.client(user, "wrong"))
    stranger = native(doors.client(user, door="TLS")) | {"ssl_ca_location": ""}
    plain = {"bootstrap_servers": f"{HOST}:{doors.ports['SAFE']}"}
    for client, kind, words in (
        (wrong, AuthenticationError, f"login of '{user}' failed.*sasl_password"),
        (stranger, ConnectionLostError, "certificate is not accepted"),
        (plain, ConnectionLostError, "closed the connection"),
    ):
        with sync.Admin(**client) as admin, pytest.raises(kind, match=words):
            admin.list_topics()


@pytest.mark.feature("SE24")
def test_the_command_line_logs_in_and_keeps_the_password_to_itself(
    doors: Doors, tmp_path: Path
) -> None:
    cli, file, topic = Cli(doors.cluster), tmp_path / "password", a_topic(doors.admin)
    words = doors.client(doors.a_user(), door="TLS") | {"security.protocol": "SASL_SSL"}
    file.write_text(f"{words.pop('sasl.password')}\n")
    words |= {"sasl.password.file": str(file), "bootstrap": words.pop("bootstrap.servers")}
    login = [part for key, value in words.items() for part in ("-X", f"{key}={value}")]
    assert topic in {row["topic"] for row in cli.json("topic", "list", *login)}
    assert cli.run("topic", "produce", topic, *login, stdin=b"value\n").returncode == 0
    assert [row["value"] for row in cli.read(topic, *login)] == ["value"]
    file.write_text("wrong\n")
    refused = cli.run("topic", "list", *login)
    assert refused.returncode == ExitCode.NO_PERMISSION
    assert b"SASL_AUTHENTICATION_FAILED" in refused.stderr
    assert b"wrong\n" not in refused.stderr


# -- below Kafka's clients


class Wire:
    """One connection, request by request."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> None:
        frame = request_header(ApiKey(api_key), version, 1, "wire") + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def end_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def send_size(self, size: int) -> None:
        self._socket.sendall(struct.pack(">i", size))

    def answer(self) -> bytes:
        """A whole answer; b"" once the broker has closed the connection."""
        head = self._received(4)
        return self._received(struct.unpack(">i", head)[0]) if head else b""

    def _received(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                more = self._socket.recv(size - len(found))
            except ConnectionError:
                return b""
            if not more:
                return b""
            found += more
        return found


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


Attack = Callable[[Wire], None]


def _metadata(wire: Wire) -> None:
    wire.send(ApiKey.METADATA, 1, struct.pack(">i", -1))


def _token_first(wire: Wire) -> None:
    wire.send(ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", 3) + b"n,,")


def _large_frame(wire: Wire) -> None:
    wire.send_size(524_289)


def _silence(_: Wire) -> None:
    """Say nothing until the broker loses patience: a slow handshake."""


@pytest.mark.parametrize("attack", [_metadata, _token_first, _large_frame, _silence])
@pytest.mark.feature("SE05")
def test_slow_handshake_and_early_requests_end_the_connection(doors: Doors, attack: Attack) -> None:
    with Wire(doors.ports["SAFE"]) as wire:
        attack(wire)
        assert wire.answer() == b""


@pytest.mark.feature("SE01", "SE07")
def test_downgrade_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(
    doors: Doors,
) -> None:
    with Wire(doors.ports["SAFE"]) as wire:
        wire.send(ApiKey.SASL_HANDSHAKE, 1, text("PLAIN"))
        answer = wire.answer()
        assert struct.unpack_from(">h", answer, 4) == (33,)
        assert all(name.encode() in answer for name in MECHANISMS)
        assert not any(name in answer for name in (b"PLAIN", b"OAUTHBEARER"))
        assert wire.answer() == b""


@pytest.mark.feature("SE05")
def test_brute_force_each_guess_waits(doors: Doors) -> None:
    user, before = doors.a_user(), doors.count(_FAILED)
    began_s = time.monotonic()
    for number in range(5):
        with Wire(doors.ports["SAFE"]) as wire:
            wire.send(ApiKey.SASL_HANDSHAKE, 1, text(MECHANISMS[0]))
            assert struct.unpack_from(">h", wire.answer(), 4) == (0,)
            token = f"n,,n={user},r=guess{number}".encode()
            wire.send(ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
            answer = wire.answer()
            nonce = answer[answer.index(b"r=") + 2 : answer.index(b",s=")]
            token = b"c=biws,r=" + nonce + b",p=" + b"A" * 43 + b"="
            wire.send(ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
            assert struct.unpack_from(">h", wire.answer(), 4) == (58,)
            assert wire.answer() == b""
    assert time.monotonic() - began_s >= 0.5
    assert doors.count(_FAILED) == before + 5


def hostile(dice: random.Random) -> bytes:
    """A body of a handshake or a token, or bytes that are neither."""
    token = dice.choice([b"n,,n=alice,r=abc", b"y,,n=a,r=b", b"c=biws,r=abc,p=AAAA", b"n,a=b,,,="])
    spoilt = bytearray(token * dice.choice([1, 1, 200]))
    for _ in range(dice.randrange(4)):
        spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
    bodies = [
        text(dice.choice([*MECHANISMS, "PLAIN", "", "x" * 300])),
        struct.pack(">i", len(spoilt)) + bytes(spoilt),
        struct.pack(">i", dice.choice([-1, 2**31 - 1, 5])) + bytes(spoilt),
        dice.randbytes(dice.randrange(64)),
    ]
    return dice.choice(bodies)


def last_words(wire: Wire, dice: random.Random) -> None:
    """Send up to four requests, the first mostly a handshake, and read until the end."""
    keys = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS, ApiKey.METADATA]
    if dice.random() < 0.7:
        wire.send(keys[0], dice.randrange(2), text(MECHANISMS[0]))
    for _ in range(dice.randrange(1, 4)):
        wire.send(dice.choice(keys[:3] * 3 + keys), dice.randrange(-1, 5), hostile(dice))
    wire.end_sending()
    while wire.answer():
        pass


@pytest.mark.feature("SE05")
def test_hostile_frames_before_authentication_cost_an_error_or_the_connection(
    doors: Doors,
) -> None:
    for seed in range(FUZZED):
        with contextlib.suppress(OSError), Wire(doors.ports["SAFE"]) as wire:
            last_words(wire, random.Random(seed))
    log = doors.cluster.log("broker-1")
    assert [one for one in ("Traceback", "internal error", "ERROR") if one in log] == []
    AdminClient(doors.client(doors.a_user())).list_topics(timeout=PATIENCE_S)


def test_a_handshake_of_version_0_is_followed_by_bare_tokens(doors: Doors) -> None:
    import scramp  # type: ignore[import-untyped]

    client = scramp.ScramClient([MECHANISMS[0]], doors.a_user(), PASSWORD)
    with Wire(doors.ports["SAFE"]) as wire:
        wire.send(ApiKey.SASL_HANDSHAKE, 0, text(MECHANISMS[0]))
        assert struct.unpack_from(">h", wire.answer(), 4) == (0,)
        for make, take in (
            (client.get_client_first, client.set_server_first),
            (client.get_client_final, client.set_server_final),
        ):
            token = make().encode()
            wire._socket.sendall(struct.pack(">i", len(token)) + token)
            take(wire.answer().decode())
        _metadata(wire)
        assert len(wire.answer()) > 8


@pytest.mark.parametrize("door", ["CLIENT"])
def test_a_listener_without_sasl_refuses_the_handshake(doors: Doors, door: str) -> None:
    with Wire(doors.ports[door]) as wire:
        wire.send(ApiKey.SASL_HANDSHAKE, 1, text(MECHANISMS[0]))
        assert struct.unpack_from(">h", wire.answer(), 4) == (34,)


# -- secrets


@pytest.mark.feature("SE02", "SE24")
def test_no_place_shows_a_secret(doors: Doors, provider: IdentityProvider, tmp_path: Path) -> None:
    password, wrong, expired = "opens-all-doors", "opens-no-door", provider.token(exp=1)
    user, token = doors.a_user(password), provider.token()
    ways = [(mechanism, "TLS") for mechanism in (*MECHANISMS, "PLAIN")]
    for mechanism, door in ways:
        refused_with(doors.client(user, wrong, mechanism, door))
        with sync.Producer(**native(doors.client(user, password, mechanism, door))) as producer:
            assert producer.send("opened", b"value").partition == 0
    bearer = native(doors.client("", "", "OAUTHBEARER", "TLS"))
    with sync.Producer(**bearer, sasl_oauthbearer_token=lambda: token) as producer:
        producer.send("opened", b"value")
    refused = pytest.raises(AuthenticationError)
    with sync.Admin(**bearer, sasl_oauthbearer_token=lambda: expired) as admin, refused:
        admin.list_topics()
    with socket.create_connection((HOST, doors.ports["SAFE"]), timeout=PATIENCE_S) as one:
        one.sendall(struct.pack(">i", 60) + password.encode() * 4)  # no request at all
        one.recv(1)
    secrets = {
        PASSWORD, password, wrong, KEY_PASSWORD, token, expired, token.rpartition(".")[2],
        *(base64.b64encode(one.encode()).decode() for one in (password, wrong, KEY_PASSWORD)),
    }  # fmt: skip
    places = dict(shown(doors.cluster, tmp_path))
    assert [(at, one) for at, text in places.items() for one in secrets if one in text] == []
    kinds = {at.split()[0] for at, text in places.items() if user in text}
    assert kinds >= {"log", "znode", "REST", "bundle"}, "these show users"
