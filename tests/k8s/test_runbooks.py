"""Commands of docs/operating/kubernetes.md that no other test here has a reason to run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from k8s.cluster_waiting import wait_for
from k8s.load import Load
from k8s.node_disk import NodeDisk
from k8s.release import Manifest, Release, is_ready, run
from k8s.runbook import Runbook
from k8s.test_disks import ORDINAL, disk
from k8s.test_nodes import MANY, broker, load, node_names
from k8s.test_security import shown
from waiting import PATIENCE_MS, PATIENCE_S

__all__ = ["disk", "load"]

CHUNK = b"x" * 500_000


@pytest.mark.feature("SE29")
def test_configuration_password_and_a_certificate_at_once(release: Release, tmp_path: Path) -> None:
    release.kubectl("delete", "job", "renew-now", "--ignore-not-found")
    before = shown(release)
    commands = Runbook("Certificates and logins", tmp_path)
    commands.next("kubectl -n demo get secret demo-client")
    assert "ScramLoginModule" in (tmp_path / "client.properties").read_text()
    assert commands.next("kubectl -n demo get secret demo-admin") == release.secret(
        "demo-admin", "password"
    )
    commands.rest()
    wait_for(lambda: shown(release).serial_number != before.serial_number)


@pytest.mark.feature("KU15")
def test_a_roll_is_followed_and_continued(release: Release, tmp_path: Path) -> None:
    release.wait_ready()
    commands = Runbook("Upgrade and roll back", tmp_path)
    assert f"{release.name}-roll-" in commands.next("kubectl -n demo get job")
    commands.next("kubectl -n demo logs")
    assert f"{release.name}-broker-0" in commands.next("tidemark k8s status")
    commands.next("tidemark k8s roll")
    commands.check_done()


@pytest.fixture
def without_majority(release: Release) -> Iterator[list[Manifest]]:
    """Pods of two of three ZooKeeper servers, which have ended and are not made again."""
    gone = release.pods("zookeeper")[:2]
    run("kubectl", "cordon", *node_names(gone))
    for pod in gone:
        release.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    yield gone
    run("kubectl", "uncordon", *node_names(gone))
    release.wait_ready()


def test_writes_go_on_while_zookeeper_has_no_majority(
    release: Release, load: Load, without_majority: list[Manifest], tmp_path: Path
) -> None:
    with load:
        wait_for(lambda: not any(is_ready(pod) for pod in release.pods("zookeeper")))
        seen = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > seen + MANY)
        shown_pods = Runbook("ZooKeeper has no majority", tmp_path).next("kubectl -n demo get pods")
        assert shown_pods.count("0/1") == len(release.pods("zookeeper"))
        run("kubectl", "uncordon", *node_names(without_majority))
        release.wait_ready()
    load.check()


@pytest.mark.feature("KU13")
def test_a_full_disk_has_space_again_when_retention_is_shortened(
    release: Release, disk: NodeDisk, tmp_path: Path
) -> None:
    if release.says("topic", "describe", "first"):
        release.tidemark("topic", "delete", "first", "--yes")
    small = ("-c", "segment.bytes=1048576", "-c", "file.delete.delay.ms=1000")
    leading = ("--partitions", "6", "--replication-factor", "1")
    release.tidemark("topic", "create", "first", *leading, *small)
    filled = Filler(release, "first")
    wait_for(filled.is_refused, f"the disk does not get full: {disk}")
    wait_for(lambda: not is_ready(broker(release, ORDINAL)), "it serves no write, and is ready")
    assert [is_ready(it) for it in release.pods("broker")].count(False) == 1
    commands = Runbook("A disk is full", tmp_path)
    assert f"/data/disk{0}/log" in commands.next("kubectl -n demo exec")
    commands.next("kubectl -n demo exec")
    wait_for(filled.is_taken, "no write is taken")
    wait_for(lambda: is_ready(broker(release, ORDINAL)), "it serves writes, and is not ready")
    release.tidemark("topic", "delete", "first", "--yes")


class Filler:
    """A producer that fills the disk of the broker with the small one."""

    def __init__(self, release: Release, topic: str) -> None:
        self._topic = topic
        self._errors: list[str] = []
        self._client = {**release.client(), "message.timeout.ms": PATIENCE_MS // 10}
        leaders = Producer(self._client).list_topics(topic, timeout=PATIENCE_S).topics[topic]
        found = leaders.partitions.items()
        self._partition = next(number for number, each in found if each.leader == ORDINAL)

    def _write(self, count: int) -> bool:
        self._errors.clear()
        producer = Producer(self._client)
        for _ in range(count):
            producer.produce(
                self._topic,
                CHUNK,
                partition=self._partition,
                on_delivery=lambda error, _: self._errors.append(str(error)) if error else None,
            )
        producer.flush(PATIENCE_S)
        return not self._errors

    def is_refused(self) -> bool:
        """True once a write of 20 MB fails."""
        return not self._write(40)

    def is_taken(self) -> bool:
        """True once a write is acknowledged."""
        return self._write(1)
