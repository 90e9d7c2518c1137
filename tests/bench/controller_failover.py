"""A controller that takes over 10,000 partitions, and one that replaces 3,333 leaders."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from bench.report import Row
from e2e.controllers import (
    SESSION_MS,
    Client,
    ControllerProcess,
    FakeBroker,
    client_of,
    controllers,
    until,
)
from e2e.zookeeper import running_zookeeper
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterImage, PartitionImage
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.zk_session import ZkSession
from tidemark_wire.v1 import controller_pb2 as pb

BROKERS: Final = (1, 2, 3)
TOPICS: Final = 100
PARTITIONS_OF_TOPIC: Final = 100
FAILOVER_S_MAX: Final = 5.0
LEASE_MS: Final = 1_000
_WAIT_S: Final = 120.0


class Follower:
    """What a broker has of the feed: it acknowledges under its own broker epoch."""

    def __init__(self, connect: str, broker: FakeBroker, image: ClusterImage) -> None:
        self.session = ZkSession(connect, session_timeout_ms=SESSION_MS)
        self.controller = ControllerClient(self.session)
        broker_epoch = image.brokers[BrokerId(broker.number)].broker_epoch
        self.follower = MetadataFollower(
            self.controller,
            MetadataCache(),
            subscriber=f"broker-{broker.number}",
            broker_epoch=lambda: broker_epoch,
        )

    async def sees(self, shown: Callable[[ClusterImage], bool]) -> float:
        """When the image is so, on the monotonic clock."""
        async with asyncio.timeout(_WAIT_S):
            while not shown(self.follower.image):
                position = self.follower.image.position
                following = position._replace(version=position.version + 1)
                await self.follower.metadata.wait_for(following, _WAIT_S)
        return time.monotonic()


def bench_failover(directory: Path) -> list[Row]:
    """Both figures, from one cluster of three brokers that only register."""
    directory.mkdir(parents=True)
    with running_zookeeper(directory) as zookeeper:
        connect = f"{zookeeper.connect}/failover"
        lease = ("--lease.ms", str(LEASE_MS))
        with controllers(2, connect, directory, *lease) as pair:
            return asyncio.run(_measure(connect, pair))


async def _measure(connect: str, pair: Sequence[ControllerProcess]) -> list[Row]:
    async with client_of(connect) as client:
        brokers = [await client.broker(number) for number in BROKERS]
        await client.sees(lambda image: len(image.brokers) == len(BROKERS))
        async with followers_of(connect, brokers, client.image) as followers:
            made_s = await _make_partitions(client)
            standby = pair[1]
            await until(lambda: standby.is_ready)
            rows = [await _fail_over(pair, followers, made_s)]
            rows.append(await _lose_broker(brokers, followers[1:]))
            return rows


@asynccontextmanager
async def followers_of(
    connect: str, brokers: Sequence[FakeBroker], image: ClusterImage
) -> AsyncIterator[list[Follower]]:
    """One follower a broker, for as long as the block lasts."""
    followers = [Follower(connect, broker, image) for broker in brokers]
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in followers:
                await one.session.start()
            running = [tasks.create_task(one.follower.run()) for one in followers]
            try:
                yield followers
            finally:
                for task in running:
                    task.cancel()
    finally:
        for one in followers:
            await one.controller.close()
            await one.session.stop()


async def _make_partitions(client: Client) -> float:
    """All of them, a tenth a request; how long it took."""
    began = time.monotonic()
    for first in range(0, TOPICS, TOPICS // 10):
        topics = [
            pb.CreateTopicsRequest.Topic(
                name=f"t{number}",
                partition_count=PARTITIONS_OF_TOPIC,
                replication_factor=len(BROKERS),
            )
            for number in range(first, first + TOPICS // 10)
        ]
        request = pb.CreateTopicsRequest(topics=topics)
        response = await client.controller.call("CreateTopics", request, _WAIT_S)
        assert {result.error_code for result in response.topics} == {0}, response
    return time.monotonic() - began


async def _fail_over(
    pair: Sequence[ControllerProcess], followers: Sequence[Follower], made_s: float
) -> Row:
    """From the write of /controller_epoch to the last acknowledgement of the new snapshot."""
    killed_at = time.monotonic()
    pair[0].kill()
    seen = [one.sees(lambda image: image.position.controller_epoch == 2) for one in followers]
    last_seen = max(await asyncio.gather(*seen))
    await until(lambda: _acknowledged(pair[1]) >= len(followers))
    logged = _log_of(pair[1])
    elected = next(_at(line) for line in logged if line.get("message") == "elected")
    last = max(_at(line) for line in logged if line.get("message") == "snapshot acknowledged")
    took_s = last - elected
    loaded = next(line for line in logged if line.get("message") == "state loaded")
    return Row(
        "failover",
        f"{TOPICS * PARTITIONS_OF_TOPIC} partitions, 3 replicas: /controller_epoch to last ack",
        p50_ms=took_s * 1_000,
        bound=f"<= {FAILOVER_S_MAX:g} s",
        held=took_s <= FAILOVER_S_MAX,
        extra={
            "load_ms": float(loaded["took_ms"]),
            "after_kill_s": last_seen - killed_at,
            "made_s": made_s,
        },
    )


async def _lose_broker(brokers: Sequence[FakeBroker], left: Sequence[Follower]) -> Row:
    """Leaders of a third of all partitions, whose broker's session ends: until all are replaced."""
    gone = BrokerId(brokers[0].number)
    led = sum(item.leader == gone for item in _partitions(left[0].follower.image))
    began = time.monotonic()
    await brokers[0].session.stop()
    seen = [
        one.sees(lambda image: all(item.leader not in (gone, -1) for item in _partitions(image)))
        for one in left
    ]
    took_s = max(await asyncio.gather(*seen)) - began
    return Row(
        "failover",
        f"{led} leaders replaced after their broker's session ended",
        p50_ms=took_s * 1_000,
        extra={"lease_ms": float(LEASE_MS), "beyond_lease_ms": took_s * 1_000 - LEASE_MS},
    )


def _partitions(image: ClusterImage) -> list[PartitionImage]:
    return [item for topic in image.topics.values() for item in topic.partitions]


def _log_of(process: ControllerProcess) -> list[dict[str, str]]:
    return [json.loads(line) for line in process.log().splitlines() if line.startswith("{")]


def _acknowledged(process: ControllerProcess) -> int:
    names = {
        line["subscriber"]
        for line in _log_of(process)
        if line.get("message") == "snapshot acknowledged"
    }
    return sum(name.startswith("broker-") for name in names)


def _at(line: dict[str, str]) -> float:
    return datetime.fromisoformat(line["ts"]).timestamp()
