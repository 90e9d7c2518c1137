"""DeleteRecords of a replicated partition: the answer waits for the in-sync replicas (KIP-107)."""

import asyncio
from collections.abc import Callable

import pytest
from broker.shell.kafka import delete_records
from broker.shell.request_context import RequestContext
from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated

VERSION = 2
CONTEXT = RequestContext(
    Requester("User:ANONYMOUS", ""), "me", 1, VERSION, "CLIENT", "peer", "request-1"
)


def world_of(records: int) -> LeaderWorld:
    """A leader whose followers have all its records."""
    world = LeaderWorld(min_insync_replicas="2")
    world.parked.requests._on_earlier = lambda _: None
    for _ in range(records):
        world.append(acks=-1)
    for follower in (2, 3):
        world.fetch(follower, records)
    return world


def deleted(
    world: LeaderWorld, offset: int, *meanwhile: Callable[[], object], timeout_ms: int = 60_000
) -> tuple[ErrorCode, int]:
    """The answer to a deletion, and what happens while it waits."""

    async def main() -> tuple[ErrorCode, int]:
        fields = {
            "topics": [
                {"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}
            ],
            "timeout": timeout_ms,
        }
        body = long_tail.write_request(ApiKey.DELETE_RECORDS, VERSION, fields)
        request = long_tail.read_request(ApiKey.DELETE_RECORDS, VERSION, memoryview(body))
        deletion = world.parts.partitions.deletion
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(delete_records.handle(deletion, request, CONTEXT))
            for change in meanwhile:
                await asyncio.sleep(0)
                assert not answering.done()
                change()
        written = long_tail.write_response(ApiKey.DELETE_RECORDS, VERSION, answering.result())
        answer = long_tail.read_response(ApiKey.DELETE_RECORDS, VERSION, memoryview(written))
        (found,) = answer.topics[0].partitions
        return ErrorCode(found.error_code), found.low_watermark

    return asyncio.run(main())


def follower_begins(world: LeaderWorld, follower: int, log_start: int) -> Callable[[], object]:
    return lambda: world.fetch(follower, 5, log_start_offset=log_start)


@pytest.mark.feature("A17")
def test_a_deletion_is_answered_when_every_follower_in_sync_has_the_new_start() -> None:
    world = world_of(5)
    found = deleted(world, 3, follower_begins(world, 2, 3), follower_begins(world, 3, 3))
    assert found == (ErrorCode.NONE, 3)


def test_a_deletion_waits_no_longer_than_its_request() -> None:
    world = world_of(5)
    assert deleted(world, 3, timeout_ms=0) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert world.hosted().partition.log_start == 3


def test_a_follower_that_leaves_the_isr_is_waited_for_no_more() -> None:
    world = world_of(5)
    leaves = lambda: world.show(replicated(partition(isr=(1, 2), version=1)))  # noqa: E731
    found = deleted(world, 3, follower_begins(world, 2, 4), leaves)
    assert found == (ErrorCode.NONE, 3)


def test_a_deletion_under_a_leader_that_was_replaced_is_not_confirmed() -> None:
    world = world_of(5)
    replaced = lambda: world.show(replicated(partition(leader=2, epoch=1)))  # noqa: E731
    assert deleted(world, 3, replaced) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_follower_that_waits_for_records_is_answered_at_once() -> None:
    world = world_of(5)
    woken: list[bool] = []
    world.parked.requests.park_fetch(
        [world.hosted().tail],
        bytes_missing=1,
        now=world.parts.facts.clock.now_ms(),
        wait_ms=60_000,
        wake=woken.append,
    )
    assert deleted(world, 3, timeout_ms=0)[0] is ErrorCode.REQUEST_TIMED_OUT
    assert woken == [False]
