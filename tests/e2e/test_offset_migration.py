"""A group's offsets in a real ZooKeeper, and on their way out of it and back (F01-F05).

The coordinator is one in memory: what is proven here is what consumers leave in ZooKeeper, and
where they begin.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.zookeeper import RunningZookeeper, running_zookeeper
from kazoo.client import KazooClient
from tidemark.client.errors import RequestTimedOutError
from tidemark.codec.records import build_batch
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import member_on
from unit.tidemark.client.memory_groups import MemoryGroups
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import run_skipping, skip_until

pytestmark = pytest.mark.e2e

ZERO = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(Path(tmp_path_factory.mktemp("zookeeper"))) as running:
        yield running


@pytest.fixture
def znodes(zookeeper: RunningZookeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    yield client
    client.delete("/consumers", recursive=True)
    client.stop()
    client.close()


def cluster() -> MemoryGroups:
    memory = MemoryTransport()
    for number in range(10):
        memory.logs[ZERO].append(build_batch([(number, None, b"%d" % number, ())]))
    return MemoryGroups(memory)


def settings(zookeeper: RunningZookeeper, storage: str, *, dual: bool = False) -> dict[str, Any]:
    return {
        "offsets_storage": storage,
        "dual_commit_enabled": dual,
        "zookeeper_connect": zookeeper.connect,
        "max_poll_records": 2,
    }


async def while_time_passes(commit: Coroutine[Any, Any, None]) -> None:
    """Let the time-out of a commit pass. Raises what the commit raises."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(commit)
            await skip_until(task.done, 10)
    except* RequestTimedOutError as group:
        raise group.exceptions[0] from None


async def read_two(groups: MemoryGroups, wanted: dict[str, Any]) -> list[int]:
    """One life of a high-level consumer: two records, committed as it leaves."""
    records: list[int] = []
    async with member_on(groups, **wanted) as consumer:
        consumer.subscribe(["t"])
        while not records:
            records += [record.offset for record in await consumer.poll(timeout_ms=1_000)]
    return records


@pytest.mark.feature("F05")
def test_the_simple_consumer_commits_and_fetches_by_hand_in_zookeeper(
    zookeeper: RunningZookeeper, znodes: KazooClient
) -> None:
    groups = cluster()

    async def work() -> None:
        async with member_on(groups, **settings(zookeeper, "zookeeper")) as consumer:
            consumer.assign([ZERO])
            assert await consumer.committed([ZERO]) == {ZERO: None}
            await consumer.commit({ZERO: 6})
            assert znodes.get("/consumers/g/offsets/t/0")[0] == b"6"
            znodes.set("/consumers/g/offsets/t/0", b"8")
            assert (await consumer.committed([ZERO]))[ZERO] == (8, "", -1)
        async with member_on(groups, **settings(zookeeper, "zookeeper")) as consumer:
            consumer.assign([ZERO])
            assert await consumer.position(ZERO) == 8

    run_skipping(work())
    assert groups.offsets == {}


@pytest.mark.feature("F01", "F02", "F03", "F04")
def test_a_group_moves_out_of_zookeeper_and_back_without_reading_anything_twice(
    zookeeper: RunningZookeeper, znodes: KazooClient
) -> None:
    groups = cluster()
    path = "/consumers/g/offsets/t/0"
    steps = [
        ("zookeeper", False, (b"2", None)),
        ("tidemark", True, (b"4", 4)),
        ("tidemark", False, (b"4", 6)),
        ("zookeeper", True, (b"8", 8)),
        ("zookeeper", False, (b"10", 8)),
    ]

    async def work() -> None:
        read: list[int] = []
        for storage, dual, (in_zookeeper, in_tidemark) in steps:
            read += await read_two(groups, settings(zookeeper, storage, dual=dual))
            assert znodes.get(path)[0] == in_zookeeper, storage
            assert groups.offsets.get(ZERO, (None, ""))[0] == in_tidemark, storage
        assert read == list(range(10))

    run_skipping(work())


@pytest.mark.feature("F02")
def test_a_dual_commit_waits_for_zookeeper_too(
    zookeeper: RunningZookeeper, znodes: KazooClient
) -> None:
    groups = cluster()
    wanted = settings(zookeeper, "tidemark", dual=True)

    async def work() -> None:
        async with member_on(groups, **wanted) as consumer:
            consumer.assign([ZERO])
            await consumer.commit({ZERO: 1})
            zookeeper.pause()
            try:
                with pytest.raises(RequestTimedOutError, match="ZooKeeper"):
                    await while_time_passes(consumer.commit({ZERO: 2}))
            finally:
                zookeeper.resume()
            await consumer.commit({ZERO: 3})

    run_skipping(work())
    assert znodes.get("/consumers/g/offsets/t/0")[0] == b"3"
