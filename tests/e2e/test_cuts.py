"""Network cuts between real processes: who loses whom, and what clients see of that.

Each process is in a network namespace of its own. The cluster is shared; every test heals what it
cut, and waits until the cluster is whole.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from e2e.netns import why_no_networks
from e2e.netns_cluster import (
    ACKS_ALL,
    BROKERS,
    CONTROLLERS,
    LAG_MS,
    LEASE_MS,
    SESSION_MS,
    ZOOKEEPER,
    Broker,
    Cluster,
    Controller,
    Topic,
    cut_cluster,
)
from e2e.unique_values import Writer, check_promises, read_back
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from tidemark.kafka.metadata import MetadataPartition
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(why_no_networks() is not None, reason=str(why_no_networks())),
]

HELD_S = LEASE_MS / 1_000 * 0.8
"""How long a leader may take itself for the only one after its last renewal (ADR 0011)."""
SESSION_S = SESSION_MS / 1_000
REPLACED_S = SESSION_S + LEASE_MS / 1_000 - LEASE_MS / 6_000 - 0.1
"""The soonest: ZooKeeper last heard a renewal that long before the cut, ends the session, and the
controller waits a lease; and a little, for clocks.
"""
LAGS_S = 2 * LAG_MS / 1_000
WRITES = 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cut_cluster(tmp_path_factory.mktemp("cuts")) as started:
        yield started


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Whole, and nothing cut."""
    shared.settle()
    yield shared
    shared.net.heal()


class SelfAck(NamedTuple):
    """One record sent with acks=1: its value, when it was sent and answered, and how."""

    value: bytes
    sent_at: float
    answered_at: float
    error_code: int


def self_acks_until_replaced(topic: Topic, old: Broker, witness: Broker) -> list[SelfAck]:
    """Send acks=1 to the old leader, one record after the other, until another one leads."""
    tried: list[SelfAck] = []
    deadline = time.monotonic() + PATIENCE_S
    while topic.state(witness).leader_id in (old.number, -1):
        assert time.monotonic() < deadline, f"nobody replaced {old.name}: {topic.state(witness)}"
        value, sent_at = b"one-%06d" % len(tried), time.monotonic()
        error_code = topic.produce(old, value, acks=1, timeout_ms=100)
        tried.append(SelfAck(value, sent_at, time.monotonic(), error_code))
        time.sleep(0.02)
    value, sent_at = b"one-replaced", time.monotonic()
    error_code = topic.produce(old, value, acks=1, timeout_ms=100)
    return [*tried, SelfAck(value, sent_at, time.monotonic(), error_code)]


def alone_until_its_lease_ends(cluster: Cluster, tried: list[SelfAck]) -> list[SelfAck]:
    """What an isolated leader acknowledged by itself: something at first, nothing later."""
    acknowledged = [one for one in tried if one.error_code == 0]
    held = [one for one in tried if one.sent_at > cluster.cut_at + HELD_S]
    had_time = tried[0].answered_at < cluster.cutting_at + HELD_S / 2
    assert acknowledged or not had_time, "with its lease it acknowledges acks=1 alone"
    assert held, "nobody looked after its lease"
    assert not set(acknowledged) & set(held), "acknowledged alone without a lease"
    return acknowledged


@contextmanager
def writing(cluster: Cluster, topic: Topic, *, through: Sequence[Broker] = ()) -> Iterator[Writer]:
    """A producer that has something acknowledged already; ``through``: it knows these at first."""
    bootstrap = ",".join(one.bootstrap for one in through or cluster.brokers)
    with Writer(bootstrap, topic.name, name="late-" if through else "") as writer:
        goes_on(writer)
        yield writer


def goes_on(writer: Writer) -> None:
    """Until more than what was in flight is acknowledged."""
    since = time.monotonic()
    wait_for(
        lambda: writer.acknowledged_since(since) > WRITES, lambda: f"no writes to {writer.topic}"
    )


def check_read_back(
    cluster: Cluster, topic: Topic, *writers: Writer, others: Sequence[SelfAck] = ()
) -> set[bytes]:
    """The writers' promises; ``others`` are records that were sent besides. All values found."""
    found = read_back(cluster.bootstrap, topic.name)
    check_promises(found, *writers, others=[one.value for one in others])
    return {one.value for one in found}


# 1


