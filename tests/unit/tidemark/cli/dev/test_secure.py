"""Files of a secure development cluster."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark.cli.dev.grants import bindings
from tidemark.cli.dev.layout import Layout, Ports, Shape
from tidemark.cli.dev.secure import ADMIN, CLIENT, USERS, SecureFiles, client_uses, prepare
from tidemark.cli.failure import CommandError
from tidemark.model.acls import AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import (
    SUPPORTED_OPERATIONS,
    Operation,
    Requester,
    Resource,
    ResourceType,
)
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy

pytestmark = pytest.mark.feature("SE25")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "cluster", Shape(is_secure=True))


def contents(files: SecureFiles) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files.directory.iterdir()}


def test_only_the_owner_may_read_what_is_made(layout: Layout) -> None:
    prepare(layout)
    own = SecureFiles.of(layout)
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.directory.iterdir()} == {0o600}
    assert stat.S_IMODE(own.directory.stat().st_mode) == 0o700


def test_a_second_start_keeps_everything(layout: Layout) -> None:
    prepare(layout)
    before = contents(SecureFiles.of(layout))
    prepare(layout)
    assert contents(SecureFiles.of(layout)) == before


def test_other_ports_change_the_clients_configurations_alone(layout: Layout) -> None:
    prepare(layout)
    files = SecureFiles.of(layout)
    before = contents(files)
    prepare(replace(layout, shape=Shape(is_secure=True, ports=Ports.from_base(21_000))))
    changed = {name for name, content in contents(files).items() if before[name] != content}
    of_clients = (files.java, files.spark, files.java_mutual, files.librdkafka)
    written = {path(user).name for user in USERS for path in of_clients}
    assert changed == written | {"profiles.json"}
    assert b"127.0.0.1:21030" in contents(files)["client.conf"]


def test_passwords_differ_and_are_those_of_the_first_users(layout: Layout) -> None:
    prepare(layout)
    files = SecureFiles.of(layout)
    lines = files.users.read_text().splitlines()
    words = {user: files.password(user).read_text().strip() for user in USERS}
    assert lines == [f"{user}:{word}" for user, word in words.items()]
    assert words[ADMIN] != words[CLIENT]
    assert min(map(len, words.values())) >= 32


def test_a_start_that_was_cut_off_is_begun_anew(layout: Layout) -> None:
    scratch = layout.directory / "secure.new"
    scratch.mkdir(parents=True)
    (scratch / "users").write_text("half")
    prepare(layout)
    assert not scratch.exists()
    assert SecureFiles.of(layout).users.read_text() != "half"


def test_a_directory_from_before_the_processes_had_certificates_gets_them(layout: Layout) -> None:
    prepare(layout)
    files = SecureFiles.of(layout)
    before = contents(files)
    for path in (files.process, files.process_ca):
        path.unlink()
    prepare(layout)
    after = contents(files)
    assert {name for name in before if after[name] != before[name]} == {
        files.process.name,
        files.process_ca.name,
    }
    files.process.unlink()
    with pytest.raises(CommandError, match=r"process\.pem is missing"):
        prepare(layout)


def test_a_missing_file_is_named(layout: Layout) -> None:
    prepare(layout)
    SecureFiles.of(layout).broker.unlink()
    with pytest.raises(CommandError, match=r"broker\.pem is missing"):
        prepare(layout)


def test_a_file_that_others_may_read_is_refused(layout: Layout) -> None:
    prepare(layout)
    SecureFiles.of(layout).users.chmod(0o644)
    with pytest.raises(CommandError, match=r"others may read .*users"):
        prepare(layout)


def test_printed_commands_name_files_and_no_password(layout: Layout) -> None:
    prepare(layout)
    files = SecureFiles.of(layout)
    printed = "\n".join(client_uses(layout).values())
    assert all(files.password(user).read_text().strip() not in printed for user in USERS)
    assert str(files.java(CLIENT)) in printed


RESOURCES = {
    ResourceType.TOPIC: "orders",
    ResourceType.GROUP: "readers",
    ResourceType.TRANSACTIONAL_ID: "writer",
    ResourceType.CLUSTER: "kafka-cluster",
}


ALLOWED = {
    (ResourceType.TOPIC, Operation.READ),
    (ResourceType.TOPIC, Operation.WRITE),
    (ResourceType.TOPIC, Operation.CREATE),
    (ResourceType.TOPIC, Operation.DESCRIBE),
    (ResourceType.TOPIC, Operation.DESCRIBE_CONFIGS),
    (ResourceType.GROUP, Operation.READ),
    (ResourceType.GROUP, Operation.DESCRIBE),
    (ResourceType.TRANSACTIONAL_ID, Operation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    (ResourceType.CLUSTER, Operation.IDEMPOTENT_WRITE),
}
"""Describe is implied."""


def test_the_client_may_write_and_read_and_change_nothing_else() -> None:
    acls: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for pattern, entry in bindings():
        assert entry.permission is Permission.ALLOW
        acls[pattern] = acls.get(pattern, frozenset()) | {entry}
    policy = AclPolicy(frozenset({f"User:{ADMIN}"}), False)
    decides = AclAuthorizer(policy, acls).authorize
    client = Requester(f"User:{CLIENT}", "127.0.0.1")
    allowed = {
        (kind, operation)
        for kind, name in RESOURCES.items()
        for operation in SUPPORTED_OPERATIONS[kind]
        if decides(client, operation, Resource(kind, name))
    }
    assert allowed == ALLOWED
