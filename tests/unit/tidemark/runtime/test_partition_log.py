import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import read_records
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime import partition_log
from tidemark.runtime.append_call import UnknownOutcomeError
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.partition_log import LogLimits, RemotePartitionLog
from unit.tidemark.runtime.memory_brokers import (
    STATE,
    STATE_ID,
    MemoryBroker,
    batch_of,
    brokers,
    image_of,
)
from virtual_time import run_skipping, skip
from waiting import PATIENCE_MS, patience, until


class World:
    """Two brokers, the metadata, and logs of owners."""

    def __init__(self, made: list[MemoryBroker], channels: ChannelPool) -> None:
        self.brokers = made
        self.partition = made[0].partition
        self.metadata = MetadataCache(image_of(1, made, leader=1))
        self.channels = channels
        self.logs: list[RemotePartitionLog] = []

    def log(self, owner_epoch: int = 5, **limits: int) -> RemotePartitionLog:
        ample = {"append_timeout_ms": PATIENCE_MS, "take_over_timeout_ms": PATIENCE_MS}
        log = RemotePartitionLog(
            STATE,
            self.metadata,
            self.channels,
            owner_epoch=owner_epoch,
            limits=LogLimits(**{**ample, **limits}),
        )
        self.logs.append(log)
        return log

    def move_leader(self) -> None:
        """From the first broker to the second."""
        for broker in self.brokers:
            broker.leads = broker.broker_id == 2
        self.metadata.take(image_of(2, self.brokers, leader=2, leader_epoch=2))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    channels = ChannelPool()
    async with brokers(2) as made:
        here = World(made, channels)
        try:
            yield here
        finally:
            for log in here.logs:
                log.close()
            await channels.close()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world() as here, patience():
            await scenario(here)

    run_skipping(main())


async def values_of(log: RemotePartitionLog, end: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with aclosing(log.read(end)) as batches:
        async for batch in batches:
            for _, header in iterate_headers(batch):
                found += [record.value for record in read_records(batch, header)]
    return found


def test_an_append_carries_the_owner_epoch_and_gives_the_end() -> None:
    async def scenario(here: World) -> None:
        log = here.log(owner_epoch=7)
        assert await log.append(batch_of(b"a", b"b")) == 2
        assert await log.append(batch_of(b"c")) == 3
        first = here.brokers[0].appends[0]
        assert (first.owner_epoch, first.owner_takes_over, first.acks) == (7, False, -1)
        assert first.partition.topic_id == STATE_ID
        assert here.brokers[0].streams == 1

    run(scenario)


def test_taking_over_gives_the_offset_behind_the_owner_record() -> None:
    async def scenario(here: World) -> None:
        await here.log(owner_epoch=1).append(batch_of(b"a", b"b"))
        assert await here.log(owner_epoch=2).take_over() == 3
        assert here.brokers[0].appends[-1].owner_takes_over

    run(scenario)


def test_an_earlier_owner_is_fenced_and_broken() -> None:
    async def scenario(here: World) -> None:
        log = here.log(owner_epoch=1)
        await here.log(owner_epoch=2).take_over()
        with pytest.raises(TidemarkError) as refused:
            await log.append(batch_of(b"late"))
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        with pytest.raises(AssertionError):
            await log.append(batch_of(b"again"))

    run(scenario)


def test_a_later_owner_is_not_overtaken() -> None:
    async def scenario(here: World) -> None:
        await here.log(owner_epoch=9).take_over()
        with pytest.raises(TidemarkError) as refused:
            await here.log(owner_epoch=8).take_over()
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    run(scenario)


def test_an_append_that_was_refused_untouched_follows_the_leader() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        await log.append(batch_of(b"a"))
        here.brokers[0].leads = False
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(log.append(batch_of(b"b")))
            await until(lambda: len(here.brokers[0].appends) > 1)
            here.move_leader()
        assert appending.result() == 2
        assert len(here.brokers[1].appends) == 1

    run(scenario)


def test_without_a_leader_an_append_waits_for_one() -> None:
    async def scenario(here: World) -> None:
        here.metadata.take(image_of(2, here.brokers, leader=-1))
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(here.log().append(batch_of(b"a")))
            await asyncio.sleep(0.01)
            here.metadata.take(image_of(3, here.brokers, leader=1))
        assert appending.result() == 1

    run(scenario)


def test_a_leader_that_is_not_reached_was_sent_nothing() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].endpoint = "127.0.0.1:1"
        here.metadata.take(image_of(2, here.brokers, leader=1))
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(here.log().append(batch_of(b"a")))
            await asyncio.sleep(0.03)
            here.brokers[1].leads = True
            here.metadata.take(image_of(3, here.brokers, leader=2))
        assert appending.result() == 1

    run(scenario)


@pytest.mark.parametrize(
    ("code", "base_offset"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0),  # appended, then deposed
    ],
)
def test_an_append_that_is_in_some_log_has_an_unknown_outcome(
    code: ErrorCode, base_offset: int
) -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = [(code, base_offset)]
        with pytest.raises(UnknownOutcomeError):
            await here.log().append(batch_of(b"a"))
        assert len(here.brokers[0].appends) == 1

    run(scenario)


