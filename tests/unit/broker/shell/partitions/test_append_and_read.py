"""BrokerParts over disks in memory: what append and read answer, and what a failing disk does to
them.
"""

import asyncio
from typing import Any

import pytest
from broker.core.partition import Role
from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.codec.records import assemble_stored, build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import FeedPosition
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import OTHER, World, topic


def world(*disks: MemDisk, **configs: str) -> World:
    made = World(*disks)
    made.show(topic(configs={name.replace("_", "."): value for name, value in configs.items()}))
    return made


def test_append_and_read() -> None:
    one = world()
    assert one.append(b"a")[:3] == (ErrorCode.NONE, 0, 1)
    assert one.append(b"b")[:3] == (ErrorCode.NONE, 1, 2)
    outcome = one.read(1)
    (found,) = outcome.read.slices
    assert outcome.high_watermark == 2
    assert found.position > 0
    assert found.length == outcome.read.length_bytes


def test_several_batches_are_appended_one_by_one() -> None:
    one = world()
    now = one.clock.wall_ms()
    good = build_batch([(now, None, b"x", ())])
    data = memoryview(bytearray(good + good))
    assert one.appender.append(one.hosted(), data, acks=1, now_ms=now)[:3] == (
        0,
        0,
        2,
    )
    torn = memoryview(bytearray(good + good[:-1]))
    outcome = one.appender.append(one.hosted(), torn, acks=1, now_ms=now)
    assert outcome.error_code is ErrorCode.INVALID_RECORD
    empty = one.appender.append(one.hosted(), memoryview(bytearray()), acks=1, now_ms=now)
    assert empty.error_code is ErrorCode.INVALID_RECORD


def test_a_batch_that_can_be_set_right_has_failed_once_it_is_given_up() -> None:
    one = world()
    now, counters = one.clock.wall_ms(), one.hosted().counters
    made = build_batch([(now, None, b"x", ())])
    untrue = assemble_stored(read_header(made)._replace(max_timestamp=-1), made[HEADER_BYTES:])
    outcome = one.appender.append_batch(one.hosted(), memoryview(bytearray(untrue)), 1, now)
    assert (outcome.is_correctable, outcome.base_offset, counters.failed_produces) == (True, -1, 0)
    data = memoryview(bytearray(made + untrue))
    refused = one.appender.append(one.hosted(), data, acks=1, now_ms=now)
    assert (refused.error_code, counters.failed_produces) == (ErrorCode.INVALID_TIMESTAMP, 1)


@pytest.mark.parametrize(
    ("name", "topic_id", "partition", "code"),
    [
        ("none", bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", bytes(16), 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", bytes(16), -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", b"\x09" * 16, 0, ErrorCode.INCONSISTENT_TOPIC_ID),
        ("", b"\x09" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        ("afar", bytes(16), 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("", b"\x02" * 16, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_is_not_here_is_told_apart(
    name: str, topic_id: bytes, partition: int, code: ErrorCode
) -> None:
    one = World()
    one.show(topic(), topic("afar", number=2, leader=OTHER))
    assert one.table.find(name, topic_id, partition) is code
    assert one.table.find("", b"\x01" * 16, 0) is one.hosted()
    assert one.table.find("orders", b"\x01" * 16, 0) is one.hosted()


def test_reads_outside_the_log_are_refused() -> None:
    one = world()
    one.append()
    assert one.read(1).error_code is ErrorCode.NONE
    assert one.read(2).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert one.read(-1).error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_full_disk_refuses_writes_serves_reads_and_heals() -> None:
    disk = MemDisk()
    one = world(disk)
    one.append(b"kept")
    disk.capacity_bytes = 1
    assert one.append(b"lost").error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.append(b"lost").error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.read(0).read.length_bytes > 0
    assert one.hosted().partition.role is Role.LEADER
    disk.capacity_bytes = 1 << 30
    assert one.parts.partitions.disks.log_managers[0].try_heal()
    assert one.append(b"again")[:3] == (ErrorCode.NONE, 1, 2)


def test_a_failed_disk_takes_its_partitions_out_of_service_for_good() -> None:
    one = world()
    one.append()
    one.parts.partitions.disks.fence_directory(
        one.parts.partitions.disks.log_managers[0], DiskError("x", "EIO")
    )
    assert one.append().error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.read(0).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    one.change(topics_changed=(topic(epoch=1),))
    assert one.hosted().partition.role is Role.FAILED


def test_group_commit_answers_after_the_flush_round() -> None:
    one = world(flush="group")
    manager = one.parts.partitions.disks.log_managers[0]
    assert not one.parts.partitions.group_commits.is_requested(manager)
    assert one.append().must_wait
    assert one.parts.partitions.group_commits.is_requested(manager)
    round_ = manager.begin_flush(only_group=True, now_ms=one.clock.wall_ms())
    assert round_ is not None
    round_.run()
    for log, end in manager.finish_flush(round_):
        assert log is one.hosted().log
        one.parts.partitions.log_moves.synced(one.hosted(), end)
    assert one.hosted().partition.high_watermark == 1


def test_waiting_for_the_feed() -> None:
    one = world()

    async def main() -> None:
        position = FeedPosition(ControllerEpoch(1), one.parts.metadata.image.position.version + 1)
        assert not await one.parts.metadata.wait_for(position, 0)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(one.parts.metadata.wait_for(position, 60))
            await asyncio.sleep(0)
            one.change(topics_changed=(topic("more", number=3),))
        assert waiting.result()
        assert await one.parts.metadata.wait_for(position, 0)

    asyncio.run(main())


def test_waiting_for_bytes_and_for_the_watermark() -> None:
    one = world(flush="group")

    async def main() -> None:
        hosted = one.hosted()
        async with asyncio.TaskGroup() as tasks:
            readable: Any = tasks.create_task(
                one.parked.wait_readable([hosted], bytes_missing=1, wait_ms=60_000)
            )
            committed: Any = tasks.create_task(one.parked.wait_committed(hosted, 1, wait_ms=60_000))
            await asyncio.sleep(0)
            one.append()
            assert one.parked.requests.count == 2
            one.parts.partitions.log_moves.synced(hosted, 1)
        assert readable.result()
        assert committed.result()
        assert not await one.parked.wait_readable([hosted], bytes_missing=1, wait_ms=0)
        one.parked.wake_all()

    asyncio.run(main())


def test_whoever_is_woken_at_the_end_parks_no_more() -> None:
    """A produce whose ISR is slow would park again, and be woken again, for ever."""
    one = world(flush="group")

    async def main() -> None:
        hosted, parked, woken = one.hosted(), one.parked, 0

        def again(fulfilled: bool) -> None:
            nonlocal woken
            woken += 1
            assert not fulfilled
            parked.requests.park_produce(
                [(hosted, 1)], now=one.parts.facts.clock.now_ms(), wait_ms=9, wake=again
            )

        again(False)
        parked.wake_all()
        assert (woken, parked.requests.count) == (2, 0)

    asyncio.run(main())
