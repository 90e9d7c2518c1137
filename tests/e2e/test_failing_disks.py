"""Disks that fail, or do not keep what was synced, where two other replicas are healthy: the
partition moves, nothing acknowledged is lost, and the broker comes back as a follower that cuts
nobody.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from broker.storage import checkpoint
from confluent_kafka.admin import NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.disk_fixtures import Ext4, ext4, ext4_problem, skip_if
from e2e.test_replication import Sent, Topic, send
from tidemark.model.topics import TopicPartition
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.os_disk import OsDisk
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUICK: Final = (
    *("--replica.lag.time.max.ms", "60000", "--replica.fetch.backoff.ms", "200"),
    *("--log.flush.interval.ms", "300", "--log.flush.offset.checkpoint.interval.ms", "300"),
)
"""Nobody leaves an ISR because it lags: who is out of it was taken out."""


class LedByFirst(Topic):
    """Its first replica is on broker 1."""

    def _as_asked(self, configs: dict[str, str]) -> NewTopic:
        return NewTopic(self.name, 1, replica_assignment=[[1, 2, 3]], config=configs)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("failing"), 3, *QUICK) as started:
        yield started


@pytest.fixture
def whole(brokers: list[BrokerProcess]) -> list[BrokerProcess]:
    """All three, each over its own directory."""
    for broker in brokers:
        if broker.log_dirs != str(broker.data):
            restart(broker, str(broker.data))
        elif not broker.is_running:
            broker.start()
    for broker in brokers:
        broker.wait_ready()
    return brokers


def restart(broker: BrokerProcess, log_dirs: str) -> None:
    """Over other directories."""
    broker.stop()
    broker.log_dirs = log_dirs
    broker.start()
    broker.wait_ready()


def repaired(disk: Ext4) -> None:
    """Unmounted, checked, mounted: in the same boot of the kernel."""
    disk.unmount()
    disk.check()
    disk.mount()


def said(broker: BrokerProcess, event: str) -> list[dict[str, object]]:
    return [line for line in broker.logged() if line.get("message") == event]


def check_nobody_was_cut(topic: Topic, others: list[BrokerProcess]) -> None:
    partition = f"{topic.name}-0"
    cuts = [one for other in others for one in said(other, "log truncated")]
    assert not [one for one in cuts if one["partition"] == partition], cuts


def check_failure_was_remembered(broker: BrokerProcess) -> None:
    """Its only directory took no note: memory did."""
    event = "log directory in use again after a failure"
    assert [line for line in broker.logged() if str(line.get("message")).startswith(event)]


def wait_until_synced(data: Path, topic: Topic, end: int) -> None:
    disk, place = OsDisk(data), TopicPartition(topic.name, 0)
    wait_for(
        lambda: checkpoint.read_offsets(disk, checkpoint.RECOVERY_POINTS).get(place, 0) == end,
        "all of it is on disk, and known to be",
    )


def numbers(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


@pytest.mark.root
@pytest.mark.feature("G06", "I10", "J10", "Y09", "Y10")
def test_a_failed_disk_moves_its_partitions_and_comes_back_as_a_follower(
    whole: list[BrokerProcess], tmp_path: Path
) -> None:
    skip_if(ext4_problem())
    victim, *others = whole
    with ext4(tmp_path / "disk", 64 << 20) as disk:
        restart(victim, str(disk.path / "data"))
        topic = LedByFirst(whole, "moves", **{"min.insync.replicas": "2"})
        producer, sent = topic.producer(), Sent()
        send(producer, topic, range(300), sent)
        assert producer.flush(PATIENCE_S) == 0
        assert topic.leader is victim
        disk.shut_down_under(victim.pid)
        send(producer, topic, range(300, 600), sent)
        assert producer.flush(PATIENCE_S) == 0
        assert victim.process is not None
        assert victim.process.wait(PATIENCE_S) == ExitCode.IO
        assert topic.leader is not victim
        repaired(disk)
        victim.start()
        victim.wait_ready()
        topic.wait_isr(3)
        check_failure_was_remembered(victim)
        assert (sent.failures, sent.acknowledged) == ([], numbers(600))
        assert topic.read_all(600) == numbers(600)
        check_nobody_was_cut(topic, others)
        victim.stop()


@pytest.mark.root
@pytest.mark.feature("G06", "Y09")
def test_one_failed_directory_of_two_moves_only_what_it_held(
    whole: list[BrokerProcess], tmp_path: Path
) -> None:
    skip_if(ext4_problem())
    victim = whole[0]
    with ext4(tmp_path / "disk", 64 << 20) as disk:
        paths = (disk.path / "data", tmp_path / "plain")
        restart(victim, ",".join(map(str, paths)))
        topics = [LedByFirst(whole, f"share{number}") for number in range(4)]
        on_disk = [one for one in topics if (paths[0] / f"{one.name}-0").exists()]
        kept = [one for one in topics if one not in on_disk]
        assert on_disk
        assert kept
        producers = [(one, one.producer(), Sent()) for one in topics]
        for one, producer, sent in producers:
            send(producer, one, range(50), sent)
            assert producer.flush(PATIENCE_S) == 0
        disk.shut_down_under(victim.pid)
        for one, producer, sent in producers:
            send(producer, one, range(50, 100), sent)
            assert producer.flush(PATIENCE_S) == 0
            assert (sent.failures, sent.acknowledged) == ([], numbers(100))
        for one in on_disk:
            one.wait_isr(2)
            assert one.leader is not victim
        assert all(one.leader is victim and len(one.state().isr) == 3 for one in kept)
        assert victim.http("/readyz")[0] == 200

        # Started without that directory: nothing of it is made in the other one.
        restart(victim, victim.log_dirs)
        assert said(victim, "log directory left out")
        assert not any((paths[1] / f"{one.name}-0").exists() for one in on_disk)
        victim.kill()
        repaired(disk)
        victim.start()
        victim.wait_ready()
        for one in topics:
            one.wait_isr(3)
            assert one.read_all(100) == numbers(100)
            check_nobody_was_cut(one, whole[1:])
        victim.stop()


@pytest.mark.root
@pytest.mark.feature("Y09")
def test_a_disk_that_fails_under_a_fetch_moves_its_partitions(
    whole: list[BrokerProcess], tmp_path: Path
) -> None:
    """Nothing is written: what finds it is the sending of what was read."""
    skip_if(ext4_problem())
    victim, *others = whole
    with ext4(tmp_path / "disk", 64 << 20) as disk:
        restart(victim, str(disk.path / "data"))
        topic = LedByFirst(whole, "fetched")
        producer, sent = topic.producer(), Sent()
        send(producer, topic, range(50), sent)
        assert producer.flush(PATIENCE_S) == 0
        wait_until_synced(disk.path / "data", topic, 50)
        assert topic.leader is victim
        disk.shut_down_under(victim.pid)
        assert topic.read_all(50) == numbers(50)
        assert topic.leader is not victim
        assert victim.process is not None
        assert victim.process.wait(PATIENCE_S) == ExitCode.IO
        check_nobody_was_cut(topic, others)


def flip(path: Path) -> None:
    """The magic of the first batch: a start does not read on behind it."""
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\x07")


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.feature("G06", "Y09")
@pytest.mark.parametrize("damage", [flip, halve])
def test_a_leader_whose_synced_log_is_damaged_cuts_nobody(
    whole: list[BrokerProcess], damage: Callable[[Path], None]
) -> None:
    victim, *others = whole
    topic = LedByFirst(whole, "flipped" if damage is flip else "halved")
    producer, sent = topic.producer(), Sent()
    send(producer, topic, range(400), sent)
    assert producer.flush(PATIENCE_S) == 0
    wait_until_synced(victim.data, topic, 400)
    victim.kill()
    damage(victim.data / f"{topic.name}-0" / "00000000000000000000.log")
    victim.start()
    victim.wait_ready()
    topic.wait_isr(3)
    assert topic.leader is not victim
    assert said(victim, "damaged log truncated, to be fetched again")
    assert topic.read_all(400) == numbers(400)
    check_nobody_was_cut(topic, others)
