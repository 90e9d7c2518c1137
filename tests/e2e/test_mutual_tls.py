"""Processes of a cluster that meet under mutual TLS, and strangers who do not get in."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from e2e.mutual import CHROOT, DIGEST, MutualCluster, mutual_cluster
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from tidemark.cli.dev.layout import HOST
from tidemark.cli.dev.zookeeper import find_jars, find_java
from tidemark.client import sync
from tidemark.client.errors import ClientError
from tidemark.model.errors import ErrorCode
from tidemark.runtime.zk_session import ZkAccessError, ZkSession
from tidemark_wire.v1 import controller_pb2, share_pb2, txn_pb2
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CALLED = {
    "controller-1": controller_pb2.DESCRIPTOR.services_by_name["Controller"],
    "controller-2": controller_pb2.DESCRIPTOR.services_by_name["Controller"],
    "txn-coordinator-1": txn_pb2.DESCRIPTOR.services_by_name["TransactionCoordinator"],
    "share-coordinator-1": share_pb2.DESCRIPTOR.services_by_name["ShareCoordinator"],
    "broker-1": txn_pb2.DESCRIPTOR.services_by_name["TransactionMarkers"],
}
"""A service of each process that has only other processes as callers."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutualCluster]:
    with mutual_cluster(tmp_path_factory.mktemp("mutual")) as started:
        for name in ("orders", "rotated", "secret"):
            create(started, name)
        allow(started, "alice", "orders")
        allow(started, "alice", "rotated")
        yield started


def create(cluster: MutualCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.kafka()})
    for made in admin.create_topics([NewTopic(topic, 1, 3)]).values():
        made.result(PATIENCE_S)


