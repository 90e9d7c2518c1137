"""Requests that wait for the next write of their group."""

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    GROUP,
    TOPIC_ID,
    Member,
    ShareFetchWorld,
    running,
)
from virtual_time import pass_time, run_virtual

MINUTE_S = 60


def test_a_group_whose_share_partitions_were_dropped_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            world.put(2, 2)
            one, other = Member(world), Member(world, "m2")
            assert await one.take(0, wait_ms=500, records=2) == [(0, 1, 1)]
            assert await other.take(0, wait_ms=500, records=2) == [(2, 3, 1)]
            world.state.latency_s = 1
            first = world.start(one.acknowledge((0, 1, ACCEPT)))
            await pass_time(0.1)
            second = world.start(other.acknowledge((2, 3, ACCEPT)))  # waits for the next write
            await pass_time(0.1)
            world.shares.drop_windows(GROUP, [(TopicId(TOPIC_ID), 0)])
            assert await first is await second is ErrorCode.NOT_LEADER_OR_FOLLOWER
            one.lose_connection()
            other.lose_connection()
            await pass_time(MINUTE_S)
            assert len(world.shares.turns.gathering) == 0

    run_virtual(run())
