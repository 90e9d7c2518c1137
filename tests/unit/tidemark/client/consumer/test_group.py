import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.consumer.group_types import NoListener, OffsetAndMetadata
from tidemark.client.errors import (
    ClientConfigError,
    CommitFailedError,
    FencedInstanceError,
    LogTruncationError,
    RequestTimedOutError,
)
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import member_on, run
from unit.tidemark.client.memory_groups import MemoryGroups
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import pass_time
from waiting import until

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


def groups(*, partitions: int = 2, count: int = 5) -> MemoryGroups:
    cluster = MemoryTransport(partitions=partitions)
    for log in cluster.logs.values():
        for number in range(count):
            log.append(build_batch([(number, None, b"%d" % number, ())]))
    return MemoryGroups(cluster)


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []

    async def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.heard.append(("assigned", [each.partition for each in partitions]))

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.heard.append(("revoked", [each.partition for each in partitions]))

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.heard.append(("lost", [each.partition for each in partitions]))


async def poll_until(consumer: Consumer, met: Callable[[], bool]) -> list[tuple[int, int]]:
    """Poll until a condition is met; what came, as (partition, offset)."""
    got: list[tuple[int, int]] = []
    while not met():
        records = await consumer.poll(timeout_ms=20)
        got += [(record.partition, record.offset) for record in records]
    return got


async def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    got: list[tuple[int, int]] = []
    while len(got) < count:
        records = await consumer.poll(timeout_ms=20)
        got += [(record.partition, record.offset) for record in records]
    return got


@pytest.mark.feature("A09", "E02")
def test_a_member_finds_its_coordinator_and_reads_what_it_is_assigned() -> None:
    cluster = groups()

    async def work() -> None:
        listener = Listener()
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"], listener)
            assert len(await read(consumer, 10)) == 10
            assert consumer.assignment() == (ZERO, ONE)
            assert consumer.group_metadata().member_epoch == cluster.epoch
        assert listener.heard == [("assigned", [0, 1]), ("revoked", [0, 1])]

    run(work())
    (found,) = cluster.requests(ApiKey.FIND_COORDINATOR)
    assert found.coordinator_keys == ["g"]
    assert not cluster.members, "left at close"


@pytest.mark.feature("A09")
def test_a_second_member_gets_its_part_once_the_first_let_it_go() -> None:
    cluster = groups()

    async def work() -> None:
        first_heard, second_heard = Listener(), Listener()
        async with member_on(cluster) as first, member_on(cluster) as second:
            first.subscribe(["t"], first_heard)
            await read(first, 10)
            second.subscribe(["t"], second_heard)
            while not second.assignment():
                await first.poll(timeout_ms=5)
                await second.poll(timeout_ms=5)
            assert len(first.assignment()) == 1
            assert {*first.assignment(), *second.assignment()} == {ZERO, ONE}
            assert await second.poll(timeout_ms=50) == [], "committed by the first"
        assert first_heard.heard[1][0] == "revoked"

    run(work())


@pytest.mark.feature("A10", "A11", "D05", "D08")
def test_the_high_level_consumer_commits_by_itself_what_it_returned_before() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        async with member_on(cluster, max_poll_records=2, auto_commit_interval_ms=1) as consumer:
            consumer.subscribe(["t"])
            assert await read(consumer, 2) == [(0, 0), (0, 1)]
            await asyncio.sleep(0.005)
            known = cluster.offsets.get(ZERO, (0, ""))
            assert known[0] == 0, "not before the user asked for more"
            await read(consumer, 2)
            await asyncio.sleep(0.01)
            assert cluster.offsets[ZERO][0] == 2
        assert cluster.offsets[ZERO][0] == 4, "at close, what was returned last"
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"])
            assert await read(consumer, 1) == [(0, 4)]

    run(work())


@pytest.mark.feature("D08")
def test_the_simple_consumer_commits_when_told_and_is_no_member() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 5)
            assert await consumer.committed([ZERO]) == {ZERO: None}
            await consumer.commit({ZERO: OffsetAndMetadata(3, "so far")})
            assert await consumer.committed([ZERO]) == {ZERO: (3, "so far", -1)}
        async with member_on(cluster) as consumer:
            consumer.assign([ZERO])
            assert await consumer.position(ZERO) == 3

    run(work())
    assert not cluster.requests(HEARTBEAT)


@pytest.mark.feature("E03")
@pytest.mark.parametrize("api_key", [HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT])
@pytest.mark.parametrize("fault", [ErrorCode.NOT_COORDINATOR, "lost"])
def test_a_moved_coordinator_is_found_again(api_key: ApiKey, fault: Any) -> None:
    cluster = groups()
    cluster.faults[api_key].append(fault)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 10)
            await consumer.commit()
            cluster.port = 2
            await consumer.commit({ZERO: 4, ONE: 4})

    run(work())
    assert len(cluster.requests(ApiKey.FIND_COORDINATOR)) >= 3
    assert cluster.port == 2