def test_a_silent_leader_makes_the_outcome_unknown() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].is_silent = True
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(_outcome(here.log(append_timeout_ms=60_000)))
            await here.brokers[0].was_appended_to.wait()
            skip(61)
        assert appending.result() is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_leader_that_was_replaced_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].is_silent = True
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(_outcome(here.log()))
            await here.brokers[0].was_appended_to.wait()
            here.move_leader()
        assert appending.result() is ErrorCode.REQUEST_TIMED_OUT

    monkeypatch.setattr(partition_log, "_DEPOSED_PATIENCE_S", 0.02)
    run(scenario)


def test_taking_over_goes_on_at_the_next_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].is_silent = True
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(here.log().take_over())
            await here.brokers[0].was_appended_to.wait()
            here.move_leader()
        assert taking.result() == 1

    monkeypatch.setattr(partition_log, "_DEPOSED_PATIENCE_S", 0.02)
    run(scenario)


def test_taking_over_is_tried_again_whatever_its_outcome() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = [
            (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0),
            (ErrorCode.REQUEST_TIMED_OUT, 0),
            (ErrorCode.NOT_ENOUGH_REPLICAS, -1),
        ]
        assert await here.log().take_over() == 1
        assert len(here.brokers[0].appends) == 4

    run(scenario)


def test_a_take_over_that_timed_out_says_what_it_heard_last() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)] * 100
        log = here.log(take_over_timeout_ms=60_000)
        with pytest.RaisesGroup(
            pytest.RaisesExc(UnknownOutcomeError, match=r"last refused: .*NOT_ENOUGH_REPLICAS")
        ):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(log.take_over())
                await until(lambda: len(here.brokers[0].appends) > 1)
                skip(61)

    run(scenario)


def test_reading_gives_every_batch_below_the_end() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        await log.append(batch_of(b"a", b"b"))
        end = await log.append(batch_of(b"c"))
        await log.append(batch_of(b"beyond"))
        assert await values_of(log, end) == [b"a", b"b", b"c"]

    run(scenario)


def test_an_empty_log_is_read_at_once() -> None:
    async def scenario(here: World) -> None:
        assert await values_of(here.log(), 0) == []

    run(scenario)


def test_reading_ends_where_compaction_left_a_gap_before_the_end() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        for value in (b"a", b"b", b"c", b"d"):
            await log.append(batch_of(value))
        here.partition.compact(1, 3)
        assert await values_of(log, 3) == [b"b"]

    run(scenario)


def test_reading_begins_at_the_start_of_the_log() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        await log.append(batch_of(b"deleted"))
        end = await log.append(batch_of(b"kept"))
        here.partition.log_start = 1
        assert await values_of(log, end) == [b"kept"]

    run(scenario)


def test_reading_follows_the_leader() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        await log.append(batch_of(b"a"))
        end = await log.append(batch_of(b"b"))
        found: list[int] = []
        async with aclosing(log.read(end)) as batches:
            async for batch in batches:
                found += [header.base_offset for _, header in iterate_headers(batch)]
                here.move_leader()
        assert found == [0, 1]

    run(scenario)


def test_reading_goes_on_after_errors_that_pass() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        end = await log.append(batch_of(b"a"))
        here.brokers[0].fetch_refusals = [
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.FENCED_LEADER_EPOCH,
        ]
        assert await values_of(log, end) == [b"a"]

    run(scenario)


def test_reading_fails_where_trying_again_cannot_help() -> None:
    async def scenario(here: World) -> None:
        log = here.log()
        end = await log.append(batch_of(b"a"))
        here.brokers[0].fetch_refusals = [ErrorCode.OFFSET_OUT_OF_RANGE]
        with pytest.raises(TidemarkError) as failed:
            await values_of(log, end)
        assert failed.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)


def test_closing_ends_an_append_under_way() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].is_silent = True
        log = here.log()
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(_outcome(log))
            await here.brokers[0].was_appended_to.wait()
            log.close()
        assert appending.result() is ErrorCode.NETWORK_EXCEPTION

    run(scenario)


def test_the_owner_deletes_the_beginning_of_its_log() -> None:
    async def scenario(here: World) -> None:
        log = here.log(owner_epoch=2)
        await log.append(batch_of(b"a", b"b"))
        end = await log.append(batch_of(b"c"))
        await log.delete_before(2)
        assert await values_of(here.log(owner_epoch=3), end) == [b"c"]

    run(scenario)


def test_a_fenced_owner_deletes_nothing() -> None:
    async def scenario(here: World) -> None:
        old = here.log(owner_epoch=1)
        await old.append(batch_of(b"a"))
        await here.log(owner_epoch=2).take_over()
        with pytest.raises(TidemarkError) as refused:
            await old.delete_before(1)
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert here.partition.log_start == 0

    run(scenario)


def test_a_deletion_at_a_broker_that_is_gone_fails() -> None:
    async def scenario(here: World) -> None:
        here.metadata.take(image_of(2, here.brokers, leader=-1))
        with pytest.raises(TidemarkError) as refused:
            await here.log().delete_before(1)
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    run(scenario)


async def _outcome(log: RemotePartitionLog) -> ErrorCode:
    try:
        await log.append(batch_of(b"a"))
    except UnknownOutcomeError as failed:
        return failed.code
    return ErrorCode.NONE
