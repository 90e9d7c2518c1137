"""Transactions with real clients and processes: all or nothing, at each isolation level; zombies,
timeouts, and what operators see.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka import KafkaException, TopicPartition
from e2e.clusters import Cluster
from e2e.transactional_clients import (
    UNCOMMITTED,
    WAIT_S,
    committed_offset,
    create,
    producer,
    read,
    read_native,
    read_until,
    transactional_cluster,
    write,
    write_plain,
)
from tidemark.client import Admin, GroupMetadata, ProducerFencedError, TransactionalProducer
from tidemark.client.transactions.multi_writer import Transactions, WriterReceipt

NameOf = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nobody hurts it."""
    directory = tmp_path_factory.mktemp("transactions")
    with transactional_cluster(directory, txn_coordinators=2) as running:
        yield running


@pytest.fixture
def name() -> str:
    """For topics, groups and transactional ids of one test."""
    return f"t-{uuid.uuid4().hex[:8]}"


def fenced_by(one: confluent_kafka.Producer) -> int:
    """The code with which a commit fails."""
    with pytest.raises(KafkaException) as refused:
        one.commit_transaction(WAIT_S)
    return int(refused.value.args[0].code())


@pytest.mark.feature("L01", "L05", "L06", "L08", "L09", "L11", "L12", "M01", "M06", "N02")
def test_readers_see_all_of_a_commit_and_nothing_of_an_abort(cluster: Cluster, name: str) -> None:
    a, b = f"{name}-a", f"{name}-b"
    create(cluster, a, b)
    one = producer(cluster, name)
    one.begin_transaction()
    write(one, {a: ["1", "2"], b: ["3"]})
    one.commit_transaction(WAIT_S)
    one.begin_transaction()
    write(one, {a: ["4"], b: ["5"]})
    one.abort_transaction(WAIT_S)
    one.begin_transaction()
    write(one, {a: ["6"]})
    assert read_until(cluster, a, ["1", "2"]) == ["1", "2"]
    assert read_until(cluster, b, ["3"]) == ["3"]
    assert read(cluster, a, UNCOMMITTED) == ["1", "2", "4", "6"]
    one.commit_transaction(WAIT_S)
    assert read_until(cluster, a, ["1", "2", "6"]) == ["1", "2", "6"]


@pytest.mark.feature("M02")
def test_what_is_not_transactional_waits_only_behind_an_open_transaction(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name)
    one = producer(cluster, name)
    one.begin_transaction()
    write_plain(cluster, name, "at-once")
    write(one, {name: ["held"]})
    write_plain(cluster, name, "behind")
    assert read(cluster, name) == ["at-once"]
    assert read(cluster, name, UNCOMMITTED) == ["at-once", "held", "behind"]
    one.commit_transaction(WAIT_S)
    assert read_until(cluster, name, ["at-once", "held", "behind"])[-1] == "behind"


@pytest.mark.feature("M01", "M02", "M03", "M04")
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("transport", ["kafka", "grpc"])
def test_the_native_client_sees_what_librdkafka_sees(
    cluster: Cluster, name: str, transport: str, *, ahead: bool
) -> None:
    create(cluster, name)
    one, other = producer(cluster, name), producer(cluster, f"{name}-other")
    for each in (one, other):
        each.begin_transaction()
    write(one, {name: ["committed"]})
    write(other, {name: ["aborted"]})
    write_plain(cluster, name, "plain")
    other.abort_transaction(WAIT_S)
    one.commit_transaction(WAIT_S)
    one.begin_transaction()
    write(one, {name: ["open"]})
    write_plain(cluster, name, "behind")
    expected = ["committed", "plain"]
    assert read_until(cluster, name, expected) == expected
    settings: dict[str, Any] = {"transport": transport, "prefetch_beyond_lso": ahead}
    assert read_native(cluster, name, **settings) == expected
    one.commit_transaction(WAIT_S)
    expected += ["open", "behind"]
    assert read_until(cluster, name, expected) == expected
    assert read_native(cluster, name, **settings) == expected


