"""Transactions while brokers and coordinators are killed: what was committed is there, whole, and
what was not is not.
"""

import asyncio
import uuid
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire, batch
from e2e.transactional_clients import (
    UNCOMMITTED,
    WAIT_S,
    create,
    producer,
    read,
    read_until,
    transactional_cluster,
    wait_in_sync,
    write,
    write_plain,
)
from tidemark.client.transactions.multi_writer import Transactions, WriterReceipt
from tidemark.codec.record_batch import TRANSACTIONAL_BIT

QUICK = {"zookeeper.session.timeout.ms": 4_000}
COORDINATORS = ("txn-coordinator-1", "txn-coordinator-2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two coordinators and three brokers. Whoever kills one starts it again."""
    directory = tmp_path_factory.mktemp("crashes")
    # A dead follower holds commits of acks=all until it has left the ISR.
    broker = {**QUICK, "replica.lag.time.max.ms": 4_000}
    overrides = {"broker": broker, "txn-coordinator": QUICK}
    with transactional_cluster(directory, txn_coordinators=2, overrides=overrides) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics and transactional ids of one test."""
    return f"t-{uuid.uuid4().hex[:8]}"


def leader_of(cluster: Cluster, topic: str) -> str:
    """The process that leads partition 0."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.list_topics(topic, WAIT_S).topics[topic]
    return f"broker-{found.partitions[0].leader}"


@pytest.mark.feature("N01", "N03", "L09")
@pytest.mark.parametrize("commits", [True, False])
def test_a_broker_dies_between_the_records_and_the_end(
    cluster: Cluster, name: str, *, commits: bool
) -> None:
    a, b = f"{name}-a", f"{name}-b"
    create(cluster, a, b)
    one = producer(cluster, name)
    one.begin_transaction()
    write(one, {a: ["1"], b: ["2"]})
    wait_in_sync(cluster)
    victim = leader_of(cluster, a)
    cluster.kill(victim)
    try:
        (one.commit_transaction if commits else one.abort_transaction)(WAIT_S)
        expected = [["1"], ["2"]] if commits else [[], []]
        assert [
            read_until(cluster, a, expected[0]),
            read_until(cluster, b, expected[1]),
        ] == expected
    finally:
        cluster.restart(victim)
    assert [read_until(cluster, a, expected[0]), read_until(cluster, b, expected[1])] == expected
    cluster.wait_healthy()


@pytest.mark.feature("L05", "L06", "L08")
def test_all_coordinators_die_in_the_middle_and_come_back(cluster: Cluster, name: str) -> None:
    create(cluster, name)
    one = producer(cluster, name)
    one.begin_transaction()
    write(one, {name: ["before"]})
    for coordinator in COORDINATORS:
        cluster.kill(coordinator)
    for coordinator in COORDINATORS:
        cluster.restart(coordinator)
    write(one, {name: ["after"]})
    one.commit_transaction(WAIT_S)
    assert read_until(cluster, name, ["before", "after"]) == ["before", "after"]


@pytest.mark.feature("Y04")
def test_a_handle_outlives_its_coordinators(cluster: Cluster, name: str) -> None:
    create(cluster, name)

    async def begin() -> tuple[str, str]:
        async with Transactions(cluster.grpc(1)) as transactions:
            handle = await transactions.begin_transaction(name)
            async with await handle.enlist("w") as writer:
                await writer.send(name, value=b"1", partition=0)
                return str(handle), str(writer.receipt())

    async def finish(handle: str, receipt: str) -> bool:
        async with Transactions(cluster.grpc(2)) as transactions:
            counted = [WriterReceipt.parse(receipt)]
            return await transactions.resume(handle).finish(commit=True, writers=counted)

    tokens = asyncio.run(begin())
    for coordinator in COORDINATORS:
        cluster.kill(coordinator)
        cluster.restart(coordinator)
    assert asyncio.run(finish(*tokens))
    assert read_until(cluster, name, ["1"]) == ["1"]


@pytest.mark.feature("L05", "H15")
def test_another_coordinator_takes_over_what_a_dead_one_had(cluster: Cluster, name: str) -> None:
    topics = [f"{name}-{number}" for number in range(4)]
    create(cluster, *topics)
    producers = {topic: producer(cluster, topic) for topic in topics}
    for topic, one in producers.items():
        one.begin_transaction()
        write(one, {topic: ["1"]})
    cluster.kill(COORDINATORS[0])
    try:
        for one in producers.values():
            one.commit_transaction(WAIT_S)
        assert [read_until(cluster, topic, ["1"]) for topic in topics] == [["1"]] * len(topics)
    finally:
        cluster.restart(COORDINATORS[0])


@pytest.mark.feature("N01", "L04", "L08")
def test_a_decided_commit_reaches_a_partition_that_was_down(cluster: Cluster, name: str) -> None:
    down = f"{name}-down"
    create(cluster, name)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    only = confluent_kafka.admin.NewTopic(down, 1, replica_assignment=[[3]])
    for made in admin.create_topics([only]).values():
        made.result(WAIT_S)
    one = producer(cluster, name)
    one.begin_transaction()
    write(one, {name: ["1"], down: ["2"]})
    wait_in_sync(cluster)
    cluster.kill("broker-3")
    try:
        one.commit_transaction(WAIT_S)
        assert read_until(cluster, name, ["1"]) == ["1"]
        for coordinator in COORDINATORS:
            cluster.kill(coordinator)
            cluster.restart(coordinator)
    finally:
        cluster.restart("broker-3")
    assert read_until(cluster, down, ["2"]) == ["2"]
    cluster.wait_healthy()


@pytest.mark.feature("Y08")
def test_an_administrator_ends_a_transaction_that_hangs(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    """Without verification a batch may come after its transaction's end: nobody will end it."""
    unverified = {"broker": {"transaction.partition.verification.enable": False}}
    directory = tmp_path_factory.mktemp("hanging")
    with transactional_cluster(directory, brokers=1, overrides=unverified) as cluster:
        create(cluster, name, replicas=1)
        late = batch(
            b"late",
            producer_id=77,
            producer_epoch=5,
            base_sequence=0,
            attributes_extra=TRANSACTIONAL_BIT,
        )
        with Wire(int(cluster.kafka().rpartition(":")[2])) as wire:
            assert wire.produce(name, late, acks=-1, transactional_id="gone").error_code == 0
        write_plain(cluster, name, "behind")
        assert read(cluster, name) == []
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            assert "transaction.version" not in _finalized(admin)
            admin.abort_transaction(_spec(admin, kafka.TopicPartition(name, 0)))
        finally:
            admin.close()
        assert read_until(cluster, name, ["behind"]) == ["behind"]
        assert read(cluster, name, UNCOMMITTED) == ["late", "behind"]


def _spec(
    admin: kafka.admin.KafkaAdminClient, partition: kafka.TopicPartition
) -> kafka.admin.AbortTransactionSpec:
    """What kafka-transactions.sh abort makes of a partition's open transaction."""
    (producers,) = admin.describe_producers([partition]).values()
    (hanging,) = (
        one for one in producers.active_producers if one.current_transaction_start_offset >= 0
    )
    return kafka.admin.AbortTransactionSpec(
        partition, hanging.producer_id, hanging.producer_epoch, max(hanging.coordinator_epoch, 0)
    )


def _finalized(admin: kafka.admin.KafkaAdminClient) -> list[str]:
    return [
        feature
        for feature, levels in admin.describe_features().items()
        if levels.get("finalized") is not None
    ]
