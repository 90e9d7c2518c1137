"""The native share consumer, its admin calls and commands, against processes."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from e2e.clusters import Cluster
from e2e.share_cluster import LOCK_MS, QUICK, make
from tidemark.client import (
    Admin,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ShareConsumer,
    ShareRecord,
    ShareViews,
    TopicPartition,
    make_consumer,
    sync,
)
from tidemark.client.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    InvalidRecordStateError,
)
from waiting import PATIENCE_S, patience

pytestmark = pytest.mark.e2e

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
RECORD_LIMIT: dict[str, Any] = {"share_acquire_mode": "record_limit"}
Name = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster(share_cluster: Cluster) -> Cluster:
    """The cluster of this module."""
    return share_cluster


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def member(cluster: Cluster, group: str, **settings: Any) -> ShareConsumer:
    return ShareConsumer(cluster.kafka(), group_id=group, **{**QUICK, **settings})


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until so many records have come."""
    got: list[ShareRecord] = []
    async with patience():
        while len(got) < count:
            got += await consumer.poll(timeout_ms=200)
    return got


@pytest.mark.feature("T02", "T03", "T10")
def test_members_share_the_records_of_a_partition(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), partitions=2, records=100, group=group)
        async with member(cluster, group, max_poll_records=10) as consumer:
            consumer.subscribe([topic])
            got = await read(consumer, 100)
            assert sorted(int(one.value or b"") for one in got) == list(range(100))
            assert {one.delivery_count for one in got} == {1}
            assert consumer.lock_timeout_ms == LOCK_MS
            assert await consumer.poll(timeout_ms=300) == []

    run(work())


@pytest.mark.feature("S01", "S03", "S04")
def test_a_partition_has_more_than_one_reader(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=40, group=group)
        async with contextlib.AsyncExitStack() as members:
            held: list[int] = []
            for _ in range(4):
                consumer = await members.enter_async_context(
                    member(cluster, group, max_poll_records=10, **EXPLICIT, **RECORD_LIMIT)
                )
                consumer.subscribe([topic])
                held += [record.offset for record in await read(consumer, 10)]
                assert consumer.assignment() == (TopicPartition(topic, 0),)
            assert sorted(held) == list(range(40))

    run(work())


@pytest.mark.feature("S24")
def test_a_partition_that_is_added_is_read_from_its_beginning(
    cluster: Cluster, topic_name: Name
) -> None:
    group, name = topic_name("jobs"), topic_name("orders")

    async def work() -> None:
        async with Admin(cluster.kafka()) as admin, member(cluster, group) as consumer:
            await admin.create_topics([NewTopic(name, 1, 1)])
            consumer.subscribe([name])
            async with patience():
                while not consumer.assignment():
                    await consumer.poll(timeout_ms=50)
            await admin.create_partitions({name: 2})
            async with Producer(cluster.kafka(), **QUICK) as producer:
                for value in (b"first", b"second"):
                    await producer.send(name, value, partition=1)
            got = await read(consumer, 2)
            assert [(one.partition, one.offset) for one in got] == [(1, 0), (1, 1)]

    run(work())


@pytest.mark.feature("T04", "T05", "T12")
def test_each_record_has_an_outcome_of_its_own(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=3, group=group)
        async with member(cluster, group, **EXPLICIT) as consumer:
            consumer.subscribe([topic])
            outcomes = ("accept", "release", "reject")
            decided = list(zip(await read(consumer, 3), outcomes, strict=True))
            for record, outcome in reversed(decided):
                consumer.acknowledge(record, outcome)
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
            (again,) = await read(consumer, 1)
            assert (again.offset, again.delivery_count) == (1, 2)
            consumer.acknowledge(again)
            assert await consumer.poll(timeout_ms=300) == []

    run(work())


@pytest.mark.feature("T06", "T07")
def test_records_may_be_presented_again(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=2, group=group)
        async with member(cluster, group, **EXPLICIT, represent_unacknowledged=True) as consumer:
            consumer.subscribe([topic])
            first, second = await read(consumer, 2)
            consumer.acknowledge(first)
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
            assert await consumer.poll() == [second]
        async with member(cluster, group, **EXPLICIT) as consumer:
            consumer.subscribe([topic])
            first = (await read(consumer, 1))[0]
            with pytest.raises(InvalidRecordStateError, match="1 records are not acknowledged"):
                await consumer.poll()
            assert first.offset == 1

    run(work())


