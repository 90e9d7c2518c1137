"""A supervised broker that crashes: its end is recorded, and its partitions are led at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster_of
from kazoo.client import KazooClient
from tidemark.runtime import zk_paths
from waiting import PATIENCE_S, wait_for

TOPIC: Final = "orders"
SUPERVISOR: Final = "tidemark.runtime.supervisor"


class SupervisedBroker(BrokerProcess):
    """A broker as the child of its supervisor, which is what the test starts and stops."""

    def __init__(self, number: int, connect: str, directory: Path, *extra: str) -> None:
        super().__init__(number, connect, directory, *extra)
        module = self._argv.index("-m") + 1
        self._argv.insert(module, SUPERVISOR)

    @property
    def child(self) -> int:
        """Pid of the broker itself."""
        (pid,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(pid)

    def crash(self) -> int:
        """Kill the broker, and return the exit code of its supervisor."""
        assert self.process is not None
        os.kill(self.child, signal.SIGKILL)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[SupervisedBroker]]:
    with running_cluster_of(SupervisedBroker, tmp_path, 2) as started:
        yield started


@pytest.fixture
def znodes(brokers: list[SupervisedBroker]) -> Iterator[KazooClient]:
    client = KazooClient(zk_paths.with_chroot(brokers[0].connect))
    client.start()
    yield client
    client.stop()
    client.close()


def led_by(bootstrap: str) -> int:
    """Leader of the topic's partition, as a broker's metadata has it."""
    topics = (
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=PATIENCE_S).topics
    )
    return int(topics[TOPIC].partitions[0].leader)


def test_the_end_of_a_crashed_leader_is_recorded(
    brokers: list[SupervisedBroker], znodes: KazooClient
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(PATIENCE_S)
    leader = next(one for one in brokers if one.number == led_by(brokers[0].bootstrap))
    other = next(one for one in brokers if one is not leader)
    (live,) = (one for one in znodes.get_children("/brokers/live") if one[0] == str(leader.number))
    assert leader.crash() == 128 + signal.SIGKILL
    assert znodes.get_children("/brokers/ended") == [live]
    assert live not in znodes.get_children("/brokers/live")
    wait_for(lambda: led_by(other.bootstrap) == other.number)

    leader.start()
    leader.wait_ready()
    wait_for(lambda: znodes.get_children("/brokers/ended") == [])
    producer = Producer({"bootstrap.servers": other.bootstrap, "acks": "all"})
    producer.produce(TOPIC, b"after the crash")
    assert producer.flush(PATIENCE_S) == 0


def test_a_clean_stop_passes_through_the_supervisor(
    brokers: list[SupervisedBroker], znodes: KazooClient
) -> None:
    assert brokers[1].stop() == 0
    assert znodes.get_children("/brokers/ended") == []
    assert [one[0] for one in znodes.get_children("/brokers/live")] == ["1"]


def test_a_killed_supervisor_takes_its_broker_along(brokers: list[SupervisedBroker]) -> None:
    child = brokers[1].child
    brokers[1].kill()
    wait_for(lambda: not Path(f"/proc/{child}/fd").exists() or not os.listdir(f"/proc/{child}/fd"))


def supervise(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", SUPERVISOR, *command]
    return subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_exit_codes_are_those_of_the_service() -> None:
    assert supervise("broker", "--help").returncode == 0
    assert supervise("no_such_service").returncode == 1
    nothing = supervise()
    assert nothing.returncode == 64
    assert "usage" in nothing.stderr