@pytest.mark.feature("E10")
@pytest.mark.parametrize("api_key", [HEARTBEAT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT])
def test_a_coordinator_that_loads_is_asked_again_where_it_is(api_key: ApiKey) -> None:
    cluster = groups()
    cluster.faults[api_key].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 10)
            await consumer.commit()

    run(work())
    assert cluster.offsets[ONE][0] == 5
    assert len(cluster.requests(ApiKey.FIND_COORDINATOR)) == 1


@pytest.mark.feature("E06")
@pytest.mark.parametrize("fault", [ErrorCode.REQUEST_TIMED_OUT, "unanswered"])
def test_a_commit_that_times_out_is_tried_again_until_it_succeeds(fault: Any) -> None:
    cluster = groups(partitions=1)
    cluster.faults[ApiKey.OFFSET_COMMIT].extend([fault] * 4)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.assign([ZERO])
            await consumer.commit({ZERO: 2})

    run(work())
    assert len(cluster.requests(ApiKey.OFFSET_COMMIT)) == 5
    assert cluster.offsets[ZERO][0] == 2


@pytest.mark.feature("E06")
def test_a_commit_that_times_out_for_too_long_is_told() -> None:
    cluster = groups(partitions=1)
    cluster.faults[ApiKey.OFFSET_COMMIT].extend([ErrorCode.REQUEST_TIMED_OUT] * 1_000)

    async def work() -> None:
        async with member_on(cluster, default_api_timeout_ms=20) as consumer:
            consumer.assign([ZERO])
            with pytest.raises(RequestTimedOutError):
                await consumer.commit({ZERO: 2})

    run(work())


@pytest.mark.feature("E14")
def test_a_fenced_members_commit_is_refused_and_its_partitions_are_lost() -> None:
    cluster = groups()

    async def work() -> None:
        listener = Listener()
        async with member_on(cluster, max_poll_records=100) as consumer:
            consumer.subscribe(["t"], listener)
            await read(consumer, 10)
            cluster.fence()
            with pytest.raises(CommitFailedError, match="read again by the partitions' new owner"):
                await consumer.commit()
            again = await read(consumer, 10)
            assert sorted(again)[0] == (0, 0), "nothing was committed"
        kinds = [kind for kind, _ in listener.heard]
        assert kinds == ["assigned", "lost", "assigned", "revoked"]

    run(work())


@pytest.mark.feature("E14")
def test_a_stale_epoch_is_no_failure_while_ours_is_being_raised() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 5)
            group = consumer._group
            assert group is not None
            cluster.heartbeat_s = 0.02
            await until(lambda: group.is_catching_up)  # a heartbeat is under way
            cluster.faults[ApiKey.OFFSET_COMMIT].append(ErrorCode.STALE_MEMBER_EPOCH)
            await consumer.commit()

    run(work())
    assert cluster.offsets[ZERO][0] == 5


def test_who_does_not_poll_leaves_and_comes_back() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        listener = Listener()
        async with member_on(cluster, max_poll_interval_ms=30) as consumer:
            consumer.subscribe(["t"], listener)
            await read(consumer, 5)
            await until(lambda: not cluster.members)
            with pytest.raises(CommitFailedError):
                await consumer.commit()
            await poll_until(consumer, lambda: len(cluster.members) == 1)
            await poll_until(consumer, lambda: len(listener.heard) == 3)
        assert [kind for kind, _ in listener.heard[:3]] == ["assigned", "lost", "assigned"]

    run(work())


def test_a_member_that_is_refused_for_good_hears_it_in_poll() -> None:
    cluster = groups()
    cluster.faults[HEARTBEAT].append(ErrorCode.UNRELEASED_INSTANCE_ID)

    async def work() -> None:
        async with member_on(cluster, group_instance_id="one") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(FencedInstanceError, match="group_instance_id of its own"):
                await read(consumer, 1)

    run(work())


def test_a_static_member_leaves_for_a_while_only() -> None:
    cluster = groups()

    async def work() -> None:
        async with member_on(cluster, group_instance_id="one") as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 10)

    run(work())
    assert cluster.requests(HEARTBEAT)[0].instance_id == "one"
    assert cluster.requests(HEARTBEAT)[-1].member_epoch == -2