@pytest.mark.feature("T08", "T09", "T11")
def test_closing_keeps_what_is_decided_and_gives_back_the_rest(
    cluster: Cluster, topic_name: Name
) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=4, group=group)
        async with member(cluster, group, max_poll_records=1, **RECORD_LIMIT) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 1)
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
            assert [one.offset for one in await read(consumer, 1)] == [1]
        async with member(cluster, group, **EXPLICIT) as consumer:
            consumer.subscribe([topic])
            got = await read(consumer, 3)
            assert [one.offset for one in got] == [1, 2, 3]
            consumer.acknowledge(got[1])
        async with member(cluster, group) as consumer:
            consumer.subscribe([topic])
            assert [one.offset for one in await read(consumer, 2)] == [1, 3]

    run(work())


@pytest.mark.feature("Y12")
def test_a_record_may_be_released_for_later(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=3, group=group)
        backoff = AlterConfig("share.release.backoff.max.ms", "3600000")
        async with Admin(cluster.kafka()) as admin:
            await admin.alter_configs({ConfigResource("group", group): [backoff]})
        async with member(cluster, group, **EXPLICIT) as consumer:
            consumer.subscribe([topic])
            delays = (3_600_000, 1, 0)
            for record, delay_ms in zip(await read(consumer, 3), delays, strict=True):
                consumer.acknowledge(record, "release", delay_ms=delay_ms)
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
            again = await read(consumer, 2)
            found = sorted((one.offset, one.delivery_count) for one in again)
            assert found == [(1, 2), (2, 2)]
            first, *_ = (await asyncio.to_thread(browsed, cluster, group, topic))["ranges"]
            assert (first["last_offset"], first["state"]) == (0, "available")
            assert first["delay_left_ms"] > 0

    run(work())


@pytest.mark.feature("T08")
def test_a_record_that_was_never_handed_out_keeps_its_attempts(
    cluster: Cluster, topic_name: Name
) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=4, group=group)
        for count in (1, 2):
            async with member(cluster, group, **EXPLICIT) as consumer:
                consumer.subscribe([topic])
                async with patience():
                    record = await anext(consumer)
                assert (record.offset, record.delivery_count) == (0, count)
        async with member(cluster, group) as consumer:
            consumer.subscribe([topic])
            got = [(one.offset, one.delivery_count) for one in await read(consumer, 4)]
            assert sorted(got) == [(0, 3), (1, 1), (2, 1), (3, 1)]

    run(work())


def test_a_record_whose_lock_ends_goes_to_another_member(
    cluster: Cluster, topic_name: Name
) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=1, group=group, lock_ms=1_000)
        async with member(cluster, group, **EXPLICIT) as slow, member(cluster, group) as quick:
            slow.subscribe([topic])
            (record,) = await read(slow, 1)
            quick.subscribe([topic])
            again = (await read(quick, 1))[0]
            assert (again.offset, again.delivery_count > 1) == (0, True)
            slow.acknowledge(record)
            (error,) = (await slow.commit_sync()).values()
            assert isinstance(error, InvalidRecordStateError)

    run(work())


def test_a_renewed_lock_begins_again(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=1, group=group)
        at = TopicPartition(topic, 0)
        async with (
            member(cluster, group, **EXPLICIT) as consumer,
            ShareViews(cluster.grpc()) as views,
        ):

            async def lock_left_ms() -> int:
                (held,) = (await views.browse(group, at)).ranges
                assert held.lock_left_ms is not None
                return held.lock_left_ms

            consumer.subscribe([topic])
            (record,) = await read(consumer, 1)
            async with patience():
                renewed = False
                while not renewed:
                    before = await lock_left_ms()
                    consumer.acknowledge(record, "renew")
                    assert await consumer.commit_sync() == {at: None}
                    renewed = await lock_left_ms() > before
            assert await consumer.poll(timeout_ms=0) == []
            consumer.acknowledge(record)
            assert await consumer.commit_sync() == {at: None}

    run(work())


def test_an_id_has_one_type_of_group(cluster: Cluster, topic_name: Name) -> None:
    shared, own = topic_name("shared"), topic_name("own")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=1, group=shared)
        async with member(cluster, shared) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 1)
            async with Consumer(cluster.kafka(), group_id=shared, **QUICK) as intruder:
                intruder.subscribe([topic])
                with pytest.raises(GroupNotFoundError, match="is not a consumer group"):
                    await poll_until_refused(intruder)
        async with Consumer(cluster.kafka(), group_id=own, **QUICK) as consumer:
            consumer.assign([(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): 0})
        async with member(cluster, own) as intruder:
            intruder.subscribe([topic])
            with pytest.raises(GroupNotFoundError, match="is not a share group"):
                await read(intruder, 1)
        async with Admin(cluster.kafka()) as admin:
            await admin.delete_groups([shared])
            async with Consumer(cluster.kafka(), group_id=shared, **QUICK) as consumer:
                consumer.assign([(topic, 0)])
                await consumer.commit({TopicPartition(topic, 0): 0})

    run(work())