@pytest.mark.feature("J4", "H08")
@pytest.mark.parametrize("way", ["both", "to", "from"])
def test_a_leader_without_zookeeper_is_replaced_after_its_lease(cluster: Cluster, way: str) -> None:
    topic = cluster.topic(f"leader-from-zookeeper-{way}")
    old, witness = cluster.broker(1), cluster.broker(2)
    epoch = topic.state(witness).leader_epoch
    with writing(cluster, topic) as writer:
        ways = {"to": [(old.name, ZOOKEEPER)], "from": [(ZOOKEEPER, old.name)]}
        cluster.cut(*ways.get(way, ways["to"]), one_way=way != "both")
        tried = self_acks_until_replaced(topic, old, witness)
        assert cluster.since_first_cut() > REPLACED_S, "replaced before its lease was over"
        state = topic.state(witness)
        assert state.leader_epoch == epoch + 1
        assert old.number not in state.isr
        # It still hears the controller, and knows.
        wait_for(
            lambda: (
                topic.produce(old, b"late", acks=1, timeout_ms=500)
                == ErrorCode.NOT_LEADER_OR_FOLLOWER
            ),
            lambda: "the old leader goes on",
        )
        goes_on(writer)
        assert topic.state(witness).isr == state.isr, "it joins an ISR without a session"
        cluster.heal()
    kept = check_read_back(cluster, topic, writer, others=tried)
    promised = {
        one.value for one in tried if one.error_code == 0 and one.sent_at > cluster.cut_at + HELD_S
    }
    assert promised - kept == set(), "acks=1 without a lease waits for the ISR"
    topic.wait_logs_agree()


# 2


@pytest.mark.feature("J3")
def test_a_follower_without_zookeeper_stays_in_the_isr_and_may_not_lead(cluster: Cluster) -> None:
    topic = cluster.topic("follower-from-zookeeper", min_isr=3)
    leader, follower = cluster.broker(1), cluster.broker(3)
    prefer(cluster, topic, [3, 1, 2])
    cluster.cut((follower.name, ZOOKEEPER))
    wait_for(lambda: sees(leader, 2), lambda: "the session does not expire")
    for number in range(20):
        # min.insync.replicas is 3: each of these is on the follower.
        assert topic.produce(leader, b"all-%d" % number, acks=ACKS_ALL) == ErrorCode.NONE
        time.sleep(LAGS_S / 20)
    state = topic.state(leader)
    assert sorted(state.isr) == [1, 2, 3]
    assert (state.leader_id, state.leader_epoch) == (1, 0)
    assert elect_preferred(cluster, topic) == "PREFERRED_LEADER_NOT_AVAILABLE"
    cluster.heal()
    assert elect_preferred(cluster, topic) is None
    topic.wait_leader(leader, follower.number)
    topic.wait_logs_agree()


def prefer(cluster: Cluster, topic: Topic, replicas: list[int]) -> None:
    """The same replicas in another order: the first is the preferred leader."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.alter_partition_reassignments({TopicPartition(topic.name, 0): replicas})
    finally:
        admin.close()
    for broker in cluster.brokers:
        wait_for(
            lambda broker=broker: list(topic.state(broker).replicas) == replicas,  # type: ignore[misc]
            lambda: "the order stays",
        )


def elect_preferred(cluster: Cluster, topic: Topic) -> str | None:
    """The name of the error, if there was one."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[0].bootstrap, "log_level": 0})
    asked = admin.elect_leaders(ElectionType.PREFERRED, [Partition(topic.name, 0)])
    ((_, error),) = asked.result(PATIENCE_S).items()
    return None if error is None else str(error.name())


def sees(witness: Broker, brokers: int) -> bool:
    """Whether a broker counts so many alive."""
    with witness.wire() as wire:
        return len(wire.metadata().brokers) == brokers


# 3


@pytest.mark.feature("J8", "H04")
def test_a_controller_without_zookeeper_is_deposed_and_writes_nothing(cluster: Cluster) -> None:
    topic = cluster.topic("controller-from-zookeeper")
    old, epoch = active_of(cluster)
    other = next(one for one in cluster.controllers if one is not old)
    with writing(cluster, topic) as writer, ThreadPoolExecutor(1) as beside:
        cluster.cut((old.name, ZOOKEEPER))
        asked = beside.submit(create_topic_at, old, "never-made")
        wait_for(lambda: other.is_active, lambda: "nobody took over")
        assert other.cluster()["controller_epoch"] == epoch + 1
        assert asked.result() != ErrorCode.NONE, "a deposed controller acknowledged a change"
        assert create_topic_at(other, "made-meanwhile") == ErrorCode.NONE
        goes_on(writer)
        cluster.heal()
    assert create_topic_at(old, "never-made") == ErrorCode.NOT_CONTROLLER
    assert other.is_active
    for broker in cluster.brokers:
        with broker.wire() as wire:
            known = {one.topic for one in wire.metadata().topics}
        assert "never-made" not in known
        assert "made-meanwhile" in known
    assert topic.state(cluster.broker(2)).leader_epoch == 0
    check_read_back(cluster, topic, writer)


