"""Topics, users and ACLs of the chart's provisioning, at a cluster of ``tidemark dev up --secure``:
by the document that the chart renders, with the settings of the Job's pod.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from e2e.clusters import START_SECONDS, Cluster
from helm.chart import Manifest, containers, named, pods, rendered
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import ADMIN, SecureFiles
from tidemark.cli.failure import CommandError
from tidemark.cli.k8s.provisioning import Task, provision
from tidemark.client import sync
from tidemark.client.admin.types import ConfigResource
from tidemark.client.errors import AuthenticationError, AuthorizationError
from tidemark.model.acls import AclBinding, AclFilter
from waiting import wait_for

pytestmark = pytest.mark.e2e

VALUES = Path(__file__).parents[1] / "helm/values/provisioning.yaml"
PASSWORD = "first-of-"


class Kept:
    """Notes of the runs of a test."""

    def __init__(self) -> None:
        self.acls: frozenset[AclBinding] = frozenset()

    def read(self) -> frozenset[AclBinding]:
        return self.acls

    def write(self, acls: frozenset[AclBinding]) -> None:
        self.acls = acls


class World:
    """A secured cluster, and the files that the Job's pod mounts."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.files = SecureFiles.of(cluster.layout)
        self.notes = Kept()
        (found,) = (it for it in pods(self.manifests) if it[0] == "demo-provisioning-1")
        (self.container,) = containers(found[1])
        text = named(self.manifests, "ConfigMap", "demo-provisioning")["data"]["wanted.yaml"]
        self.document: dict[str, Any] = yaml.safe_load(text)
        self.document["topics"][0]["replicationFactor"] = 1  # there is one broker
        for user in self.document["users"]:
            (directory / user["name"]).write_text(f"{PASSWORD}{user['name']}\n")

    @property
    def manifests(self) -> list[Manifest]:
        return rendered(VALUES)

    def run(self) -> list[str]:
        """Provision as the Job does."""
        file = self.directory / "wanted.yaml"
        file.write_text(yaml.safe_dump(self.document))
        return provision(Task(file, self.directory, self.cluster.bootstrap, 60), self.notes)

    def login(self, user: str, password: str) -> dict[str, Any]:
        tls = {"security_protocol": "SASL_SSL", "ssl_ca_location": str(self.files.ca)}
        return {**tls, "sasl_username": user, "sasl_password": password}

    def admin(self) -> sync.Admin:
        password = self.files.password(ADMIN).read_text().strip()
        return sync.Admin(self.cluster.bootstrap, **self.login(ADMIN, password))

    def logs_in(self, user: str, password: str) -> bool:
        try:
            with sync.Admin(self.cluster.bootstrap, **self.login(user, password)) as admin:
                admin.describe_cluster()
        except AuthenticationError:
            return False
        return True


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    layout = Layout.on_free_ports(
        tmp_path / "cluster", brokers=1, controllers=1, txn_coordinators=0, is_secure=True
    )
    cluster = Cluster(layout)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    world = World(cluster, mounted)
    places = {
        "TIDEMARK_SSL_CA_LOCATION": str(world.files.ca),
        "TIDEMARK_SASL_PASSWORD_FILE": str(world.files.password(ADMIN)),
    }
    settings = {it["name"]: it["value"] for it in world.container["env"]}
    assert places.keys() <= settings.keys()
    for name, value in {**settings, **places, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    try:
        cluster.start(START_SECONDS)
        yield world
    finally:
        cluster.end()


@pytest.mark.feature("KU20")
def test_a_second_run_changes_nothing_and_later_ones_only_what_differs(world: World) -> None:
    assert len(world.run()) == 10
    names = [user["name"] for user in world.document["users"]]
    wait_for(lambda: all(world.logs_in(name, f"{PASSWORD}{name}") for name in names))
    wait_for(lambda: len(acls(world)) >= 6)
    assert world.run() == []

    produced = world.login("alice", f"{PASSWORD}alice")
    with sync.Producer(world.cluster.bootstrap, **produced) as producer:
        producer.send("orders", b"kept", b"key", partition=0)
        with pytest.raises(AuthorizationError):
            producer.send("clicks", b"not allowed", partition=0)

    topic = world.document["topics"][0]
    topic |= {"partitions": 8, "config": {"retention.ms": "5000", "cleanup.policy": "compact"}}
    (world.directory / "alice").write_text("second\n")
    world.document["users"][0]["acls"] = world.document["users"][0]["acls"][:1]
    changed = world.run()
    assert sorted(line.split(" to ")[0] for line in changed) == [
        "ACL removed: allow idempotent-write on cluster kafka-cluster",
        "ACL removed: allow read on group app-*",
        "topic orders has 8 partitions",
        "topic orders has retention.ms=5000",
        "user alice has the password of the Secret",
    ]
    wait_for(lambda: world.logs_in("alice", "second"))
    wait_for(lambda: len(acls(world)) == 4)
    wait_for(lambda: settings_of(world)["retention.ms"] == "5000")
    assert world.run() == []
    with world.admin() as admin:
        described = admin.describe_topics(["orders"])["orders"]
        assert len(described.partitions) == 8
    login = world.login("alice", "second")
    with sync.Consumer(world.cluster.bootstrap, auto_offset_reset="earliest", **login) as consumer:
        consumer.assign([("orders", 0)])
        found: list[bytes | None] = []
        while not found:
            found += [record.value for record in consumer.poll(1, timeout_ms=500)]
    assert found == [b"kept"]

    topic["partitions"] = 2
    with pytest.raises(CommandError, match="partitions are never removed"):
        world.run()


def acls(world: World) -> list[AclBinding]:
    """ACLs of the provisioned principals."""
    principals = {"User:alice", "User:CN=batch"}
    with world.admin() as admin:
        found = admin.describe_acls(AclFilter())
    return [one for one in found if one.entry.principal in principals]


def settings_of(world: World) -> dict[str, str | None]:
    """Settings of the topic that is provisioned first."""
    resource = ConfigResource("topic", "orders")
    with world.admin() as admin:
        found = admin.describe_configs([resource])[resource]
    return {name: entry.value for name, entry in found.items()}
