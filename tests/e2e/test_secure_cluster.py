"""What other tests show without logins, once against the cluster of ``tidemark dev up --secure``:
every client writes and reads, in groups and transactions, as a user with ACLs over TLS.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from e2e.client_matrix import KAFKA_CLIENTS, Client, Login, installed, logged_in, sample
from e2e.clusters import PATIENT, Cluster
from e2e.command_line import COMMAND
from kafka import KafkaAdminClient, KafkaConsumer
from tidemark.cli.dev.layout import HOST, Layout, Shape, free_port_block
from tidemark.cli.dev.secure import ADMIN, CLIENT, SecureFiles
from tidemark.client import ShareConsumer, TopicPartition, TransactionalProducer, sync
from tidemark.client.admin.types import AlterConfig, ConfigResource, NewTopic
from tidemark.client.errors import AuthorizationError
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.tls import TlsSettings, client_context
from waiting import PATIENCE_S, patience, wait_for

pytestmark = pytest.mark.e2e

SMALL = ["-n", "1", "--controllers", "1"]
PARTITIONS = 1


def dev(directory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [*COMMAND, "dev", *words, "--dir", str(directory), *PATIENT.get(words[0], ())]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


class Secure:
    """The cluster, and what the command has made for its clients."""

    def __init__(self, cluster: Cluster, uses: dict[str, str]) -> None:
        self.cluster = cluster
        self.uses = uses
        self.files = SecureFiles.of(cluster.layout)
        self.bootstrap = cluster.bootstrap
        self.logins = {user: self._login(user) for user in (ADMIN, CLIENT)}
        self.clients = logged_in(self.logins[CLIENT])

    def _login(self, user: str) -> Login:
        return Login(user, self.files.password(user).read_text().strip(), str(self.files.ca))

    def librdkafka(self, user: str = CLIENT) -> dict[str, Any]:
        """The configuration that was written for librdkafka."""
        lines = self.files.librdkafka(user).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def native(self, user: str = CLIENT) -> dict[str, Any]:
        return self.logins[user].tidemark

    def topic(self, name: str = "t") -> str:
        """A new topic of one partition."""
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        with sync.Admin(self.bootstrap, **self.native()) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        return topic

    def client(self, name: str) -> Client:
        installed(name)
        return self.clients[name]

    def tidemark(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
        """The command line in the cluster's directory, which is told nothing but this."""
        directory = self.cluster.layout.directory
        env = {**os.environ, "TIDEMARK_DIR": str(directory), **environment}
        return subprocess.run(
            [*COMMAND, *words], env=env, input=b"", capture_output=True, timeout=PATIENCE_S
        )


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    base = str(free_port_block())
    up = dev(directory, "up", "--secure", "--base-port", base, *SMALL, "-o", "json")
    shape = Shape.read(directory / "cluster.json")
    assert shape is not None, up.stderr
    cluster = Cluster(Layout(directory, shape))
    try:
        assert up.returncode == ExitCode.OK, up.stderr
        yield Secure(cluster, json.loads(up.stdout)["clients"])
    finally:
        cluster.end()


@pytest.fixture
def topic(secure: Secure) -> str:
    return secure.topic()


@pytest.mark.feature("SE25")
def test_a_secure_cluster_says_so_and_its_files_are_its_owners(secure: Secure) -> None:
    directory = secure.cluster.layout.directory
    rows = json.loads(dev(directory, "status", "-o", "json").stdout)
    assert {row["secure"] for row in rows} == {True}
    assert "secure: Kafka clients log in" in dev(directory, "status").stderr
    own = secure.files.directory
    modes = {stat.S_IMODE(path.stat().st_mode) for path in own.iterdir()}
    assert (modes, stat.S_IMODE(own.stat().st_mode)) == ({0o600}, 0o700)


@pytest.mark.feature("SE24", "SE25")
def test_no_password_is_in_logs_configurations_data_or_arguments(secure: Secure) -> None:
    directory = secure.cluster.layout.directory
    found = [path for path in directory.rglob("*") if path.is_file()]
    elsewhere = [path for path in found if secure.files.directory not in path.parents]
    words = [login.password.encode() for login in secure.logins.values()]
    assert len(elsewhere) > 10
    assert [path for path in elsewhere if any(word in path.read_bytes() for word in words)] == []
    for name in secure.cluster.running():
        arguments = Path(f"/proc/{secure.cluster.pid(name)}/cmdline").read_bytes()
        assert not any(word in arguments for word in words)


