"""Groups of kafka-python and of aiokafka: shared, committed, resumed, over a broker's death."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka import AIOKafkaConsumer
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.test_groups import QUICK, bootstrap, coordinator, create, produce
from kafka import KafkaConsumer
from waiting import PATIENCE_S, patience

SOON = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("group-clients"), 3, *QUICK) as brokers:
        yield brokers


def python_consumer(cluster: list[BrokerProcess], topic: str) -> KafkaConsumer:
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap(cluster).split(","),
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **SOON,
    )


def values_of(consumer: KafkaConsumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            found += [int(record.value) for record in records]
    return found


@pytest.mark.feature("A08", "A11", "E03", "Y01")
def test_kafka_python_shares_a_group_and_outlives_its_coordinator(
    cluster: list[BrokerProcess],
) -> None:
    create(cluster, "python", 4)
    produce(cluster, "python", range(40))
    first, second = (python_consumer(cluster, "python") for _ in range(2))
    deadline = time.monotonic() + PATIENCE_S
    # Each in a thread of its own: who is joining waits for the other, who must be polled meanwhile.
    with ThreadPoolExecutor(2) as threads:
        while {len(first.assignment()), len(second.assignment())} != {2}:
            assert time.monotonic() < deadline, "two partitions each"
            list(threads.map(lambda one: one.poll(timeout_ms=500), (first, second)))
    second.close()
    victim = coordinator(cluster, "python-readers")
    victim.kill()
    try:
        produce(cluster, "python", range(40, 60))
        wanted = set(range(40, 60))
        while wanted:
            assert time.monotonic() < deadline + PATIENCE_S, f"not read: {wanted}"
            wanted -= set(values_of(first, 1))
        first.commit()
        assert sum(first.committed(one) or 0 for one in first.assignment()) == 60
    finally:
        victim.start()
        victim.wait_ready()
        first.close()


async def read_some(cluster: list[BrokerProcess], count: int) -> list[int]:
    """Join, read, commit, leave."""
    consumer = AIOKafkaConsumer(
        "aio",
        bootstrap_servers=bootstrap(cluster),
        group_id="aio-readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **SOON,
    )
    await consumer.start()
    found: list[int] = []
    try:
        async with patience():
            while len(found) < count:
                record = await consumer.getone()
                found.append(int(record.value or b""))
        await consumer.commit()
    finally:
        await consumer.stop()
    return found


@pytest.mark.feature("A10", "A11", "Y01")
def test_aiokafka_goes_on_where_its_group_committed(cluster: list[BrokerProcess]) -> None:
    create(cluster, "aio", 2)
    produce(cluster, "aio", range(50))
    early = asyncio.run(read_some(cluster, 20))
    late = asyncio.run(read_some(cluster, 30))
    assert sorted(early + late) == list(range(50))