async def poll_until_refused(consumer: Consumer) -> None:
    async with patience():
        while True:
            await consumer.poll(timeout_ms=100)


@pytest.mark.feature("S25", "U01")
def test_administration(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), partitions=2, records=10, group=group)
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with Admin(cluster.kafka()) as admin:
            async with member(cluster, group) as consumer:
                consumer.subscribe([topic])
                await read(consumer, 10)
                await consumer.commit_sync()
                described = (await admin.describe_share_groups([group]))[group]
                (shown,) = described.members
                assert (described.state, shown.member_id) == ("Stable", consumer.member_id)
                assert (shown.topics, shown.assignment) == ((topic,), (zero, one))
                with pytest.raises(GroupNotEmptyError):
                    await admin.alter_share_group_offsets(group, {zero: 0})
            (listed,) = [
                each for each in await admin.list_groups(kinds=["share"]) if each.group_id == group
            ]
            assert (listed.kind, listed.protocol_type, listed.state) == ("share", "share", "Empty")
            offsets = await admin.list_share_group_offsets(group)
            assert {at: (each.start_offset, each.lag) for at, each in offsets.items()} == {
                zero: (5, 0),
                one: (5, 0),
            }
            await admin.alter_share_group_offsets(group, {zero: 3})
            offsets = await admin.list_share_group_offsets(group, [zero])
            assert (offsets[zero].start_offset, offsets[zero].lag) == (3, 2)
            async with member(cluster, group) as consumer:
                consumer.subscribe([topic])
                assert [each.offset for each in await read(consumer, 2)] == [3, 4]
            await admin.delete_share_group_offsets(group, [topic])
            assert await admin.list_share_group_offsets(group) == {}
            await admin.delete_groups([group])
            with pytest.raises(GroupNotFoundError):
                await admin.describe_share_groups([group])

    run(work())


