"""Brokers and ZooKeeper come and go under an acks=all producer of unique values; then all is read
back: every acknowledged value, in order per key, none invented.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire
from e2e.processes import paused
from e2e.unique_values import Writer, check_promises, read_back
from e2e.zookeeper import HOST
from tidemark.cli.dev.cluster import Config
from tidemark.cli.dev.layout import Layout
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SESSION_MS: Final = 2_000
LEASE_MS: Final = 1_500
SESSION_S: Final = SESSION_MS / 1_000
BROKERS: Final = (1, 2, 3)
PARTITIONS: Final = 4
KEYS: Final = 8
BEHIND_PROXY: Final = "broker-3"
QUICK: Final = {"zookeeper.session.timeout.ms": SESSION_MS, "lease.ms": LEASE_MS}
READY_S: Final = PATIENCE_S
START_S: Final = PATIENCE_S


class StallingProxy:
    """Passes bytes on between clients and one port, until it is told to stall: then it takes
    connections and bytes, and passes nothing on.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stalling-proxy")
        self._thread.start()

    def stall(self) -> None:
        """Connections stay, and are silent."""
        self._flows.clear()

    def flow(self) -> None:
        """Go on. What was held up goes its way."""
        self._flows.set()

    def close(self) -> None:
        """End the thread and every connection."""
        self._closing.set()
        self.flow()
        self._thread.join()
        for one in (*self._peers, self._listening):
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._flows.wait()
            for key, _ in self._selector.select(0.05):
                if not self._flows.is_set():
                    break
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        try:
            server = socket.create_connection((HOST, self._target), 5)
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        if source not in self._peers:
            return
        try:
            received = source.recv(1 << 16)
            self._peers[source].sendall(received)
        except OSError:
            received = b""
        if not received:
            for one in (source, self._peers[source]):
                self._selector.unregister(one)
                del self._peers[one]
                one.close()


