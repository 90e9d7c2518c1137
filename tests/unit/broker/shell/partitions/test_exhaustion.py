"""What a broker answers when it has no descriptor left, and that it serves on afterwards."""

import asyncio

from broker.core.partition import Role
from tidemark.kafka.list_offsets import MAX_TIMESTAMP
from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import ExhaustedError
from unit.broker.shell.broker_worlds import World, topic


def cold() -> World:
    """A broker with two partitions of three batches, started again: no segment is open."""
    one = World()
    one.show(topic(partitions=2))
    for _ in range(3):
        one.append()
    again = World(*one.disks)
    again.show(topic(partitions=2))
    return again


def test_a_cold_read_is_refused_and_no_partition_fails() -> None:
    one = cold()
    hosted, other = one.hosted(), one.hosted(partition=1)
    one.disks[0].exhausted = True
    assert one.reader.read(hosted, 0, bytes_max=100).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.append().error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.parts.counters.calls_refused == 2
    assert hosted.manager.fenced is None
    assert (hosted.partition.role, other.partition.role) == (Role.LEADER, Role.LEADER)
    one.disks[0].exhausted = False
    assert one.reader.read(hosted, 0, bytes_max=100).error_code is ErrorCode.NONE
    assert one.append().base_offset == 3


def test_a_lookup_by_time_is_refused() -> None:
    one = cold()
    one.disks[0].exhausted = True
    found = asyncio.run(one.lookup.at_time(one.hosted(), MAX_TIMESTAMP, lane=None))
    assert found.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.hosted().manager.fenced is None


def test_a_log_is_begun_only_with_room_for_all_its_files() -> None:
    one = cold()

    def refuse() -> None:
        raise ExhaustedError("", "Too many open files")

    one.disks[0].expect_room = refuse  # type: ignore[method-assign]
    one.show(topic(partitions=2), topic("late", number=2))
    assert not one.disks[0].exists("late-0"), "the next try would set it aside as a stray"
    assert one.hosted().manager.fenced is None


def test_a_topic_that_could_not_be_made_is_made_later() -> None:
    one = cold()
    one.disks[0].exhausted = True
    one.show(topic(partitions=2), topic("late", number=2))
    assert ("late", 0) not in one.table.by_name
    asyncio.run(one.hosting.retry_due())
    one.disks[0].exhausted = False
    asyncio.run(one.hosting.retry_due())
    assert one.hosted("late").partition.role is Role.LEADER
    assert one.hosted().manager.fenced is None
