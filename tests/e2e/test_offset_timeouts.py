"""A commit of offsets that a replica does not take in time: refused, and repeated by the client."""

import asyncio
import time

import pytest
from e2e.clusters import Cluster, StartCluster
from e2e.processes import paused
from e2e.wire import ask, connect, create_topic, leader_of, topic_at
from tidemark.client import Consumer
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from waiting import wait_for

pytestmark = [pytest.mark.e2e]

OFFSETS = "__consumer_offsets"
GROUP = "readers"
COMMIT_TIMEOUT_MS = 300
REPEATED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Errors after which a client looks for the coordinator and commits again."""
PATIENT = {
    "offsets.commit.timeout.ms": COMMIT_TIMEOUT_MS,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 2,
    # The paused follower stays in the ISR for as long as the test pauses it.
    "replica.lag.time.max.ms": 600_000,
    "zookeeper.session.timeout.ms": 40_000,
}


def commit(cluster: Cluster, broker: int, offset: int) -> ErrorCode:
    """Answer of the coordinator to a commit by a client that is in no group."""
    partition = {"partition_index": 0, "committed_offset": offset}
    fields = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    with connect(cluster.kafka(broker)) as wire:
        answer = ask(wire, ApiKey.OFFSET_COMMIT, 8, fields)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def coordinator(cluster: Cluster) -> int:
    """The broker that keeps the group's offsets, once its follower is in the ISR."""
    with connect(cluster.kafka(1)) as wire:
        wait_for(
            lambda: not ask(wire, ApiKey.FIND_COORDINATOR, 3, {"key": GROUP}).error_code,
            "a coordinator",
        )
    wait_for(
        lambda: len(topic_at(cluster.kafka(1), OFFSETS).partitions[0].isr) == 2, "two in the ISR"
    )
    return leader_of(cluster, OFFSETS)


def refusals(cluster: Cluster, broker: int) -> float:
    """Commits that a broker has answered with an error."""
    name = 'kafka_network_requestmetrics_errors_total{request="OffsetCommit"} '
    lines = cluster.ops(f"broker-{broker}", "/metrics").splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)


@pytest.mark.feature("E05", "E06")
def test_a_commit_that_is_not_replicated_in_time_fails_and_the_consumer_repeats_it(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(brokers=2, overrides={"broker": PATIENT})
    create_topic(cluster, "orders", leaders=[1])
    leader = coordinator(cluster)
    wait_for(lambda: commit(cluster, leader, 1) is ErrorCode.NONE, "a first commit")
    refused: list[ErrorCode] = []
    waited_ms: list[float] = []

    async def repeated() -> int | None:
        where = TopicPartition("orders", 0)
        async with Consumer(cluster.kafka(leader), group_id=GROUP) as consumer:
            consumer.assign([where])
            async with asyncio.TaskGroup() as group:
                with paused(cluster.pid(f"broker-{3 - leader}")):
                    began = time.monotonic()
                    refused.append(await asyncio.to_thread(commit, cluster, leader, 2))
                    waited_ms.append((time.monotonic() - began) * 1_000)
                    before = refusals(cluster, leader)
                    committing = group.create_task(consumer.commit({where: 3}))
                    await asyncio.to_thread(
                        wait_for, lambda: refusals(cluster, leader) >= before + 2, "two attempts"
                    )
                    assert not committing.done()
            found = (await consumer.committed([where]))[where]
            return found.offset if found is not None else None

    assert asyncio.run(repeated()) == 3
    assert refused[0] in REPEATED
    assert waited_ms[0] >= COMMIT_TIMEOUT_MS