@pytest.mark.feature("L10", "L14")
def test_offsets_move_with_the_transaction_only(cluster: Cluster, name: str) -> None:
    create(cluster, name)
    write_plain(cluster, name, *map(str, range(10)))
    one = producer(cluster, name)
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False}
    )
    group = reader.consumer_group_metadata()
    one.begin_transaction()
    one.send_offsets_to_transaction([TopicPartition(name, 0, 4)], group, WAIT_S)
    one.commit_transaction(WAIT_S)
    assert committed_offset(cluster, name, name) == 4
    one.begin_transaction()
    one.send_offsets_to_transaction([TopicPartition(name, 0, 9)], group, WAIT_S)
    one.abort_transaction(WAIT_S)
    assert committed_offset(cluster, name, name) == 4
    reader.close()


@pytest.mark.feature("L02", "L03", "L04")
def test_a_second_instance_fences_the_first_and_ends_what_it_left_open(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name)
    first = producer(cluster, name)
    first.begin_transaction()
    write(first, {name: ["left open"]})
    second = producer(cluster, name)
    second.begin_transaction()
    write(second, {name: ["whole"]})
    second.commit_transaction(WAIT_S)
    assert fenced_by(first) == confluent_kafka.KafkaError._FENCED
    assert read_until(cluster, name, ["whole"]) == ["whole"]


@pytest.mark.feature("L02", "N04")
def test_offsets_of_a_zombie_are_refused(cluster: Cluster, name: str) -> None:
    create(cluster, name)
    write_plain(cluster, name, *map(str, range(10)))
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False}
    )
    group = reader.consumer_group_metadata()
    zombie = producer(cluster, name)
    zombie.begin_transaction()
    zombie.send_offsets_to_transaction([TopicPartition(name, 0, 9)], group, WAIT_S)
    heir = producer(cluster, name)
    heir.begin_transaction()
    heir.send_offsets_to_transaction([TopicPartition(name, 0, 5)], group, WAIT_S)
    with pytest.raises(KafkaException):
        zombie.send_offsets_to_transaction([TopicPartition(name, 0, 9)], group, WAIT_S)
    heir.commit_transaction(WAIT_S)
    assert committed_offset(cluster, name, name) == 5
    reader.close()


@pytest.mark.feature("E14", "L10")
def test_offsets_of_a_member_that_was_replaced_are_refused(cluster: Cluster, name: str) -> None:
    """KIP-447: partitions move with the group, whatever transactional ids its members have."""
    create(cluster, name)
    write_plain(cluster, name, *map(str, range(10)))
    members = [_member(cluster, name) for _ in range(2)]
    stale = _metadata_once_assigned(members[0], name)
    members[0].close()
    current = _metadata_once_assigned(members[1], name)
    one = producer(cluster, name)
    one.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        one.send_offsets_to_transaction([TopicPartition(name, 0, 9)], stale, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    one.abort_transaction(WAIT_S)
    one.begin_transaction()
    one.send_offsets_to_transaction([TopicPartition(name, 0, 5)], current, WAIT_S)
    one.commit_transaction(WAIT_S)
    assert committed_offset(cluster, name, name) == 5
    members[1].close()


def _member(cluster: Cluster, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def _metadata_once_assigned(member: confluent_kafka.Consumer, topic: str) -> object:
    member.subscribe([topic])
    deadline = time.monotonic() + WAIT_S
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.2)
    assert member.assignment(), "no partition within the wait"
    return member.consumer_group_metadata()


@pytest.mark.feature("L04")
def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, name: str) -> None:
    create(cluster, name)
    slow = producer(cluster, name, **{"transaction.timeout.ms": 6_000})
    slow.begin_transaction()
    write(slow, {name: ["too late"]})
    write_plain(cluster, name, "behind")
    assert read_until(cluster, name, ["behind"]) == ["behind"]
    assert fenced_by(slow) == confluent_kafka.KafkaError._FENCED