@pytest.mark.feature("SE25", "SE26")
@pytest.mark.parametrize("writer", KAFKA_CLIENTS)
def test_what_one_client_writes_every_client_reads(secure: Secure, topic: str, writer: str) -> None:
    client = secure.client(writer)
    written = sample(client, 0)
    client.write(secure.bootstrap, topic, written)
    for reader in secure.clients.values():
        found = reader.read(secure.bootstrap, topic, {0: len(written)})
        assert [(one.key, one.value, one.headers) for one in found] == [
            (message.key, message.value, reader.shown(message.headers)) for message in written
        ]


def read_by_group(consumer: Consumer, topic: str, count: int) -> list[bytes | None]:
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def is_read() -> bool:
        found.extend(each.value() for each in consumer.consume(count, 0.2))
        return len(found) >= count

    try:
        wait_for(is_read)
    finally:
        consumer.close()
    return found


@pytest.mark.feature("SE26")
def test_a_group_of_each_client_reads_and_commits(secure: Secure, topic: str) -> None:
    with sync.Producer(secure.bootstrap, **secure.native()) as producer:
        producer.send_many(topic, [(None, b"a"), (None, b"b")])
    of_group = {**secure.librdkafka(), "group.id": "g-rdkafka", "auto.offset.reset": "earliest"}
    assert read_by_group(Consumer(of_group), topic, 2) == [b"a", b"b"]
    by_kafka_python = KafkaConsumer(
        topic,
        bootstrap_servers=secure.bootstrap,
        group_id="g-kafka-python",
        auto_offset_reset="earliest",
        **secure.logins[CLIENT].kafka_python,
    )
    assert [next(by_kafka_python).value for _ in range(2)] == [b"a", b"b"]
    by_kafka_python.close()
    settings = {"group_id": "g-native", "auto_offset_reset": "earliest", **secure.native()}
    with sync.Consumer(secure.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(timeout_ms=200))
    with sync.Admin(secure.bootstrap, **secure.native()) as admin:
        for group in ("g-rdkafka", "g-kafka-python", "g-native"):
            assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 2


@pytest.mark.feature("SE26")
def test_transactions_of_librdkafka_and_of_the_native_client(secure: Secure, topic: str) -> None:
    producer = Producer({**secure.librdkafka(), "transactional.id": f"rdkafka-{topic}"})
    producer.init_transactions(PATIENCE_S)
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, value)
        end = producer.commit_transaction if value == b"committed" else producer.abort_transaction
        end(PATIENCE_S)

    async def native() -> None:
        settings = {"transactional_id": f"native-{topic}", **secure.native()}
        async with TransactionalProducer(secure.bootstrap, **settings) as own:
            await own.init()
            await own.begin()
            await own.send(topic, b"native")
            await own.commit()

    asyncio.run(native())
    own = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({**secure.librdkafka(), **own, "group.id": f"g-{topic}"})
    assert read_by_group(consumer, topic, 2) == [b"committed", b"native"]


@pytest.mark.feature("SE26")
def test_a_share_consumer_gets_and_accepts_records(secure: Secure, topic: str) -> None:
    group = f"share-{topic}"

    async def shared() -> list[bytes | None]:
        async with (
            patience(),
            ShareConsumer(secure.bootstrap, group_id=group, **secure.native()) as consumer,
        ):
            consumer.subscribe([topic])
            while not (found := await consumer.poll(timeout_ms=200)):
                pass
            return [each.value for each in found]

    with sync.Admin(secure.bootstrap, **secure.native(ADMIN)) as admin:
        resource = ConfigResource("group", group)
        admin.alter_configs({resource: [AlterConfig("share.auto.offset.reset", "earliest")]})
    with sync.Producer(secure.bootstrap, **secure.native()) as producer:
        producer.send_many(topic, [(None, b"shared")])
    assert asyncio.run(shared()) == [b"shared"]


