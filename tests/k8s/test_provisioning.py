"""Topics, users and ACLs by values, in a cluster: made once, kept by upgrades."""

from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL
from k8s.release import Client, Release, write_values
from k8s.runbook import Runbook
from waiting import PATIENCE_S

TOPIC: Final = {"name": "provisioned", "partitions": 2, "config": {"retention.ms": 86400000}}
READ: Final = {"topic": "provisioned", "operations": ["describe", "read"]}
PROVISIONING: Final = {
    "enabled": True,
    "topics": [TOPIC],
    "users": [{"name": "eve", "acls": [READ]}],
}


def install(release: Release, path: Path, provisioning: dict[str, Any]) -> str:
    """Upgrade, wait for the Job, and return what it logged."""
    release.install(write_values(path, external=EXTERNAL, provisioning=provisioning))
    name = f"job/{release.name}-provisioning-{release.revision()}"
    wait_for(
        lambda: "Complete" in release.kubectl("get", name, "-o", "jsonpath={.status.conditions}")
    )
    return release.kubectl("logs", name)


def client(release: Release) -> Client:
    """Configuration of a client outside, by the Secret of the user."""
    lines = release.secret(f"{release.name}-user-eve", "client.conf").splitlines()
    found: Client = {name: value for name, _, value in (line.partition("=") for line in lines)}
    del found["ssl.ca.location"]
    authority = release.secret(f"{release.name}-user-eve", "ca.crt")
    return {**found, "bootstrap.servers": release.outside, "ssl.ca.pem": authority}


@pytest.mark.feature("KU20")
def test_topics_users_and_acls_are_made_once_and_acls_that_are_no_longer_named_go(
    release: Release, tmp_path: Path
) -> None:
    number = release.revision()
    install(release, tmp_path / "first.yaml", PROVISIONING)
    commands = Runbook(
        "Topics, users and ACLs by values",
        tmp_path,
        REVISION=str(release.revision()),
        billing="eve",
    )
    assert "provisioned" in commands.next("kubectl -n demo logs")
    assert "ScramLoginModule" in commands.next("kubectl -n demo get secret demo-user-eve")
    commands.check_done()
    seen = AdminClient(client(release)).list_topics(timeout=PATIENCE_S).topics
    assert len(seen["provisioned"].partitions) == 2
    again = install(release, tmp_path / "second.yaml", PROVISIONING)
    assert "topics, users and ACLs are as they are wanted" in again
    without = install(release, tmp_path / "third.yaml", {"enabled": True, "topics": [TOPIC]})
    assert without.count("ACL removed") == 2
    release.rollback(number)
    release.wait_updated()