def active_of(cluster: Cluster) -> tuple[Controller, int]:
    """The active controller and its epoch."""
    active = cluster.active()
    assert active is not None
    return active, int(active.cluster()["controller_epoch"])


def create_topic_at(controller: Controller, name: str) -> ErrorCode:
    """Ask one replica, and nobody else; its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "e2e.create_topic", controller.grpc, name],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return ErrorCode(int(done.stdout))


# 4


@pytest.mark.feature("J2", "G14")
def test_a_leader_without_followers_refuses_acks_all(cluster: Cluster) -> None:
    topic = cluster.topic("leader-from-followers")
    leader = cluster.broker(1)
    assert topic.produce(leader, b"before", acks=ACKS_ALL) == ErrorCode.NONE
    cluster.cut((leader.name, ("broker-2", "broker-3")))
    topic.wait_isr(leader, leader.number)
    assert topic.produce(leader, b"all", acks=ACKS_ALL) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert topic.produce(leader, b"one", acks=1) == ErrorCode.NONE
    assert topic.end(leader) == 1, "the watermark stands still below min.insync.replicas"
    for witness in cluster.brokers:
        topic.wait_isr(witness, leader.number)
    assert sees(leader, len(BROKERS)), "ZooKeeper thinks that all are alive"
    state = topic.state(leader)
    assert (state.leader_id, state.leader_epoch) == (leader.number, 0)
    cluster.heal()
    assert topic.produce(leader, b"after", acks=ACKS_ALL) == ErrorCode.NONE
    found = [one.value for one in read_back(cluster.bootstrap, topic.name)]
    assert found == [b"before", b"one", b"after"]
    assert topic.state(leader).leader_epoch == 0
    topic.wait_logs_agree()


# 5


@pytest.mark.feature("J1", "G04", "G06")
def test_a_follower_without_its_leader_leaves_alone_and_rejoins(cluster: Cluster) -> None:
    topic = cluster.topic("leader-from-one-follower")
    leader, other = cluster.broker(1), cluster.broker(2)
    with writing(cluster, topic) as writer:
        cluster.cut((leader.name, "broker-3"))
        topic.wait_isr(other, 1, 2)
        goes_on(writer)
        assert sees(other, len(BROKERS)), "ZooKeeper thinks that it is alive"
        assert sorted(topic.state(leader).isr) == [1, 2]
        assert cluster.broker(3).log_bytes(topic.name) != leader.log_bytes(topic.name)
        cluster.heal()
    state = topic.state(leader)
    assert (state.leader_id, state.leader_epoch) == (leader.number, 0)
    check_read_back(cluster, topic, writer)
    topic.wait_logs_agree()


# 6


@pytest.mark.feature("J6", "J9")
def test_an_isolated_leader_loses_no_acks_all_record(cluster: Cluster) -> None:
    topic = cluster.topic("leader-from-all")
    old, witness = cluster.broker(1), cluster.broker(2)
    with writing(cluster, topic) as writer:
        cluster.cut((old.name, (ZOOKEEPER, *CONTROLLERS, "broker-2", "broker-3")))
        tried = self_acks_until_replaced(topic, old, witness)
        assert cluster.since_first_cut() > REPLACED_S, "replaced before its lease was over"
        alone = alone_until_its_lease_ends(cluster, tried)
        state = topic.state(witness)
        assert state.leader_epoch == 1
        assert old.number not in state.isr
        # Nobody has told it. It takes itself for the leader, and acknowledges nothing.
        assert topic.state(old).leader_id == old.number
        assert topic.produce(old, b"one", acks=1, timeout_ms=300) != ErrorCode.NONE
        assert topic.produce(old, b"all", acks=ACKS_ALL, timeout_ms=300) != ErrorCode.NONE
        # Clients that know nobody else wait with it; others write to the new one.
        with writing(cluster, topic, through=cluster.others(old.number)) as late:
            goes_on(late)
            cluster.heal()
    kept = check_read_back(cluster, topic, writer, late, others=tried)
    assert {one.value for one in alone} & kept == set(), "the old leader's lone records are cut"
    assert {b"one", b"all"} & kept == set()
    topic.wait_logs_agree()


# 7


@pytest.mark.feature("J7")
def test_a_controller_without_brokers_resigns(cluster: Cluster) -> None:
    topic = cluster.topic("controller-from-brokers")
    old, epoch = active_of(cluster)
    other = next(one for one in cluster.controllers if one is not old)
    with writing(cluster, topic) as writer:
        cut_at = cluster.cut((old.name, BROKERS))
        wait_for(lambda: other.is_active, lambda: "it does not resign")
        assert not old.is_active
        assert other.cluster()["controller_epoch"] > epoch
        lead_on = [topic.state(broker) for broker in cluster.brokers]
        assert {(one.leader_id, one.leader_epoch) for one in lead_on} == {(1, 0)}
        wait_for(
            lambda: writer.acknowledged_since(cut_at + 1) > WRITES,
            "the data plane does not serve on",
        )
        assert create_topic_at(other, "made-by-the-other") == ErrorCode.NONE
        wait_for(
            lambda: all(knows(broker, "made-by-the-other") for broker in cluster.brokers),
            lambda: "brokers do not hear the new controller",
        )
        goes_on(writer)
        cluster.heal()
    assert topic.state(cluster.broker(2)).leader_epoch == 0
    check_read_back(cluster, topic, writer)


def knows(broker: Broker, topic: str) -> bool:
    """Whether it has heard of that topic."""
    with broker.wire() as wire:
        return topic in {one.topic for one in wire.metadata().topics}


# 8


@pytest.mark.feature("H01")
def test_without_zookeeper_nothing_changes_and_acks_all_goes_on(cluster: Cluster) -> None:
    topic = cluster.topic("all-from-zookeeper")
    leader = cluster.broker(1)
    _, epoch = active_of(cluster)
    assert topic.produce(leader, b"before", acks=ACKS_ALL) == ErrorCode.NONE
    cluster.cut(((*BROKERS, *CONTROLLERS), ZOOKEEPER))
    number = 0
    while cluster.since_cut() < SESSION_S + 2 * LEASE_MS / 1_000:
        value = b"during-%03d" % number
        assert topic.produce(leader, value, acks=ACKS_ALL) == ErrorCode.NONE
        assert topic.end(leader) == number + 2, "reads go on"
        number += 1
        time.sleep(0.1)
    for broker in cluster.brokers:
        with broker.wire() as wire:
            state = wire.metadata(topic.name).topics[0].partitions[0]
        assert sorted(state.isr) == [1, 2, 3]
        assert state.leader_epoch == 0, "an election without ZooKeeper"
    # Leases are over: acks=1 is held for the ISR, and the ISR does not shrink.
    cluster.cut((leader.name, ("broker-2", "broker-3")))
    held_ms = int(LAGS_S * 1_000)
    held = topic.produce(leader, b"held", acks=1, timeout_ms=held_ms)
    assert held == ErrorCode.REQUEST_TIMED_OUT
    cluster.heal()
    active, epoch_now = active_of(cluster)
    assert epoch_now >= epoch
    assert [one for one in cluster.controllers if one.is_active] == [active]
    found = {one.value for one in read_back(cluster.bootstrap, topic.name)}
    assert {b"before", *(b"during-%03d" % one for one in range(number))} - found == set()
    topic.wait_logs_agree()


@pytest.mark.feature("H08")
def test_a_controller_that_sees_no_broker_elects_nobody(cluster: Cluster) -> None:
    """Where controllers still reach ZooKeeper and no broker does, nobody is made leader who is
    seen gone, and no ISR is emptied.
    """
    topic = cluster.topic("brokers-from-zookeeper")
    with writing(cluster, topic) as writer:
        cluster.cut((BROKERS, ZOOKEEPER))
        while cluster.since_cut() < SESSION_S + 2 * LEASE_MS / 1_000:
            for broker in cluster.brokers:
                assert_lawful(topic.state(broker))
            time.sleep(0.2)
        cluster.heal()
        goes_on(writer)
    check_read_back(cluster, topic, writer)
    topic.wait_logs_agree()


def assert_lawful(state: MetadataPartition) -> None:
    """Sessions end one after the other: whoever is not yet seen gone a lease later may lead."""
    if state.leader_epoch == 0:
        assert state.leader_id in (1, -1)
        assert sorted(state.isr) == [1, 2, 3]
    else:
        assert state.leader_id not in state.offline_replicas
        assert state.isr, "nobody could ever lead again"


# 9


@pytest.mark.feature("J5", "G05", "G24")
def test_an_isolated_follower_leaves_the_isr_and_catches_up(cluster: Cluster) -> None:
    topic = cluster.topic("follower-from-all")
    leader = cluster.broker(1)
    with writing(cluster, topic) as writer:
        cluster.cut(("broker-3", ("broker-1", "broker-2", ZOOKEEPER)))
        topic.wait_isr(leader, 1, 2)
        wait_for(lambda: sees(leader, 2), lambda: "its session does not expire")
        goes_on(writer)
        cluster.heal()
    state = topic.state(leader)
    assert (state.leader_id, state.leader_epoch) == (leader.number, 0)
    check_read_back(cluster, topic, writer)
    topic.wait_logs_agree()