@pytest.mark.feature("SE25")
def test_the_super_user_administers_and_the_client_does_not(secure: Secure, topic: str) -> None:
    mine = AdminClient(secure.librdkafka())
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        mine.delete_topics([topic])[topic].result(PATIENCE_S)
    with (
        sync.Admin(secure.bootstrap, **secure.native()) as admin,
        pytest.raises(AuthorizationError),
    ):
        admin.describe_acls()
    super_user = AdminClient(secure.librdkafka(ADMIN))
    super_user.delete_topics([topic])[topic].result(PATIENCE_S)
    every = KafkaAdminClient(
        bootstrap_servers=secure.bootstrap, **secure.logins[ADMIN].kafka_python
    )
    try:
        wait_for(lambda: topic not in every.list_topics())
    finally:
        every.close()


@pytest.mark.feature("SE25")
def test_the_command_line_finds_address_and_login_by_itself(secure: Secure, topic: str) -> None:
    assert topic.encode() in secure.tidemark("topic", "list").stdout
    as_client = {"TIDEMARK_PROFILES": str(secure.files.profiles), "TIDEMARK_PROFILE": CLIENT}
    assert topic.encode() in secure.tidemark("topic", "list", **as_client).stdout
    refused = secure.tidemark("topic", "delete", topic, "--yes", **as_client)
    assert refused.returncode == ExitCode.NO_PERMISSION, refused.stderr
    shown = secure.tidemark("profile", "show").stdout
    assert b"SASL_SSL" in shown
    assert secure.logins[ADMIN].password.encode() not in shown


@pytest.mark.feature("SE11", "SE25")
def test_rest_wants_a_password_that_the_command_line_has(secure: Secure, topic: str) -> None:
    listed = secure.tidemark("events", "list", "-o", "json")
    assert listed.returncode == ExitCode.OK, listed.stderr
    as_client = {"TIDEMARK_PROFILES": str(secure.files.profiles), "TIDEMARK_PROFILE": CLIENT}
    refused = secure.tidemark("events", "list", **as_client)
    assert refused.returncode == ExitCode.NO_PERMISSION, refused.stderr
    url = f"{secure.cluster.layout.rest_addresses}/v3/clusters"
    context = ssl.create_default_context(cafile=str(secure.files.ca))
    with pytest.raises(urllib.error.HTTPError, match="401") as stranger:
        urllib.request.urlopen(url, context=context, timeout=PATIENCE_S)
    stranger.value.close()


@pytest.mark.feature("SE25")
def test_the_command_for_kcat_works_as_printed(secure: Secure, topic: str) -> None:
    installed("kcat")
    words = secure.uses["kcat"].split()
    listed = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert f'topic "{topic}"' in listed.stdout, listed.stderr


@pytest.mark.feature("SE08", "SE25")
def test_a_certificate_is_a_login_too(secure: Secure, topic: str) -> None:
    """At the listener for certificates, and with the ACLs of the same user."""
    identity = str(secure.files.identity(CLIENT))
    client: dict[str, Any] = {
        "bootstrap.servers": secure.cluster.layout.mutual_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(secure.files.ca),
        "ssl.certificate.location": identity,
        "ssl.key.location": identity,
    }
    producer = Producer(client)
    producer.produce(topic, b"by certificate")
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient(client)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics([topic])[topic].result(PATIENCE_S)


@pytest.mark.feature("SE09", "SE10", "SE25")
def test_a_client_with_its_certificate_does_not_get_in_between_processes(secure: Secure) -> None:
    """At gRPC, the listener INTERNAL and ZooKeeper, whose authority is another one."""
    stranger = TlsSettings(secure.files.identity(ADMIN), ca=secure.files.process_ca)
    doors = {
        (member.name, use): port
        for member in secure.cluster.layout.members()
        for use, port in member.ports.items()
        if use in ("grpc", "internal") or member.kind == "zookeeper"
    }
    assert len(doors) >= 5
    for tls in (stranger, TlsSettings(ca=secure.files.process_ca)):
        for port in doors.values():
            assert is_turned_away(port, client_context(tls))
    for port in doors.values():
        assert is_turned_away(port, None)
    port = secure.cluster.layout.shape.ports.zookeeper
    assert not is_turned_away(port, client_context(secure.files.process_tls()))


