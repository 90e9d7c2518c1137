"""Sink batches with real processes: each committed once, whoever dies, repeats or comes late."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.clusters import Cluster
from e2e.transactional_clients import (
    UNCOMMITTED,
    committed_offset,
    create,
    read,
    read_until,
    transactional_cluster,
)
from tidemark.client.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import (
    BatchCommittedError,
    BatchId,
    BatchOutcome,
    RetiredQueryError,
    SinkBatches,
    SinkDescription,
    StaleBatchError,
)
from tidemark.model.topics import TopicPartition
from waiting import PATIENCE_S, until, until_told

COORDINATOR = "txn-coordinator-1"
TIMEOUT_MS = 6_000
"""A writer keeps its batch every two seconds: it is not starved for the other four."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker and one coordinator. Whoever kills the coordinator starts it again."""
    directory = tmp_path_factory.mktemp("sinks")
    overrides = {"txn-coordinator": {"zookeeper.session.timeout.ms": 4_000}}
    with transactional_cluster(directory, brokers=1, overrides=overrides) as running:
        # The first question that is asked of it: no topic has the state of transactions yet.
        with pytest.raises(TransactionalIdNotFoundError):
            asyncio.run(described(running, "nobody"))
        yield running


@pytest.fixture
def name() -> str:
    """For the topic, the sink and the group of one test."""
    return f"s-{uuid.uuid4().hex[:8]}"


async def described(cluster: Cluster, sink_id: str) -> SinkDescription:
    """As any broker tells it."""
    async with SinkBatches(cluster.grpc()) as sink:
        return await sink.describe(sink_id)


