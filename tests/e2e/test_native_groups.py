"""The native client's groups and read_committed, and the commands on both, against processes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from e2e.clusters import Cluster, started_cluster
from tidemark.cli.group import admin as group_commands
from tidemark.cli.txn import admin as txn_commands
from tidemark.client import (
    Admin,
    Consumer,
    NewTopic,
    NoListener,
    Producer,
    TopicPartition,
    TransactionalProducer,
)
from tidemark.client.errors import CommitFailedError, GroupNotEmptyError
from tidemark.plans.offset_reset import Goal, Target
from waiting import patience, until_told

pytestmark = pytest.mark.e2e

QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}
Name = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker that tells members to call often, and a transaction coordinator."""
    quick = {
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 2_000,
        "offsets.topic.num.partitions": 4,
    }
    own = started_cluster(
        tmp_path_factory.mktemp("native"), txn_coordinators=1, overrides={"broker": quick}
    )
    yield own
    own.end()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def make(cluster: Cluster, topic: str, *, partitions: int = 1, records: int = 0) -> str:
    async with Admin(cluster.kafka()) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    async with Producer(cluster.kafka(), **QUICK) as producer:
        for number in range(records):
            await producer.enqueue(topic, b"%d" % number, partition=number % partitions)
    return topic


def member(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    wanted = {"auto_offset_reset": "earliest", "group_id": group, **QUICK, **settings}
    return Consumer(cluster.kafka(), **wanted)


async def values(consumer: Consumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    async with patience():
        while len(got) < count:
            got += [record.value or b"" for record in await consumer.poll(timeout_ms=200)]
    return got


async def until_held_up(reader: Consumer) -> None:
    """A record of an open transaction is here, and waits for its marker."""
    (state,) = reader._fetcher.states.values()
    async with patience():
        while not state.is_held_up:
            assert await reader.poll(timeout_ms=100) == []
    assert await reader.poll(timeout_ms=300) == []


class Heard(NoListener):
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.kinds.append("assigned")

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.kinds.append("revoked")

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.kinds.append("lost")


@pytest.mark.feature("A09", "A11", "D08")
def test_members_share_a_topic_and_the_last_reads_on_where_the_first_stopped(
    cluster: Cluster, topic_name: Name
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("shared"), partitions=4, records=40)
        heard = Heard()
        async with member(cluster, topic) as second:
            async with member(cluster, topic) as first:
                first.subscribe([topic], heard)
                assert len(await values(first, 40)) == 40
                second.subscribe([topic])
                async with patience():
                    while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                        await first.poll(timeout_ms=20)
                        assert await second.poll(timeout_ms=20) == []
                assert not set(first.assignment()) & set(second.assignment())
            async with patience():
                while len(second.assignment()) != 4:
                    assert await second.poll(timeout_ms=20) == [], "all was committed at close"
        assert heard.kinds == ["assigned", "revoked", "revoked"]

    run(work())


@pytest.mark.feature("E14")
def test_a_member_that_hung_has_lost_its_partitions_and_commits_nothing(
    cluster: Cluster, topic_name: Name
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("hung"), records=4)
        heard = Heard()
        async with member(cluster, topic, max_poll_interval_ms=500) as hung:
            hung.subscribe([topic], heard)
            await values(hung, 4)
            async with member(cluster, topic) as heir:
                heir.subscribe([topic])
                assert len(await values(heir, 4)) == 4, "nothing had been committed"
                await heir.commit()
                with pytest.raises(CommitFailedError):
                    await hung.commit({(topic, 0): 1})
                assert await heir.committed([(topic, 0)]) == {(topic, 0): (4, "", 0)}
            await hung.poll(timeout_ms=200)
        assert heard.kinds[:2] == ["assigned", "lost"]

    run(work())


@pytest.mark.feature("E03", "E06")
def test_a_member_outlives_the_death_of_its_coordinator(cluster: Cluster, topic_name: Name) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("outlives"), records=5)
        heard = Heard()
        async with member(cluster, topic) as consumer:
            consumer.subscribe([topic], heard)
            await values(consumer, 5)
            await asyncio.to_thread(cluster.kill, "broker-1")
            commit = asyncio.gather(consumer.commit({(topic, 0): 3}))
            await asyncio.to_thread(cluster.restart, "broker-1")
            await commit
            async with Producer(cluster.kafka(), **QUICK) as producer:
                await producer.send(topic, b"after")
            assert await values(consumer, 1) == [b"after"]
            assert (await consumer.committed([(topic, 0)]))[TopicPartition(topic, 0)] is not None
        assert heard.kinds in (["assigned", "revoked"], ["assigned", "lost", "assigned", "revoked"])

    run(work())


@pytest.mark.feature("M01", "M02", "M03", "M06")
@pytest.mark.parametrize("transport", ["kafka", "grpc"])
def test_reading_ahead_holds_an_open_transaction_back_here_and_not_there(
    cluster: Cluster, topic_name: Name, transport: str
) -> None:
    where = cluster.grpc() if transport == "grpc" else cluster.kafka()
    hasty_settings: dict[str, Any] = {"transport": transport, "auto_offset_reset": "earliest"}
    ahead = hasty_settings | {"isolation_level": "read_committed", "prefetch_beyond_lso": True}

    async def work() -> None:
        topic = await make(cluster, topic_name("ahead"), records=1)
        async with (
            TransactionalProducer(cluster.kafka(), transactional_id=topic, **QUICK) as producer,
            Consumer(where, **ahead) as reader,
            Consumer(where, **hasty_settings) as hasty,
        ):
            await producer.init()
            for reading in (reader, hasty):
                await reading.assign_topic(topic)
            for value, commits in ((b"aborted", False), (b"committed", True)):
                await producer.begin()
                await producer.send(topic, value)
                assert value in await values(hasty, 1 if value == b"committed" else 2)
                if not commits:
                    assert await values(reader, 1) == [b"0"]
                await until_held_up(reader)
                await (producer.commit() if commits else producer.abort())
            assert await values(reader, 1) == [b"committed"]

    run(work())


@pytest.mark.feature("Y08")
def test_a_group_is_described_with_its_lag_moved_and_deleted(
    cluster: Cluster, topic_name: Name
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("commands"), partitions=2, records=10)
        async with member(cluster, topic) as consumer:
            consumer.subscribe([topic])
            await values(consumer, 10)
            await consumer.commit({(topic, 0): 2, (topic, 1): 5})
            job = group_commands.ResetJob(
                cluster.kafka(), topic, Target(Goal.EARLIEST), (), execute=True
            )
            with pytest.raises(GroupNotEmptyError, match="1 members"):
                await group_commands.reset(job)
            (row,) = await group_commands.describe(
                cluster.kafka(), [topic], stable=True, zookeeper=None
            )
            assert [each["lag"] for each in row["partitions"]] == [3, 0]
            assert 0 < row["partitions"][0]["time_lag_ms"] < 60_000
            assert row["partitions"][1]["time_lag_ms"] == 0
        await group_commands.reset(job)
        (row,) = await group_commands.describe(
            cluster.kafka(), [topic], stable=False, zookeeper=None
        )
        assert [each["committed"] for each in row["partitions"]] == [0, 0]
        rows: list[dict[str, Any]] = []
        await group_commands.delete(cluster.kafka(), [topic], [], rows)
        assert rows == [{"group": topic, "outcome": "deleted"}]
        listed = await group_commands.list_all(cluster.kafka(), states=(), kinds=())
        assert topic not in [each["group"] for each in listed]

    run(work())


@pytest.mark.feature("Y08")
def test_who_holds_the_last_stable_offset_is_told_and_ended(
    cluster: Cluster, topic_name: Name
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("holder"), records=3)
        servers = cluster.kafka()
        async with TransactionalProducer(servers, transactional_id=topic, **QUICK) as producer:
            await producer.init()
            await producer.begin()
            await producer.send(topic, b"open")
            (row,) = await txn_commands.holders(servers, [topic])
            assert (row["transactional_id"], row["start_offset"]) == (topic, 3)
            assert 0 <= row["held_ms"] < 60_000
            assert await txn_commands.list_hanging(servers, [topic], timeout_ms_max=0) == []
            await txn_commands.abort_by_id(servers, topic)

            async def has_ended() -> bool:
                return not await txn_commands.holders(servers, [topic])

            await until_told(has_ended, "the marker has not come")
            await producer.close(timeout_ms=0)

    run(work())
