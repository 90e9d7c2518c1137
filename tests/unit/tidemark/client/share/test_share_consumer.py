"""ShareConsumer over a share group in memory."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tidemark.client.config import ShareConsumerConfig
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.errors import (
    ClientConfigError,
    ClientError,
    InvalidRecordStateError,
    ShareSessionLostError,
    UnsupportedVersionError,
)
from tidemark.client.share.ack_batches import ACCEPTED, AcknowledgeType
from tidemark.client.share.deliveries import ShareRecord
from tidemark.client.share.factory import make_consumer
from tidemark.client.share.share_consumer import ShareConsumer
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from unit.tidemark.client.clients import run
from unit.tidemark.client.memory_share import ACCEPT, LOCK_MS, REJECT, RENEW, MemoryShare
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import LoopClock, pass_time

AT = TopicPartition("t", 0)
FETCH, ACKNOWLEDGE = ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE
Work = Callable[[ShareConsumer], Awaitable[Any]]


def shared(*, partitions: int = 1, count: int = 5) -> MemoryShare:
    cluster = MemoryTransport(partitions=partitions)
    cluster.leaders = dict.fromkeys(cluster.partitions, 1)
    for log in cluster.logs.values():
        log.append(build_batch([(one, None, b"%d" % one, ()) for one in range(count)]))
    return MemoryShare(cluster)


def consumer_on(share: MemoryShare, **settings: Any) -> ShareConsumer:
    config = ShareConsumerConfig(
        group_id="g", retry_backoff_ms=1, retry_backoff_max_ms=2, fetch_max_wait_ms=20
    )
    consumer = ShareConsumer("memory:1", config, clock=LoopClock(), **settings)
    consumer._session._make_transport = lambda group: share.cluster  # type: ignore[method-assign]
    consumer._session.kafka = share.kafka  # type: ignore[method-assign]
    return consumer


def explicit(share: MemoryShare, **settings: Any) -> ShareConsumer:
    return consumer_on(share, share_acknowledgement_mode="explicit", **settings)


def with_member(consumer: ShareConsumer, work: Work) -> Any:
    """Do ``work`` with a member that reads topic ``t``."""

    async def member() -> Any:
        async with consumer:
            consumer.subscribe(["t"])
            return await work(consumer)

    return run(member())


async def read(consumer: ShareConsumer, count: int, **poll: Any) -> list[ShareRecord]:
    """Poll until ``count`` records have come."""
    got: list[ShareRecord] = []
    while len(got) < count:
        got += await consumer.poll(timeout_ms=50, **poll)
    return got


# -- implicit mode


@pytest.mark.feature("T02", "T03")
def test_a_member_reads_what_is_assigned_and_leaves() -> None:
    share = shared(partitions=2)

    async def work(consumer: ShareConsumer) -> list[tuple[int, int, bytes | None, int]]:
        got = await read(consumer, 10)
        assert consumer.assignment() == (AT, TopicPartition("t", 1))
        assert consumer.lock_timeout_ms == 30_000
        return [(one.partition, one.offset, one.value, one.delivery_count) for one in got]

    got = with_member(consumer_on(share), work)
    assert got == [(part, one, b"%d" % one, 1) for part in range(2) for one in range(5)]
    assert share.members == {}


@pytest.mark.feature("T10")
def test_polls_that_do_not_wait_acquire_records() -> None:
    async def work(consumer: ShareConsumer) -> int:
        for _ in range(1_000):
            if records := await consumer.poll(timeout_ms=0):
                return len(records)
        return 0

    assert with_member(consumer_on(shared()), work) == 5


def test_the_next_poll_accepts_the_records_of_the_last_one() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        await read(consumer, 5)
        assert share.done == {}
        await consumer.poll(timeout_ms=20)

    with_member(consumer_on(share), work)
    assert share.done == {(0, one): ACCEPT for one in range(5)}


def test_polls_that_do_not_wait_get_records_too() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> int:
        count = 0
        for _ in range(20):
            count += len(await consumer.poll(timeout_ms=0))
            await pass_time(0.01)
        return count

    assert with_member(consumer_on(share), work) == 5
    assert share.done == {(0, one): ACCEPT for one in range(5)}


@pytest.mark.feature("T09")
def test_a_commit_accepts_all_records_received() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> Any:
        await read(consumer, 5)
        return await consumer.commit_sync()

    assert with_member(consumer_on(share), work) == {AT: None}
    assert len(share.done) == 5


@pytest.mark.feature("T11")
def test_closing_releases_the_records_of_the_last_poll() -> None:
    share = shared()
    with_member(consumer_on(share), lambda consumer: read(consumer, 5))
    assert (share.done, share.acquired, share.session_epoch) == ({}, set(), None)


def test_acknowledging_by_name_needs_explicit_mode() -> None:
    async def work(consumer: ShareConsumer) -> None:
        (record, *_) = await read(consumer, 5)
        with pytest.raises(ClientConfigError, match="share_acknowledgement_mode='explicit'"):
            consumer.acknowledge(record)

    with_member(consumer_on(shared()), work)


def test_iteration_accepts_each_record_when_the_next_is_requested() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> list[int]:
        got = []
        async for record in consumer:
            got.append(record.offset)
            if len(got) == 3:
                return got
        return []

    assert with_member(consumer_on(share), work) == [0, 1, 2]
    assert share.done == {(0, 0): ACCEPT, (0, 1): ACCEPT}


# -- acknowledgements while records are in memory


def test_a_poll_of_records_in_memory_sends_acknowledgements_at_once() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        await anext(consumer)  # the others are in memory
        await read(consumer, 2, max_records=2)
        await pass_time(0.1)
        assert share.done == {(0, 0): ACCEPT}

    with_member(consumer_on(share), work)


def test_records_presented_again_do_not_hold_acknowledgements_back() -> None:
    share = shared(count=2)

    async def work(consumer: ShareConsumer) -> None:
        first, second = await read(consumer, 2)
        consumer.acknowledge(first)
        assert await consumer.poll() == [second]
        await pass_time(0.1)
        assert share.done == {(0, 0): ACCEPT}

    with_member(explicit(share, represent_unacknowledged=True), work)


def test_what_is_decided_after_a_poll_waits_for_the_next_one() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        consumer.acknowledge(await anext(consumer))
        consumer.acknowledge(record := await anext(consumer), "reject")
        await pass_time(0.1)
        assert share.done == {(0, 0): ACCEPT}
        consumer.acknowledge(record)
        await consumer.commit_sync()
        assert share.done == {(0, 0): ACCEPT, (0, 1): ACCEPT}

    with_member(explicit(share), work)


def test_a_fast_loop_sends_acknowledgements_together() -> None:
    share = shared(count=200)

    async def work(consumer: ShareConsumer) -> None:
        for _ in range(200):
            await anext(consumer)
        await consumer.poll(timeout_ms=50)

    with_member(consumer_on(share), work)
    assert len(share.done) == 200
    assert len(share.requests(ACKNOWLEDGE)) <= 3  # at the first record, later, and at the close


def test_an_application_that_never_waits_does_not_hold_acknowledgements_back() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        await anext(consumer)  # the others are in memory
        for _ in range(4):
            await consumer.poll(1)
            consumer._breathe_at_ms = 0  # as if this record took long
        assert (0, 0) in share.done

    with_member(consumer_on(share), work)


def test_acknowledgements_on_their_way_fail_once_with_the_session() -> None:
    share = shared()
    heard: list[Any] = []

    async def work(consumer: ShareConsumer) -> None:
        await anext(consumer)  # the others are in memory
        consumer.on_acknowledged(heard.append)
        share.faults[ACKNOWLEDGE].append("lost")
        await read(consumer, 1, max_records=1)
        await pass_time(0.1)
        consumer.on_acknowledged(None)

    with_member(consumer_on(share), work)
    ((error,),) = [list(one.values()) for one in heard]
    assert error.code is ErrorCode.NETWORK_EXCEPTION


# -- explicit mode


@pytest.mark.feature("T04", "T12")
def test_each_record_has_its_own_outcome() -> None:
    share = shared(count=3)

    async def work(consumer: ShareConsumer) -> list[tuple[int, int]]:
        records = await read(consumer, 3)
        for record, outcome in zip(records, ("accept", "release", "reject"), strict=True):
            consumer.acknowledge(record, outcome)
        assert await consumer.commit_sync() == {AT: None}
        return [(one.offset, one.delivery_count) for one in await read(consumer, 1)]

    assert with_member(explicit(share), work) == [(1, 2)]
    assert share.done == {(0, 0): ACCEPT, (0, 2): REJECT}


def test_a_poll_with_records_that_are_not_acknowledged_is_an_error() -> None:
    async def work(consumer: ShareConsumer) -> None:
        first, *rest = await read(consumer, 5)
        for record in rest:
            consumer.acknowledge(record)
        with pytest.raises(InvalidRecordStateError, match="1 records are not acknowledged"):
            await consumer.poll()
        consumer.acknowledge(first)
        assert await consumer.poll(timeout_ms=20) == []

    with_member(explicit(shared()), work)


@pytest.mark.feature("T06", "T07")
def test_unacknowledged_records_may_be_presented_again() -> None:
    share = shared(count=3)

    async def work(consumer: ShareConsumer) -> list[list[int]]:
        first, *rest = await read(consumer, 3)
        consumer.acknowledge(first)
        await consumer.commit_sync()
        again = [await consumer.poll() for _ in range(2)]
        assert again[0] == rest
        return [[one.offset for one in records] for records in again]

    consumer = explicit(share, represent_unacknowledged=True)
    assert with_member(consumer, work) == [[1, 2], [1, 2]]
    assert share.done == {(0, 0): ACCEPT}


@pytest.mark.feature("T08")
def test_closing_sends_what_is_decided_and_releases_the_rest() -> None:
    share = shared(count=3)

    async def work(consumer: ShareConsumer) -> None:
        first, second, _ = await read(consumer, 3)
        consumer.acknowledge(first)
        consumer.acknowledge(second, "renew")

    with_member(explicit(share), work)
    assert (share.done, share.acquired) == ({(0, 0): ACCEPT}, set())


def test_a_renewed_record_is_kept_over_polls_and_accepted_later() -> None:
    share = shared(count=1)

    async def work(consumer: ShareConsumer) -> None:
        (record,) = await read(consumer, 1)
        consumer.acknowledge(record, "renew")
        assert await consumer.poll(timeout_ms=30) == []
        consumer.acknowledge(record, "accept")
        await consumer.commit_sync()

    with_member(explicit(share), work)
    assert share.done == {(0, 0): ACCEPT}
    renewal = next(one for one in share.requests(ACKNOWLEDGE) if one.is_renew_ack)
    assert renewal.topics[0].partitions[0].acknowledgement_batches[0].acknowledge_types == [RENEW]


def test_a_record_that_is_not_held_cannot_be_acknowledged() -> None:
    async def work(consumer: ShareConsumer) -> None:
        (record,) = await read(consumer, 1)
        with pytest.raises(InvalidRecordStateError, match="offset 7 of t-0 is not held"):
            consumer.acknowledge(record._replace(offset=7))
        with pytest.raises(ValueError, match="must be one of accept, release, reject, renew"):
            consumer.acknowledge(record, "drop")

    with_member(explicit(shared(count=1)), work)


def test_records_are_taken_out_together_or_not_at_all() -> None:
    async def work(consumer: ShareConsumer) -> None:
        first, second = await read(consumer, 2)
        accept = AcknowledgeType.ACCEPT
        with pytest.raises(InvalidRecordStateError, match="offset 7"):
            consumer.take_out([first, second._replace(offset=7)], accept)
        (taken,) = consumer.take_out([first], accept).values()
        assert taken[1] == {0: ACCEPTED}
        consumer.acknowledge(second)
        assert await consumer.poll(timeout_ms=20) == []

    with_member(explicit(shared(count=2)), work)


# -- fields that only Tidemark's brokers take


@pytest.mark.feature("Y12")
def test_a_released_record_may_have_a_delay() -> None:
    share = shared(count=3)

    async def work(consumer: ShareConsumer) -> None:
        first, second, third = await read(consumer, 3)
        consumer.acknowledge(first)
        consumer.acknowledge(second, "release", delay_ms=700)
        consumer.acknowledge(third, "release")
        await consumer.commit_sync()

    with_member(explicit(share), work)
    (request, *_) = share.requests(ACKNOWLEDGE)
    batches = request.topics[0].partitions[0].acknowledgement_batches
    delays = [(one.first_offset, one.last_offset, one.release_delay) for one in batches]
    assert delays == [(0, 0, 0), (1, 1, 700), (2, 2, 0)]


def test_only_a_release_has_a_delay() -> None:
    async def work(consumer: ShareConsumer) -> None:
        (record,) = await read(consumer, 1)
        with pytest.raises(ValueError, match="a delay of reject; only released records"):
            consumer.acknowledge(record, "reject", delay_ms=1)
        for delay_ms in (-1, 2**31):
            with pytest.raises(ValueError, match=f"delay_ms is {delay_ms}; it must be 0 to"):
                consumer.acknowledge(record, "release", delay_ms=delay_ms)
        consumer.acknowledge(record, "release")

    with_member(explicit(shared(count=1)), work)


def test_a_broker_without_the_feature_is_sent_no_delay() -> None:
    share = shared(count=1)
    share.features.clear()

    async def work(consumer: ShareConsumer) -> None:
        (record,) = await read(consumer, 1)
        with pytest.raises(UnsupportedVersionError, match="release the record without delay_ms"):
            consumer.acknowledge(record, "release", delay_ms=1)
        consumer.acknowledge(record, "release")

    with_member(explicit(share), work)


@pytest.mark.feature("T08")
@pytest.mark.parametrize(("is_ours", "counts"), [(True, [1, 1, 0, 0, 0]), (False, [1] * 5)])
def test_records_that_were_never_handed_out_do_not_count_after_a_close(
    is_ours: bool, counts: list[int]
) -> None:
    share = shared()
    if not is_ours:
        share.features.clear()

    async def work(consumer: ShareConsumer) -> None:
        assert [(await anext(consumer)).offset for _ in range(2)] == [0, 1]

    with_member(consumer_on(share), work)
    assert [share.counts[0, offset] for offset in range(5)] == counts
    assert share.acquired == set()


def test_records_that_the_application_receives_too_late_are_given_back_uncounted() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> list[tuple[int, int]]:
        await anext(consumer)
        await pass_time(0.74 * LOCK_MS / 1_000)
        assert len(share.acquired) == 5
        await pass_time(0.02 * LOCK_MS / 1_000)
        assert share.acquired == {(0, 0)}
        return [(one.offset, one.delivery_count) for one in await read(consumer, 4)]

    assert with_member(consumer_on(share), work) == [(1, 1), (2, 1), (3, 1), (4, 1)]


# -- outcomes


def test_a_commit_returns_the_error_of_each_partition() -> None:
    share = shared()
    share.refusals.append(ErrorCode.INVALID_RECORD_STATE)

    async def work(consumer: ShareConsumer) -> Any:
        await read(consumer, 5)
        return await consumer.commit_sync()

    results = with_member(consumer_on(share), work)
    assert isinstance(results[AT], InvalidRecordStateError)


def test_an_acknowledgement_that_cannot_be_stored_now_is_sent_again() -> None:
    share = shared()
    share.refusals.extend([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2)

    async def work(consumer: ShareConsumer) -> Any:
        await read(consumer, 5)
        return await consumer.commit_sync()

    assert with_member(consumer_on(share), work) == {AT: None}
    assert len(share.done) == 5


def test_a_commit_gives_up_at_its_timeout() -> None:
    share = shared()
    share.refusals.extend([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10_000)

    async def work(consumer: ShareConsumer) -> Any:
        await read(consumer, 5)
        results = await consumer.commit_sync(timeout_ms=100)
        share.refusals.clear()
        return results

    (error,) = with_member(consumer_on(share), work).values()
    assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_may_call_back() -> None:
    share = shared()
    heard: list[Any] = []

    async def work(consumer: ShareConsumer) -> None:
        await read(consumer, 5)
        consumer.commit_async(heard.append)
        while not heard:
            await consumer.poll(timeout_ms=20)

    with_member(consumer_on(share), work)
    assert heard == [{AT: None}]


def test_a_callback_that_fails_does_not_end_the_consumer() -> None:
    share = shared(partitions=2)

    def fail(_: object) -> None:
        raise RuntimeError("a bug of the application")

    async def work(consumer: ShareConsumer) -> None:
        consumer.on_acknowledged(fail)
        await read(consumer, 2, max_records=2)
        consumer.commit_async(fail)
        await pass_time(0.01)
        await read(consumer, 8)
        await consumer.poll(timeout_ms=20)

    with_member(consumer_on(share), work)
    assert len(share.done) == 10


def test_acknowledgements_of_polls_are_reported() -> None:
    share = shared()
    heard: list[Any] = []

    async def work(consumer: ShareConsumer) -> None:
        consumer.on_acknowledged(heard.append)
        await read(consumer, 5)
        await consumer.poll(timeout_ms=20)

    with_member(consumer_on(share), work)
    assert heard == [{AT: None}]


# -- failures


@pytest.mark.parametrize("fault", ["lost", ErrorCode.SHARE_SESSION_NOT_FOUND])
def test_a_lost_session_is_opened_again_and_its_records_come_again(
    fault: ErrorCode | str,
) -> None:
    share = shared(count=2)

    async def work(consumer: ShareConsumer) -> Any:
        first, _ = await read(consumer, 2)
        share.faults[ACKNOWLEDGE].append(fault)
        consumer.acknowledge(first)
        results = await consumer.commit_sync()
        again = await read(consumer, 2)
        return results[AT], [(one.offset, one.delivery_count) for one in again]

    error, again = with_member(explicit(share), work)
    assert isinstance(error, ClientError)
    assert isinstance(error, ShareSessionLostError) == (fault != "lost")
    assert again == [(0, 2), (1, 2)]


def test_a_fenced_member_joins_again() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        await read(consumer, 5)
        share.members.clear()
        while not share.members:
            await consumer.poll(timeout_ms=20)

    with_member(consumer_on(share), work)


def test_a_refused_member_says_why() -> None:
    share = shared()
    share.faults[ApiKey.SHARE_GROUP_HEARTBEAT].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    async def work(consumer: ShareConsumer) -> None:
        with pytest.raises(ClientError, match="cannot be in share group 'g'"):
            await read(consumer, 1)

    with_member(consumer_on(share), work)


def test_records_whose_lock_has_ended_are_not_handed_out() -> None:
    share = shared()
    share.features.clear()

    async def work(consumer: ShareConsumer) -> Any:
        got = await consumer._next(1, 5, 1_000)
        await pass_time(LOCK_MS / 1_000)
        share.end_session()
        return [one.offset for one in got], await consumer.poll(1, timeout_ms=0)

    assert with_member(consumer_on(share), work) == ([0], [])


def test_records_fetched_before_the_assignment_changed_are_acknowledged_as_any() -> None:
    share = shared(count=2)

    async def work(consumer: ShareConsumer) -> None:
        (first,) = await consumer._next(1, 2, 1_000)
        consumer.acknowledge(first)
        await consumer.commit_sync()
        consumer._fetcher.assign({})
        (second,) = await consumer.poll(1)
        consumer.acknowledge(second)
        assert await consumer.commit_sync() == {AT: None}

    with_member(explicit(share), work)
    assert share.done == {(0, 0): ACCEPT, (0, 1): ACCEPT}


def test_the_next_poll_accepts_records_of_a_partition_that_others_have_now() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> None:
        await read(consumer, 5)
        consumer._group.membership.assigned = frozenset()
        await consumer.poll(timeout_ms=20)
        assert share.done == {(0, one): ACCEPT for one in range(5)}

    with_member(consumer_on(share), work)


def test_a_lock_is_renewed_though_others_have_the_partition_now() -> None:
    share = shared(count=1)

    async def work(consumer: ShareConsumer) -> None:
        (record,) = await read(consumer, 1)
        consumer._group.membership.assigned = frozenset()
        consumer.acknowledge(record, "renew")
        share.refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await consumer.poll(timeout_ms=20)
        kinds = [
            kind
            for request in share.requests(ACKNOWLEDGE)
            for topic in request.topics
            for row in topic.partitions
            for batch in row.acknowledgement_batches
            for kind in batch.acknowledge_types
        ]
        assert kinds == [RENEW, RENEW]
        consumer.acknowledge(record)

    with_member(explicit(share), work)
    assert share.done == {(0, 0): ACCEPT}


def test_records_of_a_lost_connection_are_not_handed_out() -> None:
    share = shared()

    async def work(consumer: ShareConsumer) -> Any:
        got = await consumer._next(1, 5, 1_000)
        share.lose_link()
        again = await read(consumer, 4)
        return [one.offset for one in got], [(one.offset, one.delivery_count) for one in again]

    got, again = with_member(consumer_on(share), work)
    assert got == [0]
    assert again[:2] == [(0, 2), (1, 2)]


# -- settings


@pytest.mark.feature("T01")
def test_a_consumer_of_a_share_group_by_its_type() -> None:
    consumer = make_consumer("memory:1", group_type="share", group_id="g", max_poll_records=7)
    assert isinstance(consumer, ShareConsumer)
    assert consumer.config.max_poll_records == 7
    assert not isinstance(make_consumer("memory:1", group_id="g"), ShareConsumer)
    with pytest.raises(ClientConfigError, match="group_type is 'queue'"):
        make_consumer("memory:1", group_type="queue", group_id="g")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"group_id": ""}, "needs a group_id"),
        ({"group_id": "g", "share_acquire_mode": "all"}, "share_acquire_mode is 'all'"),
        ({"group_id": "g", "share_acknowledgement_mode": "x"}, "share_acknowledgement_mode"),
        ({"group_id": "g", "transport": "grpc"}, "transport='kafka'"),
        ({"group_id": "g", "represent_unacknowledged": True}, "needs share_acknowledgement_mode"),
        ({"group_id": "g", "auto_offset_reset": "earliest"}, "has no setting 'auto_offset_reset'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ClientConfigError, match=problem):
        ShareConsumer("memory:1", **settings)


@pytest.mark.feature("S22")
@pytest.mark.parametrize("name", ["assign", "seek", "position", "pause", "commit", "committed"])
def test_members_have_no_positions(name: str) -> None:
    assert hasattr(Consumer, name)
    assert not hasattr(ShareConsumer, name)


def test_subscriptions_are_lists_of_names() -> None:
    consumer = ShareConsumer("memory:1", group_id="g")
    with pytest.raises(TypeError):
        consumer.subscribe("t")
    with pytest.raises(ClientConfigError):
        consumer.subscribe([])
    with pytest.raises(ValueError, match="max_records is 0"):
        run(_polled(consumer))


async def _polled(consumer: ShareConsumer) -> None:
    async with consumer:
        await consumer.poll(0)