@pytest.mark.feature("L13", "M01", "L03")
def test_aiokafka_commits_aborts_and_is_fenced(cluster: Cluster, name: str) -> None:
    create(cluster, name)

    def made() -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name)

    async def use() -> None:
        async with made() as first:
            async with first.transaction():
                await first.send_and_wait(name, b"committed", partition=0)
                offsets = {aiokafka.TopicPartition(name, 0): 7}
                await first.send_offsets_to_transaction(offsets, name)
            await first.begin_transaction()
            await first.send_and_wait(name, b"aborted", partition=0)
            await first.abort_transaction()
            await first.begin_transaction()
            await first.send_and_wait(name, b"zombie's", partition=0)
            async with made():
                with pytest.raises(aiokafka.errors.ProducerFenced):
                    await first.commit_transaction()

    asyncio.run(use())
    assert read_until(cluster, name, ["committed"]) == ["committed"]
    assert committed_offset(cluster, name, name) == 7


@pytest.mark.feature("L02", "L09", "L10", "M01")
@pytest.mark.parametrize("transport", ["kafka", "grpc"])
def test_the_native_client_has_a_new_epoch_for_every_transaction(
    cluster: Cluster, name: str, transport: Any
) -> None:
    create(cluster, name)
    servers = cluster.bootstrap if transport == "kafka" else cluster.grpc()

    async def use() -> None:
        async with (
            TransactionalProducer(servers, transactional_id=name, transport=transport) as first,
            TransactionalProducer(servers, transactional_id=name, transport=transport) as heir,
        ):
            await first.init()
            async with first.transaction():
                await first.send(name, value=b"committed", partition=0)
                await first.send_offsets({(name, 0): 7}, GroupMetadata(name))
            await first.begin()
            await first.send(name, value=b"aborted", partition=0)
            await first.abort()
            await first.begin()
            await first.send(name, value=b"zombie's", partition=0)
            await heir.init()
            with pytest.raises(ProducerFencedError):
                await first.commit()

    asyncio.run(use())
    assert read_until(cluster, name, ["committed"]) == ["committed"]
    assert committed_offset(cluster, name, name) == 7
    (at_leader,) = _producers(cluster, name)
    assert at_leader.producer_epoch == 3  # raised by every marker: commit, abort, fence


@pytest.mark.feature("Y04")
def test_any_process_commits_by_the_handle_the_writers_that_count(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name)

    async def use() -> None:
        async with Transactions(cluster.grpc(1)) as begun, Transactions(cluster.grpc(2)) as other:
            handle = await begun.begin_transaction(name)
            receipts = {}
            for slot in ("counted", "failed"):
                async with await handle.enlist(slot) as writer:
                    await writer.send(name, value=slot.encode(), partition=0)
                    receipts[slot] = str(writer.receipt())
            resumed = other.resume(str(handle))
            counted = [WriterReceipt.parse(receipts["counted"])]
            assert await resumed.finish(commit=True, writers=counted)
            assert await handle.finish(commit=True, writers=counted)

    asyncio.run(use())
    assert read_until(cluster, name, ["counted"]) == ["counted"]
    assert sorted(read(cluster, name, UNCOMMITTED)) == ["counted", "failed"]


@pytest.mark.feature("Y08", "L07")
def test_operators_see_who_holds_the_last_stable_offset(cluster: Cluster, name: str) -> None:
    create(cluster, name)
    write_plain(cluster, name, "before")
    one = producer(cluster, name)
    one.begin_transaction()
    write(one, {name: ["open"]})
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        listed = admin.list_transactions(state_filters=["Ongoing"])
        ours = [
            each for found in listed.values() for each in found if each.transactional_id == name
        ]
        (described,) = admin.describe_transactions([name]).values()
    finally:
        admin.close()
    (holder,) = [each for each in _producers(cluster, name) if each.current_txn_start_offset >= 0]
    assert [each.producer_id for each in ours] == [holder.producer_id]
    assert described.topic_partitions == {kafka.TopicPartition(name, 0)}
    assert holder.current_txn_start_offset == 1
    one.abort_transaction(WAIT_S)


def _producers(cluster: Cluster, topic: str) -> list[Any]:
    async def ask() -> list[Any]:
        async with Admin(cluster.bootstrap) as admin:
            (found,) = (await admin.describe_producers([(topic, 0)])).values()
            return list(found)

    return asyncio.run(ask())