def allow(cluster: MutualCluster, user: str, topic: str) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    cluster_acl = AclBinding(
        ResourceType.BROKER,
        "kafka-cluster",
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": cluster.kafka()})
    for made in admin.create_acls([acl, cluster_acl]).values():
        made.result(PATIENCE_S)


def outcome(channel: grpc.Channel, service: Any, method: Any) -> grpc.StatusCode:
    """How a call with an empty request ends."""
    path = f"/{service.full_name}/{method.name}"
    try:
        if method.server_streaming:
            calls = channel.stream_stream(path, None, None)
            next(iter(calls(iter([b""]), timeout=PATIENCE_S)))
        else:
            channel.unary_unary(path, None, None)(b"", timeout=PATIENCE_S)
    except grpc.RpcError as refused:
        return refused.code()
    return grpc.StatusCode.OK


def address(cluster: MutualCluster, name: str) -> str:
    return f"{HOST}:{cluster.layout.member(name).ports['grpc']}"


# -- gRPC


@pytest.mark.feature("SE09")
@pytest.mark.parametrize("name", CALLED)
def test_a_certificate_of_the_same_authority_is_no_process(
    cluster: MutualCluster, name: str
) -> None:
    service = CALLED[name]
    stranger = cluster.identity("mallory").credentials()
    with grpc.secure_channel(address(cluster, name), stranger) as channel:
        found = {one.name: outcome(channel, service, one) for one in service.methods}
    assert set(found.values()) == {grpc.StatusCode.PERMISSION_DENIED}, found


@pytest.mark.feature("SE09")
@pytest.mark.parametrize("name", CALLED)
def test_without_a_certificate_there_is_no_connection(cluster: MutualCluster, name: str) -> None:
    anonymous = grpc.ssl_channel_credentials(Path(cluster.node.ca).read_bytes())
    service = CALLED[name]
    for credentials in (anonymous, None):
        with (
            grpc.insecure_channel(address(cluster, name))
            if credentials is None
            else grpc.secure_channel(address(cluster, name), credentials)
        ) as channel:
            assert outcome(channel, service, service.methods[0]) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.feature("SE09")
def test_a_client_over_grpc_may_do_what_acls_allow_its_certificate(cluster: MutualCluster) -> None:
    alice, mallory = (cluster.identity(name).client() for name in ("alice", "mallory"))
    with sync.Producer(cluster.grpc(), transport="grpc", **alice) as producer:
        assert producer.send("orders", b"mine").offset >= 0
        with pytest.raises(ClientError) as refused:
            producer.send("secret", b"not mine")
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with (
        pytest.raises(ClientError, match="AUTHORIZATION_FAILED"),
        sync.Producer(cluster.grpc(), transport="grpc", **mallory) as producer,
    ):
        producer.send("orders", b"not mine")


def audited_logins(cluster: MutualCluster, name: str) -> list[Any]:
    """Events of logins in the log of a process."""
    lines = cluster.log(name).splitlines()
    events = [json.loads(json.loads(one)["event"]) for one in lines if '"event"' in one]
    return [one for one in events if one["class_uid"] == 3_002]


@pytest.mark.feature("SE09", "SE23")
def test_the_audit_of_a_controller_has_a_stranger_that_was_refused(cluster: MutualCluster) -> None:
    name = "controller-1"
    stranger, service = cluster.identity("eve").credentials(), CALLED[name]
    with grpc.secure_channel(address(cluster, name), stranger) as channel:
        outcome(channel, service, service.methods[0])

    def refused() -> bool:
        return any(
            one["status"] == "Failure" and "User:eve " in one["status_detail"]
            for one in audited_logins(cluster, name)
        )

    wait_for(refused)


@pytest.mark.feature("SE23", "SE30")
@pytest.mark.parametrize("server", ["grpc.listen", "GRPC"])
def test_the_audit_has_a_client_over_grpc_once_for_each_connection(
    cluster: MutualCluster, server: str
) -> None:
    own = cluster.layout.member("broker-1").ports["grpc"]
    of_clients = cluster.clients_ports["broker-1"]
    address = f"{HOST}:{own if server == 'grpc.listen' else of_clients}"
    user = f"carol-{server.partition('.')[0].lower()}"
    allow(cluster, user, "orders")
    sent = 20

    def logins() -> list[int]:
        return [
            one["count"]
            for one in audited_logins(cluster, "broker-1")
            if (one["service"]["name"], one["user"]["name"]) == (server, user)
            and one["status"] == "Success"
        ]

    settings = cluster.identity(user).client()
    with sync.Producer(address, transport="grpc", **settings) as producer:
        producer.send("orders", b"mine")
    with sync.Consumer(address, transport="grpc", **settings) as consumer:
        for _ in range(sent):
            consumer.beginning_offsets([("orders", 0)])
        wait_for(lambda: sum(logins()) >= 2)
    assert sum(logins()) < sent


def shown_serial(cluster: MutualCluster, name: str) -> int:
    """Serial number of the certificate that a process shows to a new connection."""
    context = ssl.create_default_context(cafile=cluster.node.ca)
    context.load_cert_chain(cluster.node.certificate, cluster.node.key)
    context.set_alpn_protocols(["h2"])
    port = cluster.layout.member(name).ports["grpc"]
    with (
        socket.create_connection((HOST, port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


@pytest.mark.feature("SE09")
def test_certificates_are_replaced_under_load_without_a_failed_request(
    cluster: MutualCluster,
) -> None:
    alice = cluster.identity("alice")
    sent, stop, failures = [0], threading.Event(), list[ClientError]()

    def load() -> None:
        try:
            with sync.Producer(cluster.grpc(), transport="grpc", **alice.client()) as producer:
                while not stop.is_set():
                    producer.send("rotated", b"under load")
                    sent[0] += 1
        except ClientError as problem:
            failures.append(problem)

    worker = threading.Thread(target=load)
    worker.start()
    try:
        wait_for(lambda: sent[0] > 10 or failures)
        before = shown_serial(cluster, "broker-1")
        cluster.node.renew()
        alice.renew()
        wait_for(lambda: before not in {shown_serial(cluster, name) for name in CALLED})
        create(cluster, f"made-after-{sent[0]}")
        seen = sent[0]
        wait_for(lambda: sent[0] > seen + 10 or failures)
    finally:
        stop.set()
        worker.join()
    assert failures == []


@pytest.mark.feature("SE09", "SE10")
def test_a_controller_that_is_killed_is_replaced(cluster: MutualCluster) -> None:
    def active() -> str:
        with cluster.zookeeper(DIGEST) as client:
            path = f"{CHROOT}/controller"
            return client.get(path)[0].decode() if client.exists(path) else ""

    def port(name: str) -> str:
        return str(cluster.layout.member(name).ports["grpc"])

    killed = next(name for name in ("controller-1", "controller-2") if port(name) in active())
    cluster.kill(killed)
    wait_for(lambda: not cluster.is_supervised(killed))
    assert "not recorded" not in cluster.log(killed)  # over TLS, and as the cluster's user
    wait_for(lambda: port(killed) not in active())
    create(cluster, "made-by-the-next-controller")
    cluster.restart(killed)


# -- the listener INTERNAL


def internal(cluster: MutualCluster, files: dict[str, str]) -> AdminClient:
    """A client of the listener for other brokers."""
    port = cluster.layout.member("broker-1").ports["internal"]
    own = {"ssl.ca.location": cluster.node.ca, **files}
    return AdminClient({"bootstrap.servers": f"{HOST}:{port}", "security.protocol": "ssl", **own})


@pytest.mark.feature("SE09")
def test_brokers_replicate_over_tls(cluster: MutualCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka(), "acks": "all"})
    for _ in range(100):
        producer.produce("secret", bytes(100_000))
    assert producer.flush(PATIENCE_S) == 0
    described = AdminClient({"bootstrap.servers": cluster.kafka()}).list_topics("secret")
    (partition,) = described.topics["secret"].partitions.values()
    assert sorted(partition.isrs) == [1, 2, 3]


@pytest.mark.feature("SE09")
def test_a_stranger_at_the_internal_listener_is_no_process(cluster: MutualCluster) -> None:
    port = cluster.layout.member("broker-1").ports["internal"]
    nobody = ssl.create_default_context(cafile=cluster.node.ca)
    with (
        socket.create_connection((HOST, port), PATIENCE_S) as plain,
        contextlib.suppress(ssl.SSLError, ConnectionError),
        nobody.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        assert secured.recv(1) == b""  # closed, if not with an alert
    stranger = internal(cluster, cluster.identity("mallory").options("ssl"))
    assert "secret" not in stranger.list_topics(timeout=PATIENCE_S).topics
    (made,) = stranger.create_topics([NewTopic("theirs", 1, 1)]).values()
    with pytest.raises(KafkaException) as refused:
        made.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.feature("SE09")
def test_rest_reaches_brokers_over_tls(cluster: MutualCluster) -> None:
    port = cluster.layout.member("controller-1").ports["rest"]
    with urllib.request.urlopen(f"http://{HOST}:{port}/v3/clusters", timeout=PATIENCE_S) as answer:
        found = json.load(answer)["data"][0]["cluster_id"]
    url = f"http://{HOST}:{port}/v3/clusters/{found}/brokers/1/configs"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        assert json.load(answer)["data"]


# -- ZooKeeper


def every_path(client: Any, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from every_path(client, f"{path}/{name}")


def allowed(client: Any, path: str) -> list[str]:
    """What a client may do to a znode; a znode that is gone allows nothing."""
    attempts: dict[str, Callable[[], Any]] = {
        "read": lambda: client.get(path),
        "list": lambda: client.get_children(path),
        "read the ACL of": lambda: client.get_acls(path),
        "write": lambda: client.set(path, b"mine"),
        "create below": lambda: client.create(f"{path}/mine"),
        "take over": lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
    }
    found = []
    for what, attempt in attempts.items():
        try:
            attempt()
        except NoAuthError:
            continue
        found.append(f"{what} {path}")
    return found


@pytest.mark.feature("SE10")
@pytest.mark.parametrize("credential", [None, "tidemark:guessed", "mallory:of-the-cluster"])
def test_a_stranger_neither_reads_nor_writes_any_znode(
    cluster: MutualCluster, credential: str | None
) -> None:
    with cluster.zookeeper(DIGEST) as ours, cluster.zookeeper(credential) as theirs:
        paths = list(every_path(ours, CHROOT))
        assert len(paths) > 20
        assert [what for path in paths for what in allowed(theirs, path)] == []


@pytest.mark.feature("SE10")
def test_zookeepers_own_shell_sets_the_acl_of_a_tree_that_exists(cluster: MutualCluster) -> None:
    """As docs/operating/security.md says, for a cluster that had no ACLs."""
    tree = "/before"
    with cluster.zookeeper(None) as anybody:
        for path in (tree, f"{tree}/topics", f"{tree}/topics/orders"):
            anybody.create(path, b"content", acl=OPEN_ACL_UNSAFE)
    port = cluster.layout.shape.ports.zookeeper
    shell = [find_java(), "-cp", f"{find_jars()}/*", "org.apache.zookeeper.ZooKeeperMain"]
    words = f"addauth digest {DIGEST}\nsetAcl -R {tree} auth:tidemark:cdrwa\nquit\n"
    done = subprocess.run(
        [*shell, "-server", f"{HOST}:{port}"],
        input=words,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    with cluster.zookeeper(DIGEST) as ours, cluster.zookeeper(None) as anybody:
        paths = list(every_path(ours, tree))
        assert len(paths) == 3
        assert [what for path in paths for what in allowed(anybody, path)] == [], done.stderr
        assert {ours.get(path)[0] for path in paths} == {b"content"}


@pytest.mark.feature("SE10")
def test_a_wrong_user_is_told_what_to_check(cluster: MutualCluster, tmp_path: Path) -> None:
    wrong = tmp_path / "digest"
    wrong.write_text("tidemark:guessed")

    async def start() -> None:
        await ZkSession(cluster.zookeeper_connect, access=cluster.access(wrong)).start()

    with pytest.raises(ZkAccessError, match=r"ZooKeeper refuses .* check zookeeper\.digest\.file"):
        asyncio.run(start())