def test_a_listener_may_begin_elsewhere() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        async with member_on(cluster) as consumer:

            class Seeks(NoListener):
                def on_assigned(
                    self, partitions: tuple[TopicPartition, ...]
                ) -> Awaitable[None] | None:
                    consumer.seek(partitions[0], 3)
                    return None

            consumer.subscribe(["t"], Seeks())
            assert await read(consumer, 2) == [(0, 3), (0, 4)]

    run(work())


def test_an_exception_commits_nothing_more() -> None:
    cluster = groups(partitions=1)

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 5)
            raise KeyError("the user's own")

    with pytest.raises(KeyError):
        run(work())
    assert not cluster.offsets
    assert not cluster.members


def test_one_consumer_does_not_mix_subscribing_and_assigning() -> None:
    async def work() -> None:
        async with member_on(groups()) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(ClientConfigError, match="unsubscribe"):
                consumer.assign([ZERO])
            await consumer.unsubscribe()
            consumer.assign([ZERO])
            with pytest.raises(ClientConfigError, match=r"assign\(\[\]\)"):
                consumer.subscribe(["t"])

    run(work())


def test_iteration_serves_the_group_too() -> None:
    cluster = groups(partitions=1, count=50)

    async def work() -> None:
        async with member_on(cluster, auto_commit_interval_ms=1) as consumer:
            consumer.subscribe(["t"])
            seen = 0
            async for _ in consumer:
                seen += 1
                await asyncio.sleep(0.002)
                if seen == 20:
                    break
            assert cluster.offsets[ZERO][0] > 0

    run(work())


def test_a_member_that_iterates_slowly_stays() -> None:
    cluster = groups(partitions=1, count=50)

    async def work() -> None:
        listener = Listener()
        async with member_on(
            cluster, max_poll_interval_ms=30, enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["t"], listener)
            async for record in consumer:
                await pass_time(0.002)
                if record.offset == 49 or len(listener.heard) > 1:
                    break
            assert listener.heard == [("assigned", [0])]

    run(work())


@pytest.mark.feature("E14")
def test_what_was_read_before_a_fence_is_never_committed_as_if_it_were_still_ours() -> None:
    cluster = groups()

    async def work() -> None:
        async with member_on(cluster, max_poll_records=100) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 10)
            before = consumer.group_metadata()
            cluster.fence()
            heard = len(cluster.requests(HEARTBEAT))
            await until(lambda: len(cluster.requests(HEARTBEAT)) > heard)
            await asyncio.sleep(0.03)
            assert not cluster.members, "it joins again once the user knows"
            assert consumer.group_metadata() == before
            with pytest.raises(CommitFailedError):
                await consumer.commit({ZERO: 5})
            await poll_until(consumer, lambda: bool(cluster.members))
            assert consumer.group_metadata() != before

    run(work())


def test_a_member_that_starts_at_a_committed_offset_notices_a_truncated_log() -> None:
    cluster = groups(partitions=1)
    log = cluster.cluster.logs[ZERO]

    async def work() -> None:
        async with member_on(cluster) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 5)
            await consumer.commit()
        assert (cluster.offsets[ZERO][0], cluster.epochs[ZERO]) == (5, 0)
        log.elect(3, end=2)
        log.append(build_batch([(0, None, b"new", ())] * 5))
        async with member_on(cluster, auto_offset_reset="none") as consumer:
            consumer.assign([ZERO])
            with pytest.raises(LogTruncationError, match="other records from offset 2 on"):
                await read(consumer, 1)
        async with member_on(cluster) as consumer:
            consumer.assign([ZERO])
            assert await read(consumer, 5) == [(0, offset) for offset in range(2, 7)]

    run(work())


@pytest.mark.feature("E14", "A10")
def test_a_commit_that_is_repeated_leaves_out_what_another_member_has_by_now() -> None:
    cluster = groups()
    commit, held_up = cluster.handlers[ApiKey.OFFSET_COMMIT], set[str]()

    def commit_unless_held_up(request: Any) -> dict[str, Any]:
        if request.member_id in held_up:
            loads = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return cluster._refused(ApiKey.OFFSET_COMMIT, request, loads)
        return commit(request)

    cluster.handlers[ApiKey.OFFSET_COMMIT] = commit_unless_held_up

    async def work() -> None:
        slow = {"max_poll_records": 1, "auto_commit_interval_ms": 1, "request_timeout_ms": 50}
        async with member_on(cluster, **slow) as first, member_on(cluster) as second:
            first.subscribe(["t"])
            held_up.add(first.group_metadata().member_id)
            await read(first, 4)
            second.subscribe(["t"])
            while not second.assignment():
                await first.poll(timeout_ms=5)
                await second.poll(timeout_ms=5)
            (taken,) = second.assignment()
            await second.commit({taken: 5})
            held_up.clear()
            await pass_time(0.1)
            assert cluster.offsets[taken][0] == 5

    run(work())
