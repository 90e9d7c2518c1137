"""Coordinators at real controllers on ZooKeeper: registration, shards, moves, and a failover."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from e2e.controllers import SESSION_MS, Client, client_of, controllers, feed_of
from e2e.zookeeper import RunningZookeeper, running_zookeeper
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import TXN, ShardOwner
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.zk_session import ZkSession

pytestmark = pytest.mark.e2e

STATE = "__transaction_state"
FENCE_MS = 200
FOREVER_MS = 60_000
QUICK = ("--feed.lost.fence.ms", str(FENCE_MS))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def connect(zookeeper: RunningZookeeper, request: pytest.FixtureRequest) -> str:
    """A chroot for each test."""
    return f"{zookeeper.connect}/{request.node.name}"


class Replica:
    """What a coordinator process has of the cluster, and a way to end as a crash does."""

    def __init__(self, session: CoordinatorSession, running: "asyncio.Task[None]") -> None:
        self.session = session
        self._running = running

    def crash(self) -> None:
        """Its feed breaks; its ZooKeeper session has yet to expire."""
        self._running.cancel()


@asynccontextmanager
async def coordinator(
    connect: str, number: int, *, session_ms: int = SESSION_MS
) -> AsyncIterator[Replica]:
    """A registered replica that serves nothing."""
    zk = ZkSession(connect, session_timeout_ms=session_ms)
    await zk.start()
    client = ControllerClient(zk)
    session = CoordinatorSession(
        zk, client, kind=TXN, coordinator_id=number, grpc_endpoint=f"127.0.0.1:{number}"
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(session.run(MetadataCache()))
            try:
                yield Replica(session, running)
            finally:
                running.cancel()
    finally:
        await client.close()
        await zk.stop()


def owners(client: Client) -> list[int]:
    return [one.coordinator_id for one in client.image.shards.get(TXN, ())]


async def sees_owners(client: Client, *expected: int) -> None:
    await client.sees(lambda _: owners(client) == list(expected))


@pytest.mark.feature("H15")
def test_shards_follow_the_living_long_before_a_session_expires(
    connect: str, tmp_path: Path
) -> None:
    async def use() -> None:
        async with client_of(connect) as client:
            broker = await client.broker(1)
            async with (
                feed_of(connect, broker),
                coordinator(connect, 1) as one,
                coordinator(connect, 2, session_ms=FOREVER_MS) as two,
            ):
                await client.sees(lambda image: len(image.coordinators) == 2)
                await client.create(STATE, 4)
                await sees_owners(client, 1, 2, 1, 2)
                assert await two.session.acquire(1) == 2
                two.crash()
                await sees_owners(client, 1, 1, 1, 1)
                with pytest.raises(TidemarkError) as refused:
                    await two.session.acquire(1)
                assert refused.value.code is ErrorCode.NOT_COORDINATOR
                assert await one.session.acquire(1) == 4
            await sees_owners(client, -1, -1, -1, -1)

    with controllers(1, connect, tmp_path, *QUICK):
        asyncio.run(use())


@pytest.mark.feature("E12")
def test_owners_and_their_epochs_outlive_a_controller(connect: str, tmp_path: Path) -> None:
    async def use() -> None:
        async with client_of(connect) as client, coordinator(connect, 1) as one:
            await client.broker(1)
            await client.create(STATE, 2)
            await sees_owners(client, 1, 1)
            assert await one.session.acquire(0) == 2
            first = (await one.session.allocate_producer_ids()).first
            term = client.image.position.controller_epoch
            replicas[0].kill()
            await client.sees(lambda image: image.position.controller_epoch > term)
            assert client.image.shards[TXN] == (ShardOwner(0, 1, 2), ShardOwner(1, 1, 1))
            assert await one.session.acquire(0) == 3
            assert (await one.session.allocate_producer_ids()).first > first

    with controllers(2, connect, tmp_path, *QUICK) as replicas:
        asyncio.run(use())
