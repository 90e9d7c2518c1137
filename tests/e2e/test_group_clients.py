"""Groups of kafka-python and of aiokafka: shared, committed, resumed, over a broker's death."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.test_groups import QUICK, bootstrap, consume, coordinator, create, produce
from kafka import KafkaConsumer
from waiting import PATIENCE_S, patience

BEATS = tuple(
    word
    for name in ("heartbeat.interval.ms", "min.heartbeat.interval.ms")
    for word in (f"--group.consumer.{name}", "200")
)
SOON = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("group-clients"), 3, *QUICK, *BEATS) as brokers:
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


def polled(one: KafkaConsumer) -> list[int]:
    batches = one.poll(timeout_ms=500).values()
    return [int(record.value) for records in batches for record in records]


def values_of(one: KafkaConsumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += polled(one)
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


def new_member(cluster: list[BrokerProcess], topic: str) -> confluent_kafka.Consumer:
    """A member of KIP-848's protocol in the group of the other clients."""
    made = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": f"{topic}-readers",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    return made


@pytest.mark.feature("A09", "A10", "A11", "Y01")
def test_kafka_python_shares_its_group_with_a_member_of_the_other_protocol(
    cluster: list[BrokerProcess],
) -> None:
    create(cluster, "mixed-python", 4)
    produce(cluster, "mixed-python", range(40))
    old = python_consumer(cluster, "mixed-python")
    found = values_of(old, 20)
    old.commit()
    new = new_member(cluster, "mixed-python")
    deadline = time.monotonic() + PATIENCE_S
    while (len(old.assignment()), len(new.assignment())) != (2, 2):
        assert time.monotonic() < deadline, "two partitions each"
        found += [*polled(old), *consume(new, 1, 0.2)]
    produce(cluster, "mixed-python", range(40, 60))
    while set(found) != set(range(60)):
        assert time.monotonic() < deadline, f"read {len(set(found))}"
        found += [*polled(old), *consume(new, 1, 0.2)]
    new.commit(asynchronous=False)
    new.close()
    while len(old.assignment()) < 4:
        assert time.monotonic() < deadline + PATIENCE_S, "everything is its own again"
        polled(old)
    old.close()


@pytest.mark.feature("A09", "A10", "A11", "Y01")
def test_aiokafka_shares_its_group_with_a_member_of_the_other_protocol(
    cluster: list[BrokerProcess],
) -> None:
    create(cluster, "mixed-aio", 4)
    produce(cluster, "mixed-aio", range(40))

    async def share() -> set[int]:
        old = AIOKafkaConsumer(
            "mixed-aio",
            bootstrap_servers=bootstrap(cluster),
            group_id="mixed-aio-readers",
            auto_offset_reset="earliest",
            **SOON,
        )
        await old.start()
        found: set[int] = set()
        new = await asyncio.to_thread(new_member, cluster, "mixed-aio")
        async with patience():
            while (len(old.assignment()), len(new.assignment())) != (2, 2) or len(found) < 40:
                batches = await old.getmany(timeout_ms=200)
                found |= {int(one.value or b"") for rows in batches.values() for one in rows}
                found |= set(await asyncio.to_thread(consume, new, 1, 0.2))
            await asyncio.to_thread(new.close)
            while len(old.assignment()) < 4:
                await old.getmany(timeout_ms=200)
        await old.stop()
        return found

    assert asyncio.run(share()) == set(range(40))
