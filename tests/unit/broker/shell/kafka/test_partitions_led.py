"""DeleteRecords, DescribeProducers, DescribeLogDirs: what the leader of a partition with a real log
answers.
"""

import errno
import os
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from broker.shell.partitions.record_deletion import DeletionTarget, RecordDeletion
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import CLUSTER, Operation, Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import INTERNAL_TOPICS, SHARE_GROUP_STATE
from tidemark.storage.disk import DiskFullError
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.conftest import MakeNode
from unit.broker.shell.kafka.conftest import AskOf
from unit.broker.shell.kafka.group_handlers import Rules
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated

NOW_MS = 1_700_000_000_000


def append(parts: BrokerParts, count: int, producer_id: int = -1) -> None:
    """``count`` batches of one record."""
    for sequence in range(count):
        batch = build_batch(
            [(NOW_MS, None, b"x", ())],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        outcome = parts.partitions.appender.append(
            parts.partitions.table.by_name["orders", 0],
            memoryview(bytearray(batch)),
            acks=-1,
            now_ms=NOW_MS,
        )
        assert outcome.error_code == 0


def append_one(world: World, name: str) -> None:
    """A batch of one record."""
    batch = build_batch([(world.clock.wall_ms(), None, b"x", ())])
    outcome = world.appender.append_internal(world.hosted(name), batch)
    assert outcome.error_code == 0


def deletion(offset: int, name: str = "orders") -> dict[str, object]:
    partition = {"partition_index": 0, "offset": offset}
    return {"topics": [{"name": name, "partitions": [partition]}]}


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("offset", "error", "low_watermark"),
    [
        (4, ErrorCode.NONE, 4),
        (0, ErrorCode.NONE, 0),
        (-1, ErrorCode.NONE, 10),
        (11, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ],
)
def test_records_below_an_offset_are_deleted(
    make_node: MakeNode, ask_of: AskOf, version: int, offset: int, error: int, low_watermark: int
) -> None:
    parts = make_node({})
    append(parts, 10)
    answer = ask_of(parts)(ApiKey.DELETE_RECORDS, deletion(offset), version)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.low_watermark) == (error, low_watermark)
    assert parts.partitions.table.by_name["orders", 0].partition.log_start == max(0, low_watermark)


def test_what_is_deleted_stays_deleted_when_less_is_asked_for(
    make_node: MakeNode, ask_of: AskOf
) -> None:
    parts = make_node({})
    append(parts, 10)
    for offset in (7, 3):
        answer = ask_of(parts)(ApiKey.DELETE_RECORDS, deletion(offset))
        assert answer.topics[0].partitions[0].low_watermark == 7


@pytest.mark.feature("A19")
@pytest.mark.parametrize(
    ("policy", "error"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)]
)
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    make_node: MakeNode, ask_of: AskOf, policy: str, error: int
) -> None:
    parts = make_node({"cleanup.policy": policy})
    answer = ask_of(parts)(ApiKey.DELETE_RECORDS, deletion(-1))
    assert answer.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_clients_delete_no_records_of_internal_topics(ask_of: AskOf, name: str) -> None:
    world = World()
    world.show(topic(name, configs={"cleanup.policy": "delete"}))
    for _ in range(3):
        append_one(world, name)
    answer = ask_of(world.parts)(ApiKey.DELETE_RECORDS, deletion(-1, name))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.hosted(name).partition.log_start == 0


@pytest.mark.parametrize(
    ("owner_epoch", "denied", "log_start"), [(5, None, 2), (0, None, 0), (5, CLUSTER.name, 0)]
)
def test_the_owner_of_a_shard_deletes_records_of_its_state(
    owner_epoch: int, denied: str | None, log_start: int
) -> None:
    world = World()
    world.show(topic(SHARE_GROUP_STATE, configs={"cleanup.policy": "delete"}))
    for _ in range(3):
        append_one(world, SHARE_GROUP_STATE)
    rules = Rules()
    rules.denied.add((Operation.CLUSTER_ACTION, denied or ""))
    room = world.parts.partitions
    facts = replace(world.parts.facts, authorizer=rules)
    deleting = RecordDeletion(
        facts, room.table, room.disks, room.log_moves, room.parked, room.appender
    )
    target = DeletionTarget(SHARE_GROUP_STATE, 0, 2, owner_epoch=owner_epoch)
    refused = nullcontext() if log_start else pytest.raises(TidemarkError, match="only the coord")
    with refused:
        deleting.delete(target, Requester("User:alice", ""))
    assert world.hosted(SHARE_GROUP_STATE).partition.log_start == log_start


