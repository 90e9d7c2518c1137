"""Marks and times as readers of each isolation level see them; what a replica tells of its own log
to a tool that watches it catch up.
"""

import asyncio
from typing import Any, cast

import pytest
from broker.core.list_offsets import at_mark, at_replica_mark
from tidemark.codec.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, read_header
from tidemark.codec.records import assemble_stored, build_batch
from tidemark.kafka.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidemark.model.errors import ErrorCode
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated


def test_a_replica_tells_its_end_before_it_is_committed() -> None:
    world = LeaderWorld()
    world.append()
    found = at_replica_mark(world.hosted().partition, LATEST_TIMESTAMP)
    committed = at_mark(world.hosted().partition, LATEST_TIMESTAMP)
    assert found is not None
    assert committed is not None
    assert (found.offset, committed.offset) == (1, 0)


def test_a_follower_tells_too() -> None:
    world = LeaderWorld(partition(epoch=3))
    world.append()
    world.change(topics_changed=(replicated(partition(leader=2, epoch=4, version=1)),))
    hosted = world.hosted()
    refused = at_mark(hosted.partition, LATEST_TIMESTAMP)
    assert refused is not None
    assert refused.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bounds = [
        at_replica_mark(hosted.partition, mark) for mark in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    ]
    assert [one.offset for one in bounds if one is not None] == [0, 1]


def test_other_marks_are_the_leaders_to_tell_and_a_failed_log_tells_nothing() -> None:
    world = LeaderWorld()
    assert at_replica_mark(world.hosted().partition, MAX_TIMESTAMP) is None
    world.hosted().partition.become_failed()
    assert at_replica_mark(world.hosted().partition, LATEST_TIMESTAMP) is None


def with_an_open_transaction() -> World:
    """Offset 0 of a transaction, and 1 behind it."""
    one = World()
    one.show(topic())
    asked = one.hosted().partition.verifications
    asked.answer(7, asked.ask(7, 0))
    transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    one.append(b"in", acks=-1, attributes_extra=TRANSACTIONAL_BIT, **transaction)
    one.append(b"behind")
    return one


@pytest.mark.feature("M01", "M06")
@pytest.mark.parametrize(("read_committed", "end"), [(False, 2), (True, 0)])
def test_the_latest_is_where_a_reader_of_that_isolation_level_ends(
    read_committed: bool, end: int
) -> None:
    hosted = with_an_open_transaction().hosted()
    found = at_mark(hosted.partition, LATEST_TIMESTAMP, read_committed=read_committed)
    assert found is not None
    assert found.offset == end


@pytest.mark.parametrize(("read_committed", "offset"), [(False, 0), (True, -1)])
@pytest.mark.parametrize("timestamp", [0, MAX_TIMESTAMP])
def test_a_time_is_looked_up_among_what_a_reader_may_fetch(
    timestamp: int, read_committed: bool, offset: int
) -> None:
    one = with_an_open_transaction()
    looked_up = one.lookup.at_time(
        one.hosted(), timestamp, lane=None, read_committed=read_committed
    )
    assert asyncio.run(looked_up).offset == offset


def promising(timestamp: int, *times: int) -> memoryview:
    """A batch whose header has a higher timestamp than its records."""
    batch = build_batch([(time, None, b"v", ()) for time in times])
    header = read_header(batch)._replace(max_timestamp=timestamp)
    return memoryview(bytearray(assemble_stored(header, batch[HEADER_BYTES:])))


class InlineWorkers:
    """Workers that do a job where it is asked for."""

    async def run_for(self, _lane: object, work: Any, *arguments: Any) -> Any:
        return work(*arguments)


def test_a_time_is_looked_up_behind_a_log_start_within_a_batch() -> None:
    one = World()
    one.show(topic())
    records = [(5, None, b"gone", ()), (5, None, b"there", ())]
    batch = memoryview(bytearray(build_batch(records)))
    one.appender.append(one.hosted(), batch, acks=1, now_ms=5)
    one.hosted().log.advance_log_start(1)
    one.parts.partitions.log_moves.log_start_moved(one.hosted())
    one.lookup._workers = cast("WorkerPool", InlineWorkers())
    looked_up = one.lookup.at_time(one.hosted(), 5, lane=None)
    assert asyncio.run(looked_up).offset == 1


@pytest.mark.parametrize("times", [(5, 5), (5,)])
@pytest.mark.parametrize(("timestamp", "offset"), [(7, -2), (8, -1)])
def test_a_time_is_found_behind_many_batches_that_promise_it(
    timestamp: int, offset: int, times: tuple[int, ...]
) -> None:
    one = World()
    one.show(topic())
    for _ in range(40):
        one.appender.append(one.hosted(), promising(900, *times), acks=1, now_ms=5)
    one.appender.append(one.hosted(), promising(900, 5, 7, 7), acks=1, now_ms=5)
    one.lookup._workers = cast("WorkerPool", InlineWorkers())
    found = asyncio.run(one.lookup.at_time(one.hosted(), timestamp, lane=None))
    expected = -1 if offset == -1 else one.hosted().log.log_end + offset
    assert (found.error_code, found.offset) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("timestamp", [6, MAX_TIMESTAMP])
def test_a_search_that_the_time_index_does_not_help_leaves_turns_to_others(
    monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    monkeypatch.setattr("broker.storage.time_search.HEADERS_AT_ONCE", 10)
    one = World()
    one.show(topic())
    one.appender.append(one.hosted(), promising(900, 5, 5), acks=1, now_ms=5)
    for _ in range(200):
        one.appender.append(one.hosted(), promising(5, 5), acks=1, now_ms=5)
    one.appender.append(one.hosted(), promising(7, 7), acks=1, now_ms=5)
    one.hosted().log.advance_log_start(2)
    one.parts.partitions.log_moves.log_start_moved(one.hosted())
    one.lookup._workers = cast("WorkerPool", InlineWorkers())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> int:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(others())
            found = await one.lookup.at_time(one.hosted(), timestamp, lane=None)
            running.cancel()
        return found.offset

    assert asyncio.run(main()) == 202, "two records come before the 200"
    assert turns >= 180 / 10