def tidemark(*words: str) -> Any:
    """What a command of ``tidemark txn`` prints."""
    command = [sys.executable, "-m", "tidemark.cli.main", "txn", *words]
    done = subprocess.run(
        [*command, "--output", "json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def given_up(sink: SinkBatches, batch: BatchId) -> None:
    """Until the coordinator has aborted a batch that nobody keeps alive."""

    async def is_given_up() -> bool:
        return (await sink.describe(batch.sink_id)).open_batch is None

    await until_told(is_given_up, f"{batch} is given up")


async def written(sink: SinkBatches, batch: BatchId, writer: str, *values: str) -> WriterReceipt:
    """What one task does; the sink's id is also the topic's."""
    async with await sink.enlist(batch, writer) as one:
        for value in values:
            await one.send(batch.sink_id, value.encode(), partition=0)
        return one.receipt()


@pytest.mark.feature("Y02")
def test_a_replayed_batch_is_recognised_as_done(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            counted = await written(sink, batch, "task-0", "a", "b")
            await written(sink, batch, "task-0-late", "never")
            outcome = await sink.commit(batch, [counted], note="two rows")
            assert outcome == BatchOutcome(
                committed=True, first=True, note="two rows", same_writers=True
            )
        async with SinkBatches(cluster.grpc()) as again:
            with pytest.raises(BatchCommittedError) as done:
                await again.enlist(batch, "task-0")
            assert done.value.note == "two rows"
            assert await again.commit(batch, note="other") == BatchOutcome(
                committed=True, first=False, note="two rows"
            )
            assert (await again.abort(batch)).committed
            assert (await again.describe(name)).batch_id == 0

    asyncio.run(use())
    assert read_until(cluster, name, ["a", "b"]) == ["a", "b"]
    assert read(cluster, name, UNCOMMITTED) == ["a", "b", "never"]


@pytest.mark.feature("Y02", "Y04")
def test_a_commit_outlives_its_coordinator_and_is_asked_for_again(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 3)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            counted = await written(sink, batch, "task-0", "1")
            cluster.kill(COORDINATOR)
            cluster.restart(COORDINATOR)
            late = await written(sink, batch, "task-0-again", "2")
            assert (await sink.commit(batch, [counted])).first
            cluster.kill(COORDINATOR)
            cluster.restart(COORDINATOR)
            outcome = await sink.commit(batch, [late])
            assert (outcome.committed, outcome.first, outcome.same_writers) == (True, False, False)
            assert (await sink.commit(batch, [counted])).same_writers

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]


def test_a_second_query_takes_over_and_the_first_never_comes_back(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    old, new = BatchId(name, "old", 0), BatchId(name, "new", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            first = await written(sink, old, "task-0", "old 0")
            await sink.commit(old, [first])
            left_open = await written(sink, old._replace(batch_id=1), "task-0", "old 1")
            async with await sink.enlist(new, "task-0") as writer:
                assert writer.retired_query_id == "old"
                await writer.send(name, b"new 0", partition=0)
                assert (await sink.commit(new, [writer.receipt()])).first
            with pytest.raises(RetiredQueryError, match="took it over"):
                await sink.commit(old._replace(batch_id=1), [left_open])
            with pytest.raises(RetiredQueryError):
                await sink.enlist(old._replace(batch_id=2), "task-0")
            assert (await sink.describe(name)).retired == ("old",)

    asyncio.run(use())
    assert read_until(cluster, name, ["old 0", "new 0"]) == ["old 0", "new 0"]


def test_an_older_batch_is_refused_and_a_newer_one_aborts_what_is_open(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            for batch_id in (4, 5):
                batch = BatchId(name, "q", batch_id)
                receipt = await written(sink, batch, "task-0", str(batch_id))
                await sink.commit(batch, [receipt])
            with pytest.raises(StaleBatchError, match="batch 4 is older than batch 5"):
                await sink.enlist(BatchId(name, "q", 4), "task-0")
            await written(sink, BatchId(name, "q", 6), "task-0", "left open")
            newer = await written(sink, BatchId(name, "q", 7), "task-0", "7")
            with pytest.raises(StaleBatchError, match="is open"):
                await sink.commit(BatchId(name, "q", 6))
            await sink.commit(BatchId(name, "q", 7), [newer])

    asyncio.run(use())
    assert read_until(cluster, name, ["4", "5", "7"]) == ["4", "5", "7"]


def test_a_writer_keeps_its_batch_beyond_the_timeout_and_nobody_else_does(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            async with await sink.enlist(batch, "task-0", timeout_ms=TIMEOUT_MS) as writer:
                await writer.send(name, b"1", partition=0)
                # As old, and kept by nobody: once it is given up, so long has passed.
                twin = batch._replace(sink_id=f"{name}-twin")
                await sink.enlist(twin, "task-0", timeout_ms=TIMEOUT_MS)
                await given_up(sink, twin)
                assert (await sink.commit(batch, [writer.receipt()])).first
            following = batch._replace(batch_id=1)
            async with await sink.enlist(following, "task-0", timeout_ms=TIMEOUT_MS) as writer:
                await writer.send(name, b"2", partition=0)
                receipt = writer.receipt()
            await given_up(sink, following)
            with pytest.raises(InvalidTransactionStateError, match="ran longer than its timeout"):
                await sink.commit(following, [receipt])
            assert not (await sink.abort(following)).committed

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]


def test_a_writer_that_is_left_over_learns_that_its_batch_ended(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            loser = await sink.enlist(batch, "loser", timeout_ms=TIMEOUT_MS)
            await loser.start()
            winner = await written(sink, batch, "winner", "1")
            await sink.commit(batch, [winner])
            await until(lambda: loser.failure is not None, "it learns that its batch ended")
            assert isinstance(loser.failure, InvalidTransactionStateError)
            with pytest.raises(InvalidTransactionStateError, match="was committed"):
                loser.receipt()
            await loser.close(timeout_ms=0)

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]


@pytest.mark.feature("Y02", "L10", "L12")
def test_offsets_of_a_group_are_part_of_the_batch(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)
    batch, source = BatchId(name, "q", 0), TopicPartition(name, 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            receipt = await written(sink, batch, "task-0", "1")
            outcome = await sink.commit(batch, [receipt], group_offsets=(name, {source: 7}))
            assert outcome.first
            repeated = await sink.commit(batch, [receipt], group_offsets=(name, {source: 9}))
            assert (repeated.committed, repeated.first) == (True, False)
            await sink.commit(batch._replace(batch_id=1), group_offsets=(name, {source: 8}))

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]
    assert committed_offset(cluster, name, name) == 8


def test_an_empty_batch_is_remembered_and_an_aborted_one_written_again(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            assert (await sink.commit(batch, note="nothing")).first
            with pytest.raises(BatchCommittedError):
                await sink.enlist(batch, "task-0")
            following = batch._replace(batch_id=1)
            await written(sink, following, "task-0", "gone")
            assert not (await sink.abort(following)).committed
            receipt = await written(sink, following, "task-0", "1")
            assert (await sink.commit(following, [receipt])).first

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]


def test_a_sink_that_is_forgotten_begins_anew(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 5)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            receipt = await written(sink, batch, "task-0", "1")
            with pytest.raises(InvalidTransactionStateError, match="is open"):
                await sink.forget(name)
            await sink.commit(batch, [receipt])
            assert await sink.forget(name)
            assert not await sink.forget(name)
            with pytest.raises(TransactionalIdNotFoundError):
                await sink.describe(name)
            cluster.kill(COORDINATOR)
            cluster.restart(COORDINATOR)
            again = await written(sink, batch, "task-0", "2")
            assert (await sink.commit(batch, [again])).first

    asyncio.run(use())
    assert read_until(cluster, name, ["1", "2"]) == ["1", "2"]


def test_operators_see_a_sink_and_forget_it(cluster: Cluster, name: str) -> None:
    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            await sink.commit(BatchId(name, "old", 3))
            await sink.commit(BatchId(name, "q", 0), note="no rows")

    asyncio.run(use())
    (shown,) = tidemark("describe", name, "--transport", "grpc", "-b", cluster.grpc())
    assert (shown["query_id"], shown["committed_batch"], shown["open_batch"]) == ("q", 0, None)
    assert (shown["note"], shown["retired_queries"]) == ("no rows", ["old"])
    (forgotten,) = tidemark("forget", name, "--yes", "-b", cluster.grpc())
    assert forgotten["outcome"] == "forgotten"


def test_a_batch_that_is_kept_alive_does_not_hang(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)
    where = ("-t", name, "-b", cluster.kafka())

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            await sink.enlist(BatchId(name, "q", 0), "task-1")
            old = ("--min-duration-ms", "0", "--pattern", name, "-b", cluster.kafka())
            (open_one,) = await asyncio.to_thread(tidemark, "list", *old)
            assert (open_one["transactional_id"], open_one["state"]) == (name, "Ongoing")
            assert await asyncio.to_thread(tidemark, "holders", *where) == []
            await written(sink, BatchId(name, "q", 0), "task-0", "1")
            (holder,) = await asyncio.to_thread(tidemark, "holders", *where)
            assert holder["transactional_id"] == name
            listed = await asyncio.to_thread(
                tidemark, "list", "--hanging", "--max-timeout-ms", "0", *where
            )
            assert listed == []

    asyncio.run(use())


@pytest.mark.feature("Y02")
def test_of_two_drivers_at_once_one_commits_first(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)

    async def drive(batch: BatchId, driver: str) -> BatchOutcome:
        async with SinkBatches(cluster.grpc()) as sink:
            try:
                receipt = await written(sink, batch, f"{driver}.task-0", driver)
            except (BatchCommittedError, ProducerFencedError):
                # The other was first: before this writer was enlisted, or before it had written.
                return await sink.commit(batch)
            offsets = (name, {TopicPartition(name, 0): batch.batch_id})
            return await sink.commit(batch, [receipt], note=driver, group_offsets=offsets)

    async def use() -> list[str]:
        notes = []
        for batch_id in range(5):
            batch = BatchId(name, "q", batch_id)
            outcomes = await asyncio.gather(drive(batch, "a"), drive(batch, "b"))
            assert sorted(outcome.first for outcome in outcomes) == [False, True]
            assert outcomes[0].note == outcomes[1].note
            notes.append(outcomes[0].note)
        return notes

    winners = asyncio.run(use())
    assert read_until(cluster, name, winners) == winners
    assert committed_offset(cluster, name, name) == 4


@pytest.mark.feature("Y02", "Y04")
def test_the_coordinator_dies_while_it_is_asked_to_commit(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            for batch_id in range(3):
                batch = BatchId(name, "q", batch_id)
                receipt = await written(sink, batch, "task-0", str(batch_id))
                async with asyncio.TaskGroup() as tasks:
                    asking = tasks.create_task(sink.commit(batch, [receipt], note="n"))
                    await asyncio.sleep(batch_id * 0.005)
                    await asyncio.to_thread(cluster.kill, COORDINATOR)
                    await asyncio.to_thread(cluster.restart, COORDINATOR)
                outcome = asking.result()
                assert (outcome.committed, outcome.note) == (True, "n")
                assert outcome.same_writers

    asyncio.run(use())
    assert read_until(cluster, name, ["0", "1", "2"]) == ["0", "1", "2"]


def test_an_operator_aborts_the_open_batch_and_it_is_written_again(
    cluster: Cluster, name: str
) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with SinkBatches(cluster.grpc()) as sink:
            receipt = await written(sink, batch, "task-0", "gone")
            await asyncio.to_thread(tidemark, "abort", name, "--yes", "-b", cluster.kafka())
            with pytest.raises(InvalidTransactionStateError, match="write it again"):
                await sink.commit(batch, [receipt])
            again = await written(sink, batch, "task-0", "1")
            assert (await sink.commit(batch, [again])).first

    asyncio.run(use())
    assert read_until(cluster, name, ["1"]) == ["1"]


@pytest.mark.feature("Y02", "Y04")
def test_a_batch_beyond_its_timeout_outlives_its_coordinator(cluster: Cluster, name: str) -> None:
    create(cluster, name, replicas=1)
    batch = BatchId(name, "q", 0)

    async def use() -> None:
        async with (
            SinkBatches(cluster.grpc()) as sink,
            await sink.enlist(batch, "task-0", timeout_ms=TIMEOUT_MS) as writer,
        ):
            await writer.send(name, b"1", partition=0)
            twin = batch._replace(sink_id=f"{name}-twin")
            await sink.enlist(twin, "task-0", timeout_ms=TIMEOUT_MS)
            await asyncio.to_thread(cluster.kill, COORDINATOR)
            await asyncio.to_thread(cluster.restart, COORDINATOR)
            await given_up(sink, twin)
            await writer.send(name, b"2", partition=0)
            assert (await sink.commit(batch, [writer.receipt()])).first

    asyncio.run(use())
    assert read_until(cluster, name, ["1", "2"]) == ["1", "2"]