class Bounced:
    """Three brokers, one of them behind a proxy to ZooKeeper."""

    def __init__(self, cluster: Cluster, proxy: StallingProxy) -> None:
        self.cluster = cluster
        self.proxy = proxy

    def topic(self, name: str) -> str:
        """Four partitions on all brokers; acks=all needs two."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        config = {"min.insync.replicas": "2"}
        new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=3, config=config)
        admin.create_topics([new])[name].result(PATIENCE_S)
        self.wait_whole(name)
        return name

    def states(self, topic: str, broker: int) -> dict[int, tuple[int, int, int]]:
        """Leader, leader epoch and ISR size of each partition as one broker has them; nothing while
        it cannot be asked.
        """
        try:
            with Wire(self.cluster.layout.member(f"broker-{broker}").ports["client"]) as wire:
                (found,) = wire.metadata(topic).topics
        except OSError:
            return {}
        return {
            one.partition: (one.leader_id, one.leader_epoch, len(one.isr))
            for one in found.partitions
        }

    def is_whole(self, topic: str) -> bool:
        """Whether every broker says that all partitions have a leader and all replicas."""
        return all(
            len(states := self.states(topic, broker)) == PARTITIONS
            and all(leader > 0 and isr == len(BROKERS) for leader, _, isr in states.values())
            for broker in BROKERS
        )

    def wait_whole(self, topic: str) -> None:
        """Until nothing is left of what happened."""
        self.cluster.wait_healthy(READY_S)
        self.wait(lambda: self.is_whole(topic), "not whole again")

    def wait(self, come: Callable[[], bool], story: str) -> None:
        """Poll until ``come()``."""
        wait_for(come, lambda: f"{story}\n{self.cluster.logs_tail()}")

    def led_by(self, topic: str, broker: int, witness: int) -> int:
        """How many partitions a broker leads, as another one has it."""
        return sum(leader == broker for leader, _, _ in self.states(topic, witness).values())

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """A producer for as long as the block lasts; then the read-back."""
        topic = self.topic(name)
        writer = Writer(self.cluster.bootstrap, topic, keys=KEYS)
        with writer:
            self.wait_progress(writer)
            yield writer
            self.wait_whole(topic)
            self.wait_progress(writer)
        found = read_back(self.cluster.bootstrap, topic, PARTITIONS)
        check_promises(found, writer)

    def wait_progress(self, writer: Writer) -> None:
        """Until more is acknowledged."""
        begun = time.monotonic()
        enough = 5 * KEYS
        self.wait(lambda: writer.acknowledged_since(begun) > enough, "nothing is acknowledged")


@pytest.fixture(scope="module")
def bounced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bounced]:
    directory = tmp_path_factory.mktemp("bounced")
    layout = Layout.on_free_ports(directory, brokers=len(BROKERS), controllers=1)
    proxy = StallingProxy(layout.shape.ports.zookeeper)
    broker = {**QUICK, "replica.lag.time.max.ms": 1_500, "replica.fetch.backoff.ms": 200}
    chroot = layout.zookeeper_connect.partition("/")[2]
    behind = {"zookeeper.connect": f"{HOST}:{proxy.port}" + (f"/{chroot}" if chroot else "")}
    overrides: dict[str, Config] = {"broker": broker, BEHIND_PROXY: behind, "controller": QUICK}
    cluster = Cluster(layout, overrides=overrides)
    try:
        cluster.start(START_S)
        yield Bounced(cluster, proxy)
    finally:
        proxy.flow()
        with suppress(ProcessLookupError):
            cluster.end()
        proxy.close()


@pytest.mark.feature("J9", "J10", "A16")
def test_rolling_clean_bounces_lose_nothing(bounced: Bounced) -> None:
    with bounced.writing("clean") as writer:
        for number in BROKERS:
            assert bounced.cluster.terminate(f"broker-{number}"), "it had to be killed"
            bounced.wait_progress(writer)
            bounced.cluster.restart(f"broker-{number}")
            bounced.wait_whole(writer.topic)


@pytest.mark.feature("J9", "J10", "H08")
def test_rolling_hard_bounces_lose_nothing(bounced: Bounced) -> None:
    with bounced.writing("hard") as writer:
        for number in BROKERS:
            bounced.cluster.kill(f"broker-{number}")
            bounced.wait_progress(writer)
            bounced.cluster.restart(f"broker-{number}")
            bounced.wait_whole(writer.topic)


@pytest.mark.feature("H03", "H08", "J6")
def test_a_leader_that_sleeps_beyond_its_session_loses_nothing(bounced: Bounced) -> None:
    with bounced.writing("asleep") as writer:
        sleeper = next(one for one in BROKERS if bounced.led_by(writer.topic, one, one))
        witness = next(one for one in BROKERS if one != sleeper)
        with paused(bounced.cluster.pid(f"broker-{sleeper}")):
            bounced.wait(
                lambda: all(
                    leader not in (sleeper, -1)
                    for leader, _, _ in bounced.states(writer.topic, witness).values()
                ),
                "nobody took over",
            )
            bounced.wait_progress(writer)


@pytest.mark.feature("H01", "H02")
def test_zookeeper_is_killed_and_comes_back(bounced: Bounced) -> None:
    with bounced.writing("zookeeper") as writer:
        before = bounced.states(writer.topic, 1)
        bounced.cluster.kill("zookeeper")
        killed_at = time.monotonic()
        while time.monotonic() < killed_at + SESSION_S + 2 * LEASE_MS / 1_000:
            bounced.wait_progress(writer)
        assert bounced.states(writer.topic, 1) == before, "elections without ZooKeeper"
        bounced.cluster.restart("zookeeper")


@pytest.mark.feature("H03", "J3")
def test_a_broker_whose_session_expires_registers_again(bounced: Bounced) -> None:
    with bounced.writing("expired") as writer:
        number = int(BEHIND_PROXY[-1])
        joined = registrations(bounced)
        assert bounced.led_by(writer.topic, number, 1) > 0
        bounced.proxy.stall()
        try:
            bounced.wait(lambda: not bounced.led_by(writer.topic, number, 1), "it leads on")
            bounced.wait_progress(writer)
        finally:
            bounced.proxy.flow()
        bounced.wait(lambda: registrations(bounced) > joined, "it does not register again")


def registrations(bounced: Bounced) -> int:
    """How often that broker has joined the cluster."""
    return bounced.cluster.log(BEHIND_PROXY).count("registered ")
