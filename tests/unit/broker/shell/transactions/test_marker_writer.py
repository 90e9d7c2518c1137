"""Markers for the state of share groups, which go to the owners of the shards; and the wait for
in-sync replicas.
"""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.core.partition import Role
from broker.shell.transactions.marker_writer import COMMIT_WAIT_MS, Ending, MarkerWriter
from tidemark.codec.control_record import EndTxnMarker
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import SHARE_GROUP_STATE, TopicPartition
from tidemark.protocol.shard import Writer
from unit.broker.shell.broker_worlds import ME, OTHER, World, topic
from virtual_time import run_virtual

NOTHING = cast("Any", None)
CALLS_TOGETHER = 3


class Owners:
    """Share-coordinators that answer once enough of them were called."""

    def __init__(self, together: int = 1) -> None:
        self.ended: list[tuple[int, int, int, bool]] = []
        self.together = asyncio.Barrier(together)

    async def end_transaction(
        self, shard: int, producer_id: int, open_from: int, *, commits: bool
    ) -> tuple[ErrorCode, str | None]:
        self.ended.append((shard, producer_id, open_from, commits))
        await self.together.wait()
        return ErrorCode.NONE, None


def a_shard(number: int, role: Role = Role.LEADER) -> Any:
    return SimpleNamespace(
        topic_partition=TopicPartition(SHARE_GROUP_STATE, number),
        partition=SimpleNamespace(role=role),
    )


def an_end(*, bumped: bool = True, commits: bool = True) -> Ending:
    return Ending(Writer(7, 5), EndTxnMarker(commits, 1), bumped)


@pytest.mark.parametrize(("bumped", "open_from"), [(True, 5), (False, 6)])
def test_the_owner_ends_what_is_below_the_next_epoch(bumped: bool, open_from: int) -> None:
    async def scenario() -> None:
        owners = Owners()
        markers = MarkerWriter(NOTHING, NOTHING, NOTHING, NOTHING, owners)
        written = markers.write(a_shard(3), an_end(bumped=bumped, commits=False))
        assert await markers.settled(written) == (ErrorCode.NONE, "")
        assert owners.ended == [(3, 7, open_from, False)]

    run_virtual(scenario())


def test_owners_are_called_together_and_once() -> None:
    async def scenario() -> None:
        owners = Owners(CALLS_TOGETHER)
        markers = MarkerWriter(NOTHING, NOTHING, NOTHING, NOTHING, owners)
        written = [markers.write(a_shard(number), an_end()) for number in range(CALLS_TOGETHER)]
        await markers.relay(written)
        assert [await markers.settled(one) for one in written] == [(ErrorCode.NONE, "")] * 3
        assert len(owners.ended) == CALLS_TOGETHER

    run_virtual(scenario())


def test_a_broker_that_does_not_lead_calls_nobody() -> None:
    async def scenario() -> None:
        owners = Owners()
        markers = MarkerWriter(NOTHING, NOTHING, NOTHING, NOTHING, owners)
        code, _ = await markers.settled(markers.write(a_shard(3, Role.FOLLOWER), an_end()))
        assert (code, owners.ended) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])

    run_virtual(scenario())


def test_the_markers_of_a_request_wait_for_replicas_that_stand_still_together() -> None:
    world = World()
    alone = topic(partitions=3)
    both = tuple(replace(one, replicas=(ME, OTHER), isr=(ME, OTHER)) for one in alone.partitions)
    world.show(replace(alone, partitions=both))

    async def wait_committed(_: object, __: int, *, wait_ms: int) -> bool:
        world.clock.advance(wait_ms)
        return False

    async def scenario() -> None:
        parked: Any = SimpleNamespace(wait_committed=wait_committed)
        markers = MarkerWriter(world.clock, world.appender, parked, NOTHING, NOTHING)
        written = [markers.write(world.hosted(partition=one), an_end()) for one in range(3)]
        begin = world.clock.now_ms()
        outcomes = [await markers.settled(one) for one in written]
        assert {message for _, message in outcomes} == {"appended, but not replicated in time"}
        assert world.clock.now_ms() == begin + COMMIT_WAIT_MS

    run_virtual(scenario())