def test_a_full_directory_deletes_nothing_and_says_what_it_has(
    make_node: MakeNode, ask_of: AskOf
) -> None:
    parts = make_node({})
    append(parts, 3)
    parts.partitions.disks.log_managers[0].fence(DiskFullError("orders-0", "no space left"))
    answer = ask_of(parts)(ApiKey.DELETE_RECORDS, deletion(2))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (directory,) = ask_of(parts)(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}).results
    assert directory.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [one.name for one in directory.topics] == ["orders"]


def test_a_device_is_not_measured_on_the_event_loop(
    make_node: MakeNode, ask_of: AskOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_node({})
    measured_by = []

    def hangs(path: str) -> os.statvfs_result:
        measured_by.append(threading.current_thread())
        raise OSError(errno.EIO, path)

    monkeypatch.setattr("os.statvfs", hangs)
    (directory,) = ask_of(parts)(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}).results
    assert (directory.error_code, directory.usable_bytes) == (0, -1)
    (thread,) = measured_by
    assert thread is not threading.main_thread()


@pytest.mark.feature("K01")
def test_producers_that_a_partition_remembers_are_described(
    make_node: MakeNode, ask_of: AskOf
) -> None:
    parts = make_node({})
    append(parts, 3, producer_id=8)
    append(parts, 1, producer_id=7)
    asked = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
    (partition,) = ask_of(parts)(ApiKey.DESCRIBE_PRODUCERS, asked).topics[0].partitions
    assert [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
        for one in partition.active_producers
    ] == [(7, 0, 0, NOW_MS), (8, 0, 2, NOW_MS)]


@pytest.mark.feature("K03")
@pytest.mark.parametrize(
    ("directory_failed", "known"),
    [(False, (ErrorCode.NONE, [7])), (True, (ErrorCode.KAFKA_STORAGE_ERROR, []))],
)
def test_a_follower_describes_the_producers_in_its_own_log(
    ask_of: AskOf, directory_failed: bool, known: tuple[ErrorCode, list[int]]
) -> None:
    world = LeaderWorld()
    world.append(acks=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    world.show(replicated(partition(leader=2, epoch=1)))
    if directory_failed:
        world.hosted().partition.become_failed()
    asked = {"topics": [{"name": "orders", "partition_indexes": [0]}]}
    (found,) = ask_of(world.parts)(ApiKey.DESCRIBE_PRODUCERS, asked).topics[0].partitions
    assert (found.error_code, [one.producer_id for one in found.active_producers]) == known


@pytest.mark.parametrize("version", range(1, 6))
@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, [("orders", 0)]), ([("orders", [0, 1])], [("orders", 0)]), ([("other", [0])], [])],
)
def test_a_log_directory_shows_its_partitions_and_its_space(
    make_node: MakeNode,
    ask_of: AskOf,
    tmp_path: Path,
    version: int,
    asked: list[tuple[str, list[int]]] | None,
    found: list[tuple[str, int]],
) -> None:
    parts = make_node({})
    append(parts, 5)
    topics = (
        None
        if asked is None
        else [{"topic": name, "partitions": numbers} for name, numbers in asked]
    )
    (directory,) = ask_of(parts)(ApiKey.DESCRIBE_LOG_DIRS, {"topics": topics}, version).results
    assert (directory.error_code, directory.log_dir) == (0, str(tmp_path))
    assert [
        (topic.name, one.partition_index) for topic in directory.topics for one in topic.partitions
    ] == found
    if found:
        (size_bytes,) = {one.partition_size for one in directory.topics[0].partitions}
        assert size_bytes == (tmp_path / "orders-0" / f"{0:020}.log").stat().st_size
    if version >= 4:
        assert 0 < directory.usable_bytes <= directory.total_bytes