def is_turned_away(port: int, context: ssl.SSLContext | None) -> bool:
    """Whether a connection is closed without an answer to ZooKeeper's word srvr; in plain text, to
    what is long enough to be no begin of TLS.
    """
    word = b"srvr" if context is not None else b"srvr" * 20
    with contextlib.suppress(ssl.SSLError, ConnectionError), contextlib.ExitStack() as opened:
        one = opened.enter_context(socket.create_connection((HOST, port), PATIENCE_S))
        if context is not None:
            context.set_alpn_protocols(["h2"])
            one = opened.enter_context(context.wrap_socket(one, server_hostname=HOST))
        one.sendall(word)
        return b"Mode:" not in b"".join(iter(lambda: one.recv(1_024), b""))
    return True


@pytest.mark.feature("SE25", "SE30")
def test_the_command_line_logs_in_over_grpc_too(secure: Secure, topic: str) -> None:
    shown = secure.tidemark("debug", "requests", "-o", "json")
    assert shown.returncode == ExitCode.OK, shown.stderr.decode()
    read = ("topic", "consume", topic, "--from", "earliest", "-e")
    with sync.Producer(secure.bootstrap, **secure.native()) as producer:
        producer.send_many(topic, [(None, b"over gRPC")])
    found = secure.tidemark(*read, "--transport", "grpc")
    assert (found.returncode, b"over gRPC" in found.stdout) == (ExitCode.OK, True), found.stderr
    as_client = {"TIDEMARK_PROFILES": str(secure.files.profiles), "TIDEMARK_PROFILE": CLIENT}
    refused = secure.tidemark("debug", "requests", **as_client)
    assert refused.returncode == ExitCode.NO_PERMISSION, refused.stderr


@pytest.mark.feature("SE25")
def test_a_stranger_is_refused(secure: Secure) -> None:
    for wrong in ({"security.protocol": "plaintext"}, {"sasl.password": "wrong"}):
        errors: list[confluent_kafka.KafkaError] = []
        producer = Producer({**secure.librdkafka(), **wrong, "error_cb": errors.append})
        while not errors:
            producer.poll(0.05)


@pytest.mark.feature("SE25")
def test_a_restart_keeps_users_certificates_and_what_was_changed(
    secure: Secure, topic: str
) -> None:
    directory = secure.cluster.layout.directory
    before = {path.name: path.read_bytes() for path in secure.files.directory.iterdir()}
    removed = secure.tidemark("acl", "remove", CLIENT, "describe-configs", "--topic", "*", "--yes")
    assert removed.returncode == ExitCode.OK, removed.stderr
    assert dev(directory, "down").returncode == ExitCode.OK
    up = dev(directory, "up")  # without --secure: it stays secure
    assert up.returncode == ExitCode.OK, up.stderr
    after = {path.name: path.read_bytes() for path in secure.files.directory.iterdir()}
    assert after == before
    listed = secure.tidemark("acl", "list", "--principal", CLIENT, "-o", "json").stdout
    assert "describe-configs" not in {row["operation"] for row in json.loads(listed)}
    with sync.Producer(secure.bootstrap, **secure.native()) as producer:
        producer.send_many(topic, [(None, b"after")])


@pytest.mark.feature("SE25")
def test_diagnosis_logs_in_at_the_controllers_too(secure: Secure, tmp_path: Path) -> None:
    shown = secure.tidemark("debug", "log-level", "-o", "json")
    assert shown.returncode == ExitCode.OK, shown.stderr.decode()
    rows = json.loads(shown.stdout)
    assert {"controller-1", "broker-1"} <= {row["process"] for row in rows}
    written = secure.tidemark("debug", "bundle", "--to", str(tmp_path / "bundle.zip"), "-o", "json")
    assert written.returncode == ExitCode.OK, written.stderr.decode()
    missing = [one for one in json.loads(written.stdout)["problems"] if "processes/" in str(one)]
    assert missing == []
    wrong = secure.tidemark(
        "debug", "log-level", "--process", "controller-1", TIDEMARK_SASL_USERNAME="nobody"
    )
    assert wrong.returncode == ExitCode.NO_PERMISSION, wrong.stderr.decode()
