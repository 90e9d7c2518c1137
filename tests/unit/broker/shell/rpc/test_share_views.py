"""Views of share-partitions, and windows that the share-coordinator drops."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.core.share.states import Phase
from broker.shell.metrics.collector import BrokerCollector
from broker.storage.batch_filter import Retention, filter_batch
from tidemark.codec.record_batch import read_header, set_log_append_time
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.share_state import DeliveryState, SharePartitionKey
from tidemark_wire.v1 import share_pb2
from unit.broker.core.share.plain_share_partition import PlainCoordinator
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    GROUP,
    RELEASE,
    TOPIC_ID,
    Member,
    ShareFetchWorld,
    running,
)
from virtual_time import LoopClock, pass_time, run_virtual

CONTEXT = cast("Any", SimpleNamespace(peer=lambda: "peer"))
TOPICS = [share_pb2.ShareTopicPartitions(topic_id=TOPIC_ID, partitions=[0])]


async def lag_of(world: ShareFetchWorld, *partitions: int) -> Any:
    topics = [share_pb2.ShareTopicPartitions(topic_id=TOPIC_ID, partitions=partitions or [0])]
    request = share_pb2.DescribeShareLagsRequest(group_id=GROUP, topics=topics)
    return await world.parts.services().share_views.DescribeLags(request, CONTEXT)


async def browse(world: ShareFetchWorld, **fields: Any) -> Any:
    named = {"group_id": GROUP, "topic_id": TOPIC_ID, "last_offset": -1, **fields}
    request = share_pb2.BrowseShareRequest(**named)
    return await world.parts.services().share_views.Browse(request, CONTEXT)


def story(found: Any) -> list[tuple[int, int, str, int]]:
    return [
        (
            one.first_offset,
            one.last_offset,
            DeliveryState(one.delivery_state).name,
            one.delivery_count,
        )
        for one in found.ranges
    ]


async def busy(world: ShareFetchWorld) -> Member:
    """Ten records acquired, of which five are released and two acknowledged; five behind them."""
    world.put(10, 5)
    member = Member(world)
    assert await member.take(0, wait_ms=500, records=1) == [(0, 9, 1)]
    assert await member.acknowledge((3, 4, ACCEPT), (5, 9, RELEASE)) is ErrorCode.NONE
    return member


STORY = [(0, 2, "ACQUIRED", 1), (3, 4, "ACKNOWLEDGED", 1), (5, 9, "AVAILABLE", 1)]


def test_lag_is_counted_by_state() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            await busy(world)
            (lag,) = (await lag_of(world)).lags
            assert (lag.start_offset, lag.end_offset, lag.behind) == (0, 10, 5)
            assert (lag.available, lag.acquired, lag.acknowledged) == (5, 3, 2)
            assert lag.oldest_age_ms >= 500

    run_virtual(run())


def compacted(batch: bytes, now: int, *, aborted: bool = False) -> bytes:
    rule = Retention({}, 1_000, aborted, keep_empty=True, now_ms=now, delete_retention_ms=60)
    left = filter_batch(memoryview(batch), read_header(batch), rule).batch
    assert left is not None
    return left


def stamped(batch: bytes, now: int) -> bytes:
    found = bytearray(batch)
    set_log_append_time(found, now - 1_000)
    return bytes(found)


@pytest.mark.parametrize(
    ("kept", "age_ms"),
    [(compacted, 1_000), (partial(compacted, aborted=True), 1_000), (stamped, 900_000)],
    ids=["delete horizon", "no record left", "time of the producer"],
)
def test_the_age_is_that_of_records_where_the_header_begins_with_another_time(
    kept: Callable[[bytes, int], bytes], age_ms: int
) -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            now = LoopClock().wall_ms()
            left = kept(build_batch([(now - age_ms, b"k", None, ())]), now)
            world.parts.partitions.appender.append_internal(world.at(), left)
            world.state.kept[SharePartitionKey(GROUP, TopicId(TOPIC_ID), 0)] = PlainCoordinator()
            (lag,) = (await lag_of(world)).lags
            assert 1_000 <= lag.oldest_age_ms < 2_000

    run_virtual(run())


def test_a_window_is_browsed_without_a_change() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            await busy(world)
            for _ in range(2):
                assert story(await browse(world)) == STORY
            found = await browse(world, first_offset=4, last_offset=6)
            assert story(found) == [(4, 4, "ACKNOWLEDGED", 1), (5, 6, "AVAILABLE", 1)]
            (held, *_) = (await browse(world)).ranges
            assert (held.member_id, 0 < held.lock_left_ms <= 30_000) == ("m1", True)

    run_virtual(run())


def test_a_window_is_browsed_in_pages() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            await busy(world)
            found = await browse(world, ranges_max=2)
            assert (story(found), found.next_offset) == (STORY[:2], 5)
            rest = await browse(world, ranges_max=2, first_offset=found.next_offset)
            assert (story(rest), rest.next_offset) == (STORY[2:], -1)

    run_virtual(run())


def test_before_the_first_share_group_there_is_none_to_browse() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld(has_groups=False)) as world:
            found = await browse(world)
            assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            (lag,) = (await lag_of(world)).lags
            assert lag.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert world.state.calls == []

    run_virtual(run())


def test_a_share_partition_that_nothing_reads_here_is_seen_as_it_was_written() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            await (await busy(world)).close()
            await pass_time(1)
            world.shares.drop_idle()
            expected = [(0, 2, "AVAILABLE", 1), *STORY[1:]]
            assert story(await browse(world)) == expected
            (lag,) = (await lag_of(world)).lags
            assert (lag.available, lag.acquired, lag.behind) == (8, 0, 5)
            assert len(world.shares) == 0

    run_virtual(run())


def test_a_look_gives_a_new_group_no_start_offset() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            world.put(3)
            found = await browse(world)
            (lag,) = (await lag_of(world)).lags
            assert (found.start_offset, lag.start_offset, lag.oldest_age_ms) == (-1, -1, -1)
            assert world.state.kept == {}

    run_virtual(run())


def test_errors_are_those_of_each_partition() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            world.state.failures = [ErrorCode.GROUP_ID_NOT_FOUND]
            lags = (await lag_of(world, 0, 9)).lags
            assert [ErrorCode(one.error_code) for one in lags] == [
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            code = (await browse(world, partition=9)).error_code
            assert ErrorCode(code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_virtual(run())


@pytest.mark.parametrize(
    "wrong", [{"group_id": ""}, {"first_offset": -1}, {"last_offset": -2}, {"ranges_max": -1}]
)
def test_requests_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            found = await browse(world, **wrong)
            assert ErrorCode(found.error_code) is ErrorCode.INVALID_REQUEST

    run_virtual(run())


def test_windows_are_dropped_for_the_share_coordinator() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            member = await busy(world)
            world.state.reset()
            request = share_pb2.DropWindowsRequest(group_id=GROUP, topics=TOPICS)
            answer = await world.parts.services().share_groups.DropWindows(request, CONTEXT)
            assert answer.error_code == 0
            assert await member.take(wait_ms=500) == [(0, 14, 1)]

    run_virtual(run())


def test_share_partitions_with_dead_letters_are_loaded_for_the_share_coordinator() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            member = await busy(world)
            await member.close()
            world.shares.drop_windows(GROUP, [(TopicId(TOPIC_ID), 0)])
            group = share_pb2.LoadWindowsRequest.Group(group_id=GROUP, topics=TOPICS)
            request = share_pb2.LoadWindowsRequest(groups=[group])
            answer = await world.parts.services().share_groups.LoadWindows(request, CONTEXT)
            assert answer.error_code == 0
            await pass_time(1)
            (held,) = world.shares
            assert held.share.phase is Phase.ACTIVE

    run_virtual(run())


def test_metrics_show_lag_and_what_the_broker_holds() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            await busy(world)
            families = {one.name: one for one in BrokerCollector(world.parts.measured()).collect()}
            (lag,) = families["tidemark_share_lag_records"].samples
            assert (lag.labels["group"], lag.labels["topic"], lag.value) == (GROUP, "orders", 13)
            (sessions,) = families["tidemark_share_sessions"].samples
            (writes,) = families["tidemark_share_state_writes"].samples
            assert (sessions.value, writes.value) == (1, 2)

    run_virtual(run())
