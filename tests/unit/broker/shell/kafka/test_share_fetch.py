"""ShareFetch and ShareAcknowledge at a broker, against a plain share-coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker.core.share.request_rules import ACKNOWLEDGEMENTS_MAX
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset
from tidemark.model.quotas import CONSUMER_BYTE_RATE, QuotaEntity
from tidemark.runtime.worker_pool import WorkerDiedError
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    ShareFetchWorld,
    running,
    topics_of,
)
from virtual_time import pass_time, run_virtual

Scenario = Callable[[ShareFetchWorld, Member], Awaitable[None]]
NONE = ErrorCode.NONE
LOCK_MS = 15_000
DAY_MS = 24 * 3_600_000


def play(scenario: Scenario, partitions: int = 1, **settings: Any) -> None:
    """A scenario with one member of a new group."""

    async def run() -> None:
        async with running(ShareFetchWorld(partitions, **settings)) as world:
            await scenario(world, Member(world))

    run_virtual(run())


def seconds() -> float:
    """Time of the running loop."""
    return asyncio.get_running_loop().time()


def test_a_member_gets_whole_batches_and_acknowledges_them() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5, 5)
        found = await member.fetch(0, wait_ms=500)
        assert found[0] == (NONE, NONE, [(0, 9, 1)], [(0, 4), (5, 9)])
        assert await member.acknowledge((0, 9, ACCEPT)) is NONE
        (kept,) = world.state.kept.values()
        assert kept.start == 10

    play(scenario)


def test_records_of_a_batch_are_acknowledged_one_by_one() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5)
        await member.fetch(0, wait_ms=500)
        types = (ACCEPT, REJECT, GAP, RELEASE, ACCEPT)
        assert await member.acknowledge((0, 4, *types)) is NONE
        found = await member.fetch()
        assert found[0].acquired == [(3, 3, 2)]
        assert found[0].batches == [(0, 4)], "whole batches are sent"

    play(scenario)


def test_a_fetch_waits_for_records() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        waiting = world.start(member.take(0, wait_ms=10_000))
        await pass_time(1)
        assert not waiting.done()
        world.put(3)
        assert await waiting == [(0, 2, 1)]

    play(scenario)


def test_a_leader_that_may_have_been_replaced_delivers_nothing() -> None:
    lease = [True]

    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        assert await member.take(0, wait_ms=500) == [(0, 2, 1)]
        assert await member.acknowledge((0, 2, RELEASE)) is NONE
        world.add_replica()
        lease[0] = False
        assert await member.take(0, wait_ms=500) == []
        lease[0] = True
        assert await member.take(0, wait_ms=500) == [(0, 2, 2)]

    play(scenario, has_lease=lambda: lease[0])


def test_a_leader_that_alone_is_in_sync_delivers_without_a_lease() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        assert await member.take(0, wait_ms=500) == [(0, 2, 1)]

    play(scenario, has_lease=lambda: False)


def test_a_fetch_without_records_is_answered_at_its_deadline() -> None:
    async def scenario(_: ShareFetchWorld, member: Member) -> None:
        begin = seconds()
        assert await member.fetch(0, wait_ms=700) == {}
        assert round(seconds() - begin, 1) == 0.7

    play(scenario)


def test_a_fetch_that_does_not_wait_has_the_state_loaded_for_the_next_one() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        assert await member.fetch(0) == {}
        await pass_time(1)
        assert await member.take() == [(0, 2, 1)]

    play(scenario)


def test_min_bytes_are_waited_for_without_a_lock() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(1)
        waiting = world.start(member.take(0, wait_ms=60_000, min_bytes=10_000))
        await pass_time(50)
        assert not waiting.done()
        other = Member(world, "m2")
        assert await other.take(0) == [(0, 0, 1)]
        await other.acknowledge((0, 0, RELEASE))
        world.put(1_000)
        assert await waiting == [(0, 0, 2), (1, 1_000, 1)]

    play(scenario)


@pytest.mark.feature("SE20")
def test_a_fetch_takes_no_more_than_a_window_of_the_quota() -> None:
    """A larger one would mute the member for longer than its locks last."""

    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(*[10] * 20)
        batch_bytes = world.at().log.read(Offset(0), 1, end=Offset(200)).length_bytes
        quotas = world.parts.facts.quotas
        quotas.configure({QuotaEntity("a"): {CONSUMER_BYTE_RATE: batch_bytes * 3 / 10}})
        began = seconds()
        found = await member.fetch(0, wait_ms=60_000, min_bytes=20 * batch_bytes)
        assert found[0].batches == [(0, 9), (10, 19), (20, 29)]
        assert seconds() - began < 1
        assert member.muted_ms == 0
        assert (await member.fetch(0))[0].batches == [(30, 39), (40, 49), (50, 59)]
        assert 0 < member.muted_ms <= 10_000 < LOCK_MS

    play(scenario)


def test_waiting_members_get_records_in_the_order_of_their_arrival() -> None:
    async def scenario(world: ShareFetchWorld, _: Member) -> None:
        members = [Member(world, f"m{number}") for number in range(3)]
        waiting = [world.start(one.take(0, wait_ms=60_000, records=1)) for one in members]
        await pass_time(1)
        for offset, one in enumerate(waiting):
            world.put(1)
            assert await one == [(offset, offset, 1)]

    play(scenario)


def test_a_lock_that_expires_wakes_another_member() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_lock_duration_ms=str(LOCK_MS))
        world.put(4)
        assert await member.take(0, wait_ms=500) == [(0, 3, 1)]
        begin = seconds()
        assert await Member(world, "m2").take(0, wait_ms=60_000) == [(0, 3, 2)]
        assert round(seconds() - begin, 1) == LOCK_MS / 1_000
        assert await member.acknowledge((0, 3, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE

    play(scenario)


def test_a_renewed_lock_expires_later() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_lock_duration_ms=str(LOCK_MS))
        world.put(4)
        await member.take(0, wait_ms=500)
        await pass_time(10)
        assert await member.acknowledge((0, 3, RENEW)) is NONE
        await pass_time(10)
        assert await member.acknowledge((0, 3, ACCEPT)) is NONE

    play(scenario)


def test_a_record_is_archived_at_the_limit_of_deliveries() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_delivery_count_limit="2")
        world.put(1)
        for delivery in (1, 2):
            assert await member.take(0, wait_ms=500) == [(0, 0, delivery)]
            assert await member.acknowledge((0, 0, RELEASE)) is NONE
        assert await member.fetch(0, wait_ms=500) == {}
        (kept,) = world.state.kept.values()
        assert kept.start == 1

    play(scenario)


def test_a_lost_connection_gives_records_back_at_once() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(4)
        await member.take(0, wait_ms=500)
        waiting = world.start(Member(world, "m2").take(0, wait_ms=60_000))
        await pass_time(1)
        begin = seconds()
        member.lose_connection()
        assert await waiting == [(0, 3, 2)]
        assert round(seconds() - begin) == 0, "at once"
        assert len(world.shares.sessions) == 1

    play(scenario)


def test_a_lost_connection_ends_a_waiting_fetch() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        asyncio.get_running_loop().call_later(1, member.lose_connection)
        waiting = world.start(member.take(0, wait_ms=60_000))
        await pass_time(2)
        assert len(world.shares.turns.queue) == 0
        assert world.parked.requests.count == 0
        world.put(1)
        assert await Member(world, "m2").take(0, wait_ms=500) == [(0, 0, 1)]
        assert not waiting.done()
        waiting.cancel()

    play(scenario)


def test_closing_a_session_acknowledges_and_gives_the_rest_back() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(10)
        await member.take(0, wait_ms=500)
        assert await member.close((0, 4, ACCEPT)) is NONE
        assert await Member(world, "m2").take(0) == [(5, 9, 2)]
        member.epoch = 1
        assert await member.refused() is ErrorCode.SHARE_SESSION_NOT_FOUND

    play(scenario)


def test_acknowledgements_of_a_fetch_come_with_its_answer() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5, 5)
        assert await member.take(0, wait_ms=500, records=1) == [(0, 4, 1)]
        found = await member.fetch(acks={0: [(0, 4, ACCEPT)]})
        assert found[0] == (NONE, NONE, [(5, 9, 1)], [(5, 9)])
        found = await member.fetch(acks={0: [(0, 9, ACCEPT)]}, forget=[0])
        assert found[0][:2] == (NONE, NONE)

    play(scenario)


def test_a_second_acknowledgement_is_refused_and_changes_nothing() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(10)
        await member.take(0, wait_ms=500)
        assert await member.acknowledge((5, 5, ACCEPT)) is NONE
        assert await member.acknowledge((4, 6, RELEASE)) is ErrorCode.INVALID_RECORD_STATE
        assert await member.acknowledge((0, 4, ACCEPT), (6, 9, ACCEPT)) is NONE

    play(scenario)


def test_a_lock_of_an_answer_without_a_wait_expires() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_lock_duration_ms=str(LOCK_MS))
        await member.fetch(0, wait_ms=500)
        world.put(4)
        assert await member.take() == [(0, 3, 1)]
        begin = seconds()
        assert await Member(world, "m2").take(0, wait_ms=60_000) == [(0, 3, 2)]
        assert round(seconds() - begin, 1) == LOCK_MS / 1_000

    play(scenario)


def test_a_replaced_session_gets_nothing_more() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        waiting = world.start(member.fetch(0, wait_ms=2_000))
        await pass_time(1)
        again = Member(world, member.name)
        await again.fetch(0)
        world.put(3)
        assert await waiting == {}
        assert await again.take() == [(0, 2, 1)]

    play(scenario)


def test_partitions_take_turns() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        for number in (0, 1) * 3:
            world.put(1, partition=number)
        await member.fetch(0, 1)
        await pass_time(1)
        served = [tuple(await member.fetch(records=1)) for _ in range(4)]
        assert served in ([(0,), (1,)] * 2, [(1,), (0,)] * 2)

    play(scenario, partitions=2)


def test_a_fetch_may_close_the_session_with_acknowledgements() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(10)
        await member.take(0, wait_ms=500)
        member.epoch = -1
        found = await member.fetch(acks={0: [(0, 4, ACCEPT)]})
        assert found[0] == (NONE, NONE, [], [])
        assert await Member(world, "m2").take(0) == [(5, 9, 2)]
        member.epoch = -1
        assert await member.refused(0) is ErrorCode.SHARE_SESSION_NOT_FOUND

    play(scenario)


def test_an_answer_has_the_errors_of_its_acknowledgements() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5, 5)
        await member.take(0, wait_ms=500, records=1)
        world.state.failures = [ErrorCode.REQUEST_TIMED_OUT]
        found = await member.fetch(acks={0: [(0, 4, ACCEPT)]})
        assert found[0].acknowledged is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert found[0].acquired == [(5, 9, 1)]

    play(scenario)


def test_records_wait_for_the_acknowledgements_of_their_request() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5)
        await member.take(0, wait_ms=500)
        world.state.latency_s, world.state.failures = 4, [ErrorCode.REQUEST_TIMED_OUT]
        waiting = world.start(member.fetch(acks={0: [(0, 4, ACCEPT)]}, wait_ms=60_000))
        await pass_time(1)
        world.put(5)
        found = (await waiting)[0]
        assert found.acknowledged is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert found.acquired == [(5, 9, 1)]

    play(scenario)


def test_acknowledgements_of_a_partition_that_is_named_twice_are_one() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(10)
        await member.take(0, wait_ms=500)
        good, wrong = topics_of({0: [(0, 4, ACCEPT)]}), topics_of({0: [(5, 99, ACCEPT)]})
        answer = await member.ask(ApiKey.SHARE_ACKNOWLEDGE, {"topics": [*good, *wrong]})
        codes = {one.error_code for each in answer.responses for one in each.partitions}
        assert codes == {ErrorCode.INVALID_REQUEST}
        rest = topics_of({0: [(5, 9, ACCEPT)]})
        await member.ask(ApiKey.SHARE_ACKNOWLEDGE, {"topics": [*good, *rest]})
        (held,) = world.shares
        assert held.share.window.start == 10

    play(scenario)


def test_a_changed_limit_applies_from_then_on() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(1)
        await member.take(0, wait_ms=500)
        world.configure(share_delivery_count_limit="2")
        assert await member.acknowledge((0, 0, RELEASE)) is NONE
        assert await member.take() == [(0, 0, 2)]
        assert await member.acknowledge((0, 0, RELEASE)) is NONE
        assert await member.fetch(wait_ms=500) == {}

    play(scenario)


# ---------------------------------------------------------------- transactions in the log


def test_read_committed_leaves_out_aborted_records_and_waits_for_open_ones() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_isolation_level="read_committed")
        world.put_transactional(5, 7)
        world.put_transactional(5, 8)
        assert await member.fetch(0, wait_ms=500) == {}
        world.mark(7, commits=False)
        waiting = world.start(member.take(0, wait_ms=60_000))
        await pass_time(1)
        assert not waiting.done()
        world.mark(8, commits=True)
        assert await waiting == [(5, 9, 1)]
        assert await member.acknowledge((5, 9, ACCEPT)) is NONE

    play(scenario)


def test_read_uncommitted_leaves_out_markers_alone() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put_transactional(5, 7)
        world.mark(7, commits=False)
        world.put(1)
        found = await member.fetch(0, wait_ms=500)
        assert found[0].acquired == [(0, 4, 1), (6, 6, 1)]

    play(scenario)


def test_a_few_batches_without_records_need_no_second_request() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        await member.fetch(0, wait_ms=500)
        for _ in range(5):
            world.put_transactional(1, 7)
            world.mark(7, commits=False)
        world.put(1)
        assert await member.take(records=1) == [(0, 0, 1)]
        world.configure(share_isolation_level="read_committed")
        other = Member(world, "m2")
        assert await other.take(0, records=1) == [(10, 10, 1)]

    play(scenario)


def test_many_batches_without_records_do_not_hide_those_behind_them() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        for _ in range(50):
            world.put_transactional(1, 7)
            world.mark(7, commits=False)
        world.put(1)
        world.configure(share_isolation_level="read_committed")
        assert await member.take(0, wait_ms=60_000, records=1) == [(100, 100, 1)]

    play(scenario)


# ---------------------------------------------------------------- errors of requests


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"epoch": 5}, ErrorCode.INVALID_SHARE_SESSION_EPOCH),
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"name": "m2"}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"group": "other"}, ErrorCode.SHARE_SESSION_NOT_FOUND),
    ],
)
def test_requests_outside_their_session_are_refused(wrong: dict[str, Any], code: ErrorCode) -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(1)
        await member.take(0, wait_ms=500)
        before = dict(vars(member))
        vars(member).update(wrong)
        assert await member.refused(0) is code
        assert await member.acknowledge((0, 0, ACCEPT)) is code
        vars(member).update(before)
        assert await member.acknowledge((0, 0, ACCEPT)) is NONE, "nothing has changed"

    play(scenario)


def test_one_request_has_a_bounded_number_of_acknowledgements() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(5)
        await member.take(0, wait_ms=500)
        many = (0, ACKNOWLEDGEMENTS_MAX - 3, *[ACCEPT] * (ACKNOWLEDGEMENTS_MAX - 2))
        fields = {"topics": topics_of({0: [(0, 2, ACCEPT, ACCEPT, ACCEPT)], 1: [many]})}
        answer = await member.ask(ApiKey.SHARE_ACKNOWLEDGE, fields)
        found = {one.partition_index: one for one in answer.responses[0].partitions}
        assert found[0].error_code == ErrorCode.NONE
        assert "acknowledge types in one request" in found[1].error_message

    play(scenario, partitions=2)


def test_the_first_request_must_not_acknowledge() -> None:
    async def scenario(_: ShareFetchWorld, member: Member) -> None:
        assert await member.refused(acks={0: [(0, 0, ACCEPT)]}) is ErrorCode.INVALID_REQUEST
        code = await member.acknowledge((0, 0, ACCEPT))
        assert code is ErrorCode.INVALID_SHARE_SESSION_EPOCH

    play(scenario)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ((4, 2, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((-1, 2, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((0, 2, ACCEPT, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((0, 2, 9), ErrorCode.INVALID_REQUEST),
        ((0, 2, -1), ErrorCode.INVALID_REQUEST),
        ((0, 2**62, ACCEPT), ErrorCode.INVALID_REQUEST),
        ((0, 2), ErrorCode.INVALID_REQUEST),
    ],
)
def test_malformed_acknowledgements_change_nothing(batch: Any, code: ErrorCode) -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        assert await member.acknowledge(batch) is code
        assert await member.acknowledge((0, 2, ACCEPT)) is NONE

    play(scenario)


def test_a_request_that_does_not_say_so_renews_nothing() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        assert await member.take(0, wait_ms=500) == [(0, 2, 1)]
        renewals = (0, 0, RENEW), (1, 2, ACCEPT)
        assert await member.acknowledge(*renewals, renews=False) is ErrorCode.INVALID_REQUEST
        answer = await member.fetch(0, acks={0: ((0, 2, RENEW),)}, is_renew_ack=False)
        assert answer[0].acknowledged is ErrorCode.INVALID_REQUEST
        assert await member.acknowledge(*renewals) is NONE

    play(scenario)


def test_version_1_cannot_renew() -> None:
    async def scenario(world: ShareFetchWorld, _: Member) -> None:
        member = Member(world, version=1)
        world.put(3)
        assert await member.take(0, wait_ms=500) == [(0, 2, 1)]
        assert await member.acknowledge((0, 2, RENEW)) is ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 2, ACCEPT)) is NONE

    play(scenario)


def test_partitions_that_are_not_here_have_their_error_at_once() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        found = await member.fetch(0, 9, wait_ms=60_000)
        assert found[9].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await member.acknowledge((0, 0, ACCEPT), partition=9) is found[9].error
        unknown = [{"topic_id": bytes(16), "partitions": [{"partition_index": 0}]}]
        fetch = member.fetch_fields(wait_ms=60_000, topics=unknown)
        answer = await member.ask(ApiKey.SHARE_FETCH, fetch)
        codes = {one.error_code for each in answer.responses for one in each.partitions}
        assert ErrorCode.UNKNOWN_TOPIC_ID in codes

    play(scenario)


def test_the_number_of_sessions_is_bounded() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        await member.fetch(0)
        other = Member(world, "m2")
        assert await other.refused(0) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await member.close()
        assert await other.fetch(0) == {}

    play(scenario, group_share_max_share_sessions=1)


# ---------------------------------------------------------------- the share-coordinator, leaders


def test_acknowledgements_of_one_turn_are_one_call() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        for number in range(3):
            world.put(10, partition=number)
        await member.fetch(0, 1, 2, wait_ms=500)
        await member.fetch(wait_ms=100)
        world.state.calls.clear()
        acks = {number: [(0, 9, ACCEPT)] for number in range(3)}
        await member.fetch(acks=acks)
        assert world.state.calls == [("write", 3)]

    play(scenario, partitions=3)


def test_acknowledgements_during_a_call_are_gathered_for_the_next_one() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        members = [member, Member(world, "second"), Member(world, "third")]
        for number, one in enumerate(members):
            world.put(10, partition=number)
            await one.fetch(number, wait_ms=500)
        world.state.calls.clear()
        waiting = []
        for number, one in enumerate(members):
            waiting.append(world.start(one.acknowledge((0, 9, ACCEPT), partition=number)))
            await pass_time(0.0001)
        assert [await one for one in waiting] == [ErrorCode.NONE] * 3
        assert world.state.calls == [("write", 1), ("write", 2)]

    play(scenario, partitions=3)


def test_a_write_that_is_cancelled_begins_no_other_one() -> None:
    problems: list[object] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context.get("exception")))
        async with running(ShareFetchWorld(2)) as world:
            members = Member(world, "first"), Member(world, "second")
            for number, one in enumerate(members):
                world.put(4, partition=number)
                await one.fetch(number, wait_ms=500)
            world.state.calls.clear()
            world.state.latency_s = DAY_MS
            members[0].lose_connection()  # what it held is written as available
            await pass_time(1)
            acknowledged = world.start(members[1].acknowledge((0, 3, ACCEPT), partition=1))
            await pass_time(1)
            assert world.state.calls == [("write", 1)]
            world.start(_end(acknowledged, after_s=10))
        assert world.state.calls == [("write", 1)]

    run_virtual(run())
    assert problems == []


async def _end(task: asyncio.Task[Any], *, after_s: float) -> None:
    """Cancel what nothing answers."""
    await pass_time(after_s)
    task.cancel()


def test_an_acknowledgement_that_is_not_written_fails_and_can_be_repeated() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        world.state.failures = [ErrorCode.REQUEST_TIMED_OUT]
        code = await member.acknowledge((0, 2, ACCEPT))
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await member.acknowledge((0, 2, ACCEPT)) is NONE

    play(scenario)


def test_a_state_that_cannot_be_read_for_now_is_read_again() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        world.state.failures = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 4
        assert await member.take(0, wait_ms=60_000) == [(0, 2, 1)]

    play(scenario)


def test_a_group_that_does_not_exist_is_an_error_of_its_partitions() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.state.failures = [ErrorCode.GROUP_ID_NOT_FOUND]
        found = await member.fetch(0, wait_ms=60_000)
        assert found[0].error is ErrorCode.GROUP_ID_NOT_FOUND
        await pass_time(5)
        world.put(1)
        assert await member.take(wait_ms=60_000) == [(0, 0, 1)]

    play(scenario)


def test_a_reset_drops_the_window() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        world.state.reset()
        code = await member.acknowledge((0, 2, ACCEPT))
        assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await member.fetch())[0].error is code, "not loaded at once again"
        await pass_time(5)
        assert await member.take(wait_ms=500) == [(0, 2, 1)]

    play(scenario)


def test_windows_that_the_coordinator_drops_are_loaded_again() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        waiting = world.start(Member(world, "m2").fetch(0, wait_ms=60_000))
        await pass_time(1)
        world.state.reset()
        (held,) = world.shares
        begin = seconds()
        world.shares.drop_windows(member.group, [held.partition_key])
        assert (await waiting)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert round(seconds() - begin) == 0, "at once"
        assert await member.take(wait_ms=500) == [(0, 2, 1)]

    play(scenario)


def test_acknowledgements_that_are_being_written_are_answered_when_leadership_is_lost() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        world.state.latency_s = 4
        waiting = world.start(member.acknowledge((0, 2, ACCEPT)))
        await pass_time(1)
        world.lead(2, 1)
        begin = seconds()
        assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert round(seconds() - begin) == 0, "at once"

    play(scenario)


def test_another_epoch_of_the_leader_gives_acquired_records_again() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3, 3)
        await member.take(0, wait_ms=500)
        await member.acknowledge((0, 1, ACCEPT))
        waiting = world.start(Member(world, "m2").fetch(0, wait_ms=60_000))
        await pass_time(1)
        world.lead(1, 1)
        assert (await waiting)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await member.take(wait_ms=500) == [(2, 5, 1)]

    play(scenario)


def test_a_partition_that_is_led_elsewhere_is_named_with_its_leader() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        world.lead(2, 1)
        answer = await member.ask(ApiKey.SHARE_FETCH, member.fetch_fields(wait_ms=60_000))
        (one,) = answer.responses[0].partitions
        assert ErrorCode(one.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 1)
        assert len(world.shares) == 0

    play(scenario)


def test_records_that_the_log_no_longer_has_are_not_waited_for() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3, 3)
        assert await member.take(0, wait_ms=500, records=1) == [(0, 2, 1)]
        hosted = world.at()
        hosted.log.advance_log_start(3)
        world.parts.partitions.log_moves.log_start_moved(hosted)
        assert await member.take() == [(3, 5, 1)]
        (held,) = world.shares
        assert held.share.window.start == 3

    play(scenario)


def test_a_group_begins_at_the_latest_record_by_default() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.change(group_configs_changed={member.group: {}})
        world.put(3)
        waiting = world.start(member.take(0, wait_ms=60_000))
        await pass_time(1)
        world.put(2)
        assert await waiting == [(3, 4, 1)]

    play(scenario)


@pytest.mark.parametrize(("days", "first"), [(1, 3), (10, 0)])
def test_a_group_begins_at_records_of_an_age(days: int, first: int) -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        reset = {"share.auto.offset.reset": f"by_duration:P{days}D"}
        world.change(group_configs_changed={member.group: reset})
        now = world.parts.facts.clock.wall_ms()
        world.put(3, timestamp=now - 5 * DAY_MS)
        world.put(2, timestamp=now)
        assert (await member.take(0, wait_ms=500))[0][0] == first

    play(scenario)


def test_a_group_without_younger_records_begins_at_the_end() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        reset = {"share.auto.offset.reset": "by_duration:PT1H"}
        world.change(group_configs_changed={member.group: reset})
        world.put(3, timestamp=world.parts.facts.clock.wall_ms() - DAY_MS)
        assert await member.fetch(0, wait_ms=500) == {}
        world.put(1)
        assert await member.take(wait_ms=500) == [(3, 3, 1)]

    play(scenario)


def test_share_partitions_that_nothing_reads_are_dropped_and_come_back() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put(3)
        await member.take(0, wait_ms=500)
        world.shares.drop_idle()
        assert len(world.shares) == 1, "a session reads it"
        await member.fetch(forget=[0])
        world.shares.drop_idle()
        assert len(world.shares) == 1, "it has locks"
        await member.close((0, 1, ACCEPT))
        await pass_time(1)
        world.shares.drop_idle()
        assert len(world.shares) == 0
        assert await Member(world, "m2").take(0, wait_ms=500) == [(2, 2, 2)]

    play(scenario)


# ---------------------------------------------------------------- order by key


def test_records_of_a_key_go_to_one_member_at_a_time() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_order="key")
        world.put_keys("abab-")
        first = await member.take(0, wait_ms=500, records=1)
        other = Member(world, "m2")
        assert first == [(0, 4, 1)], "one member may have all records of a key"
        world.put_keys("ac")
        assert await other.take(0, wait_ms=500) == [(6, 6, 1)]
        waiting = world.start(other.take(wait_ms=60_000))
        await pass_time(1)
        assert not waiting.done()
        assert await member.acknowledge((0, 4, ACCEPT)) is NONE
        assert await waiting == [(5, 5, 1)]

    play(scenario)


def test_a_released_record_comes_before_later_ones_of_its_key() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_order="key")
        world.put_keys("a")
        world.put_keys("ab")
        mode = {"share_acquire_mode": 1}
        assert await member.take(0, wait_ms=500, records=1, **mode) == [(0, 0, 1)]
        other = Member(world, "m2")
        assert await other.take(0, wait_ms=500) == [(2, 2, 1)]
        assert await member.acknowledge((0, 0, RELEASE)) is NONE
        assert await other.take(wait_ms=500, records=1, **mode) == [(0, 0, 2)]
        assert await member.fetch(wait_ms=500) == {}
        assert await other.acknowledge((0, 0, ACCEPT)) is NONE
        assert await member.take(wait_ms=500) == [(1, 1, 1)]

    play(scenario)


def test_a_batch_whose_keys_cannot_be_read_is_an_error_and_tried_again() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_record_order="key")
        world.workers.failures = [WorkerDiedError("killed")]
        world.put_keys("ab")
        found = await member.fetch(0, wait_ms=500)
        assert found[0].error is ErrorCode.KAFKA_STORAGE_ERROR
        await pass_time(2)
        assert await member.take(wait_ms=500) == [(0, 1, 1)]

    play(scenario)


def test_a_change_of_the_order_begins_again() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.put_keys("ab")
        assert await member.take(0, wait_ms=500) == [(0, 1, 1)]
        world.configure(share_record_order="key")
        assert await member.acknowledge((0, 1, ACCEPT)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await Member(world, "m2").take(0, wait_ms=500) == [(0, 1, 1)]

    play(scenario)


# ---------------------------------------------------------------- delays


def test_a_released_record_is_delayed_and_longer_each_time() -> None:
    async def scenario(world: ShareFetchWorld, member: Member) -> None:
        world.configure(share_release_backoff_ms="2000", share_release_backoff_max_ms="3000")
        world.put(1)
        await member.take(0, wait_ms=500)
        for delivery, delay_s in ((2, 2), (3, 3), (4, 3)):
            assert await member.acknowledge((0, 0, RELEASE)) is NONE
            begin = seconds()
            assert await member.take(wait_ms=60_000) == [(0, 0, delivery)]
            assert round(seconds() - begin, 1) == delay_s

    play(scenario)
