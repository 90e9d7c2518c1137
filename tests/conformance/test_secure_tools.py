"""Kafka's own tools with the files that ``tidemark dev up --secure`` writes for Java clients.
Run by ``make conformance``.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.java_programs import JavaPrograms, build
from conformance.kafka_tools import KafkaTools, kafka_tools
from e2e.clusters import START_SECONDS, Cluster
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import ADMIN, CLIENT, SecureFiles

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.feature("SE25")]


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure")
    own = Cluster(Layout.on_free_ports(directory, brokers=1, controllers=1, is_secure=True))
    try:
        own.start(START_SECONDS)
        yield own
    finally:
        own.end()


@pytest.fixture(scope="module")
def tools(programs: JavaPrograms, cluster: Cluster) -> Iterator[KafkaTools]:
    with kafka_tools(programs, cluster.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def files(cluster: Cluster) -> SecureFiles:
    return SecureFiles.of(cluster.layout)


def with_config(file: Path) -> tuple[str, str]:
    return "--command-config", str(file)


def test_a_user_writes_and_reads_over_tls(tools: KafkaTools, files: SecureFiles) -> None:
    topic, login = f"t-{uuid.uuid4().hex[:8]}", with_config(files.java(CLIENT))
    assert tools("kafka-topics", "--create", "--topic", topic, *login).status == 0
    sent = tools("kafka-console-producer", "--topic", topic, *login, stdin="a\nb\n")
    assert sent.status == 0, sent.error
    wanted = ("--topic", topic, "--from-beginning", "--max-messages", "2")
    assert tools("kafka-console-consumer", *wanted, *login).lines() == ["a", "b"]
    refused = tools("kafka-topics", "--delete", "--topic", topic, *login)
    assert (refused.status, "Authorization failed" in refused.out + refused.error) == (1, True)


def test_the_super_user_lists_what_the_other_may_do(tools: KafkaTools, files: SecureFiles) -> None:
    listed = tools("kafka-acls", "--list", *with_config(files.java(ADMIN)))
    assert f"(principal=User:{CLIENT}, host=*, operation=WRITE, permissionType=ALLOW)" in listed.out
    users = ("--describe", "--entity-type", "users")
    described = tools("kafka-configs", *users, *with_config(files.java(ADMIN)))
    assert f"SCRAM credential configs for user-principal '{CLIENT}' are" in described.out


def test_a_certificate_is_a_login(tools: KafkaTools, cluster: Cluster, files: SecureFiles) -> None:
    own = ("--bootstrap-server", cluster.layout.mutual_bootstrap)
    login = with_config(files.java_mutual(ADMIN))
    assert tools.plain("kafka-acls", *own, "--list", *login).status == 0
    others = with_config(files.java_mutual(CLIENT))
    refused = tools.plain("kafka-acls", *own, "--list", *others)
    assert (refused.status, "AuthorizationException" in refused.out + refused.error) == (1, True)