@pytest.mark.feature("T01")
def test_without_await_and_by_type(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")
    topic = asyncio.run(make(cluster, topic_name("orders"), records=3, group=group))
    settings: dict[str, Any] = {"group_id": group, **QUICK}
    assert isinstance(make_consumer(cluster.kafka(), group_type="share", **settings), ShareConsumer)
    heard: list[Any] = []
    with sync.make_consumer(cluster.kafka(), group_type="share", **settings) as consumer:
        consumer.subscribe([topic])
        consumer.on_acknowledged(heard.append)
        got = []
        for record in consumer:
            got.append(record.value)
            if len(got) == 3:
                break
        assert got == [b"0", b"1", b"2"]
        assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
        assert {TopicPartition(topic, 0): None} in heard


def test_the_example_of_the_documents_runs(cluster: Cluster) -> None:
    document = Path(__file__).parents[2] / "docs/share-groups.md"
    examples = re.findall(r"```python\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    example = next(one for one in examples if "asyncio.run" in one)
    code = example.replace("127.0.0.1:9092", cluster.kafka())
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("b'dear reader' 1")


# -- the command line


def tidemark(
    cluster: Cluster, *words: str, grpc: bool = False
) -> "subprocess.CompletedProcess[str]":
    """``tidemark share`` in a process of its own."""
    servers = cluster.grpc() if grpc else cluster.kafka()
    argv = [sys.executable, "-m", "tidemark.cli.main", "share", *words, "--bootstrap", servers]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def shown(cluster: Cluster, *words: str, grpc: bool = False) -> Any:
    """JSON output of a command that succeeds."""
    done = tidemark(cluster, *words, "-o", "json", grpc=grpc)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def consumed(cluster: Cluster, *words: str) -> list[tuple[str, int]]:
    """Values and delivery counts of the records that a command prints."""
    done = tidemark(cluster, "consume", *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [(one["value"], one["delivery_count"]) for one in lines]


RESETS = (("--to-latest",), ("--to-datetime", "2020-01-01"), ("--to-datetime", "2100-01-01"))


@pytest.mark.feature("S25", "S26", "U02")
def test_the_commands_of_a_share_group(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")
    topic = asyncio.run(make(cluster, topic_name("orders"), records=4, group=group))
    assert consumed(cluster, group, topic, "-n", "1", "--outcome", "release") == [("0", 1)]
    assert consumed(cluster, group, topic, "-n", "2") == [("0", 2), ("1", 1)]
    assert {"group": group, "state": "Empty"}.items() <= next(
        one.items() for one in shown(cluster, "list") if one["group"] == group
    )
    (described,) = shown(cluster, "describe", group)
    (partition,) = described["partitions"]
    assert (partition["start_offset"], partition["lag"], described["members"]) == (2, 2, [])
    (move,) = shown(cluster, "reset", group, "--to-earliest")
    assert (move["before"], move["after"], move["outcome"]) == (2, 0, "would move")
    ends = [shown(cluster, "reset", group, *to)[0]["after"] for to in RESETS]
    assert ends == [4, 0, 4]
    assert shown(cluster, "reset", group, "--to-earliest", "--execute")[0]["outcome"] == "moved"
    assert consumed(cluster, group, topic, "-n", "1") == [("0", 1)]
    shown(cluster, "reset", group, "-t", f"{topic}:0", "--to-offset", "3", "--execute")
    later = ("--outcome", "release", "--release-delay", "0.05")
    assert consumed(cluster, group, topic, "-n", "1", *later) == [("3", 1)]
    assert consumed(cluster, group, topic, "-n", "1") == [("3", 2)]
    refused = tidemark(cluster, "consume", group, topic, "--release-delay", "1")
    assert "only with --outcome release" in refused.stderr
    assert shown(cluster, "delete", group, "-y", "-t", topic)[0]["outcome"] == f"forgot {topic}"
    deleted = tidemark(cluster, "delete", group, "nobody", "-y", "-o", "json")
    assert (deleted.returncode, json.loads(deleted.stdout)) == (
        1,
        [{"group": group, "outcome": "deleted"}],
    )
    assert tidemark(cluster, "describe", group).returncode == 1


@pytest.mark.feature("V03", "Y08")
def test_records_in_flight_are_shown_without_a_change(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")

    async def work() -> None:
        topic = await make(cluster, topic_name("orders"), records=5, group=group)
        async with member(cluster, group, **EXPLICIT, **RECORD_LIMIT) as consumer:
            consumer.subscribe([topic])
            records: list[ShareRecord] = []
            while len(records) < 3:
                records += await consumer.poll(3 - len(records))
                for record in records[1:2]:
                    consumer.acknowledge(record)
                await consumer.commit_sync()
            for _ in range(2):
                row = await asyncio.to_thread(browsed, cluster, group, topic)
                states = [
                    (one["first_offset"], one["last_offset"], one["state"], one["member_id"])
                    for one in row["ranges"]
                ]
                assert states == [
                    (0, 0, "acquired", consumer.member_id),
                    (1, 1, "acknowledged", None),
                    (2, 2, "acquired", consumer.member_id),
                ]
                assert (row["acquired"], row["acknowledged"], row["behind"]) == (2, 1, 2)
                assert row["lag"] == 4

    run(work())


def browsed(cluster: Cluster, group: str, topic: str) -> Any:
    return shown(cluster, "browse", group, topic, "0", grpc=True)


def test_configs_of_a_share_group_are_shown_and_changed(cluster: Cluster, topic_name: Name) -> None:
    group = topic_name("jobs")
    name = "share.record.lock.duration.ms"
    assert shown(cluster, "config", group, "-c", f"{name}=5000")[0]["outcome"] == "altered"
    rows = {row["name"]: (row["value"], row["source"]) for row in shown(cluster, "config", group)}
    assert all(name.startswith(("share.", "errors.deadletterqueue.")) for name in rows)
    assert rows[name][0] == "5000"
    misspelt = tidemark(cluster, "config", group, "--unset", "share.record.lock")
    assert f"group '{group}' has no setting 'share.record.lock'" in misspelt.stderr
    shown(cluster, "config", group, "--unset", name)
    rows = {row["name"]: (row["value"], row["source"]) for row in shown(cluster, "config", group)}
    assert rows[name][0] == str(LOCK_MS)
    refused = tidemark(cluster, "config", group, "-c", f"{name}=1")
    assert "group.share.min.record.lock.duration.ms" in refused.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("describe", "nobody"), "Share group nobody not found"),
        (("delete", "GROUP", "-y", "-t", "nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("reset", "GROUP", "-t", "nothing", "--to-latest"), "create the topic first"),
        (("browse", "GROUP", "TOPIC", "7"), "TOPIC-7 does not exist"),
        (("browse", "GROUP", "TOPIC", "0", "--from", "5", "--to", "2"), "not before it"),
        (("config", "GROUP", "-c", "share.nothing=1"), "Unknown group config name"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_to_try(
    cluster: Cluster, topic_name: Name, words: tuple[str, ...], problem: str
) -> None:
    names = {"GROUP": topic_name("jobs"), "TOPIC": topic_name("orders")}
    asyncio.run(make(cluster, names["TOPIC"], records=1, group=names["GROUP"]))
    consumed(cluster, names["GROUP"], names["TOPIC"], "-n", "1")
    argv = [names.get(word, word) for word in words]
    done = tidemark(cluster, *argv, grpc=words[0] == "browse")
    assert done.returncode != 0
    assert problem.replace("TOPIC-", f"{names['TOPIC']}-") in done.stderr
