"""Supervised services that crash: their end is recorded, and others take over at once."""

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
from e2e.clusters import Cluster, StartCluster
from e2e.processes import paused
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tidemark.cli.dev.process import ProcessFile, wait_ended
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


@pytest.mark.feature("G04", "Y13")
def test_a_crashed_follower_leaves_the_isr_at_once(tmp_path: Path) -> None:
    """Not after the lag time, which is longer than the test's patience here."""
    lag = str(4_000 * int(PATIENCE_S))
    running = running_cluster_of(SupervisedBroker, tmp_path, 2, "--replica.lag.time.max.ms", lag)
    with running as brokers:
        bootstrap = [one.bootstrap for one in brokers]
        admin = AdminClient({"bootstrap.servers": ",".join(bootstrap)})
        admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(PATIENCE_S)
        leader = led_by(bootstrap[0])
        follower = next(one for one in brokers if one.number != leader)
        follower.crash()
        producer = Producer({"bootstrap.servers": bootstrap[leader - 1], "acks": "all"})
        producer.produce(TOPIC, b"acknowledged by the leader alone")
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


LONG_SESSIONS: Final = {
    kind: {"zookeeper.session.timeout.ms": 40_000}
    for kind in ("controller", "broker", "txn-coordinator", "share-coordinator")
}
"""A znode that is gone sooner was removed by the supervisor."""


def supervisor_of(cluster: Cluster, name: str) -> ProcessFile:
    """Supervisor of a running service."""
    found = ProcessFile.read(cluster.layout.run_directory / f"{name}.supervisor.json")
    assert found is not None
    return found


def crash(cluster: Cluster, name: str) -> None:
    """Kill a service, and wait until its supervisor has ended."""
    supervisor = supervisor_of(cluster, name)
    cluster.kill(name)
    assert wait_ended(supervisor, PATIENCE_S)


@pytest.fixture
def long_lived(start_cluster: StartCluster) -> Cluster:
    return start_cluster(
        controllers=2, txn_coordinators=2, share_coordinators=2, overrides=LONG_SESSIONS
    )


def live_znodes(cluster: Cluster) -> dict[str, str]:
    """Live znode of each service, by its name."""
    client = KazooClient(cluster.layout.zookeeper_connect)
    client.start()
    try:
        active = zk_paths.decode("", client.get("/controller")[0])["controller_id"]
        found = {f"controller-{active}": "/controller"}
        for kind in ("txn", "share"):
            for name in client.get_children(f"/coordinators/{kind}"):
                found[f"{kind}-coordinator-{name[0]}"] = name
    except NoNodeError:
        return {}
    finally:
        client.stop()
        client.close()
    return found


@pytest.mark.feature("Y13")
def test_other_services_take_over_at_once_too(long_lived: Cluster) -> None:
    (active,) = (name for name in live_znodes(long_lived) if name.startswith("controller"))
    crash(long_lived, active)
    wait_for(lambda: live_znodes(long_lived).keys() - {active} > {"txn-coordinator-1"})
    for kind in ("txn", "share"):
        crash(long_lived, f"{kind}-coordinator-1")
        assert f"{kind}-coordinator-1" not in live_znodes(long_lived)
    long_lived.restart(active)
    assert active not in live_znodes(long_lived)


def test_an_earlier_controller_s_end_leaves_the_present_one_alone(long_lived: Cluster) -> None:
    (active,) = (name for name in live_znodes(long_lived) if name.startswith("controller"))
    with paused(supervisor_of(long_lived, active).pid):
        long_lived.kill(active)
        client = KazooClient(long_lived.layout.zookeeper_connect)
        client.start()
        client.delete("/controller")
        other = wait_other_controller(long_lived, active)
        before = client.get("/controller")[1].czxid
    assert wait_ended(supervisor_of(long_lived, active), PATIENCE_S)
    assert client.get("/controller")[1].czxid == before, other
    client.stop()
    client.close()


def wait_other_controller(cluster: Cluster, former: str) -> str:
    """Wait until another controller is active."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = [name for name in live_znodes(cluster) if name.startswith("controller")]
        return bool(found) and found[0] != former

    wait_for(is_there)
    return found[0]


def test_signals_are_ignored_once_the_service_has_ended(start_cluster: StartCluster) -> None:
    cluster = start_cluster(has_own_zookeeper=True)
    supervisor = supervisor_of(cluster, "broker-1")
    cluster.kill("zookeeper")
    cluster.kill("broker-1")
    states: list[int] = []

    def ignores() -> bool:
        states.append(ignored_signals(supervisor.pid))
        return bool(states[-1] >> (signal.SIGTERM - 1) & 1) or not supervisor.running()

    wait_for(ignores)
    assert states[-1] >> (signal.SIGTERM - 1) & 1


def ignored_signals(pid: int) -> int:
    """Bit set of the signals that a process ignores; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
