"""Compaction's bookkeeping around what happens to topics, and what cuts a round short."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from broker.shell.metrics.compaction import families
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.settings import BrokerSettings
from broker.shell.upkeep.cleaning import Cleaning
from broker.storage import checkpoint
from broker.storage.compaction import CHECKPOINT_NAME, CleaningJob, CleaningPlan, CleaningResult
from broker.storage.log_manager import LogManager
from broker.storage.scrubber import Scrubber, ScrubTask
from broker.storage.segment import UNKNOWN_TIMESTAMP
from tidemark.model.topics import TopicPartition
from tidemark.runtime.worker_pool import JobTooLargeError, WorkerDiedError, WorkerPool
from tidemark.storage.disk import DiskError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, topic
from waiting import until


def test_a_recreated_topic_is_not_taken_for_clean() -> None:
    cleanings: list[Cleaning] = []

    def forget(manager: LogManager, topic_partition: TopicPartition) -> None:
        for each in cleanings:
            each.forget(manager, topic_partition)

    one = World(on_new_log=forget)
    disk, orders = one.disks[0], TopicPartition("orders", 0)
    one.show(topic())
    checkpoint.write_offsets(disk, CHECKPOINT_NAME, {orders: 7}, sync=False)
    cleanings.append(cleaning(one, WorkerPool()))
    one.change(topics_changed=(topic(number=2),), topics_deleted=(topic().topic_id,))
    assert orders not in checkpoint.read_offsets(disk, CHECKPOINT_NAME)


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("fails", [False, True])
def test_a_log_that_moves_takes_along_how_far_it_was_cleaned(fails: bool) -> None:
    one, orders = World(MemDisk(), MemDisk()), TopicPartition("orders", 0)
    source, target = one.parts.partitions.disks.log_managers
    checkpoint.write_offsets(source.disk, CHECKPOINT_NAME, {orders: 7}, sync=False)
    one.disks[1].writes_fail = fails
    cleaning(one).moved(orders, source, target)
    assert checkpoint.read_offsets(source.disk, CHECKPOINT_NAME) == {}
    found = checkpoint.read_offsets(target.disk, CHECKPOINT_NAME)
    assert (found, target.failure is None) == (({}, False) if fails else ({orders: 7}, True))


RATE = "log.cleaner.io.max.bytes.per.second"
COMPACTED = topic(configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
LAGGING = topic(configs={**COMPACTED.configs, "max.compaction.lag.ms": "1"})


class Worker:
    """Fails at every job, after something else has happened."""

    def __init__(self, failure: Exception, meanwhile: Callable[[], None]) -> None:
        self._failure = failure
        self._meanwhile = meanwhile

    async def run(self, *_: object) -> None:
        self._meanwhile()
        raise self._failure


def rolled(shown: Any = COMPACTED) -> World:
    """A topic with several segments, all on disk."""
    world = World()
    world.show(shown)
    for _ in range(6):
        world.append(bytes(400_000))
    synced(world)
    return world


def synced(world: World) -> None:
    """Sync all logs."""
    manager = world.parts.partitions.disks.log_managers[0]
    begun = manager.begin_flush(only_group=False, now_ms=world.clock.wall_ms() + 10**8)
    assert begun is not None
    begun.run()
    hosted = {id(one.log): one for one in world.table.by_name.values()}
    for log, end in manager.finish_flush(begun):
        world.parts.partitions.log_moves.synced(hosted[id(log)], end)


def cleaning(world: World, worker: object = None) -> Cleaning:
    parts, pool = world.parts, cast("WorkerPool", worker)
    return Cleaning(
        parts.facts,
        BrokerSettings(parts.facts, parts.metadata),
        pool,
        lambda disk: lambda: disk,
        table=parts.partitions.table,
        disks=parts.partitions.disks,
    )


EIO = DiskError("orders-0/0.log", "Input/output error")


@pytest.mark.parametrize(
    ("failure", "goes", "fenced"),
    [
        (EIO, False, True),
        (EIO, True, False),
        (FileNotFoundError("orders-0/0.log"), True, False),
        (FileNotFoundError("orders-0/0.log"), False, False),
        (ExhaustedError("orders-0/0.log", "Too many open files"), False, False),
        (JobTooLargeError("more than there is"), False, False),
        (BlockingIOError("no process can be started"), False, False),
        (RuntimeError("a bug"), False, False),
        (AssertionError("a bug"), True, False),
        (WorkerDiedError("killed"), False, False),
    ],
)
def test_a_round_that_is_cut_short_costs_at_most_a_failed_disk(
    failure: Exception, goes: bool, fenced: bool
) -> None:
    world = rolled()

    def meanwhile() -> None:
        if goes:
            world.change(topics_deleted=(COMPACTED.topic_id,))

    compaction = cleaning(world, Worker(failure, meanwhile))
    due = asyncio.run(compaction._dirtiest())
    assert due is not None
    assert not asyncio.run(compaction._is_cleaned(*due))
    assert (world.parts.partitions.disks.log_managers[0].failure is not None) == fenced


BUG = RuntimeError("a bug")


class BrokenFor:
    """A worker that fails at one log, and completes its round at others."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self.jobs: list[int] = []

    async def run(self, _function: object, _opener: object, job: CleaningJob) -> CleaningResult:
        self.jobs.append(job.topic_partition.partition)
        if job.topic_partition.partition == self._partition:
            raise BUG
        return CleaningResult(clean_end=job.first_uncleanable)


def test_an_error_at_one_log_leaves_out_that_log_and_the_others_are_compacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, worker = two_rolled(), BrokenFor(0)
    compaction = cleaning(world, worker)
    world.change(broker_configs_changed={"": {"log.cleaner.backoff.ms": "100"}})
    with caplog.at_level(logging.ERROR):
        asyncio.run(run_until(compaction, lambda: len(worker.jobs) == 2))
    assert sorted(worker.jobs) == [0, 1]
    assert compaction.turns.uncleanable == {("orders", 0)}
    (line,) = caplog.records
    assert line.exc_info is not None
    assert line.exc_info[1] is BUG
    assert not world.parts.partitions.disks.offline_directories


async def run_until(compaction: Cleaning, condition: Callable[[], bool]) -> None:
    """Run the loop; its end by an error ends this too."""
    async with asyncio.TaskGroup() as tasks:
        loop = tasks.create_task(compaction._clean())
        await until(condition)
        loop.cancel()


def two_rolled() -> World:
    """Two partitions with several segments, all on disk."""
    world = World()
    world.show(topic(partitions=2, configs=COMPACTED.configs))
    for number in range(12):
        world.append(bytes(400_000), partition=number % 2)
    synced(world)
    return world


def test_an_error_in_the_plan_of_a_log_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BUG

    world = rolled()
    compaction = cleaning(world)
    with monkeypatch.context() as broken:
        broken.setattr("broker.shell.upkeep.cleaning.plan_cleaning", fail)
        assert asyncio.run(compaction._dirtiest()) is None
    assert asyncio.run(compaction._dirtiest()) is None
    manager = world.parts.partitions.disks.log_managers[0]
    compaction.forget(manager, TopicPartition("orders", 0))
    assert asyncio.run(compaction._dirtiest()) is not None


def test_logs_are_looked_at_one_by_one() -> None:
    """Many segments take long: requests are served between two logs."""

    async def story() -> None:
        world = two_rolled()
        compaction = cleaning(world)
        looks: list[int] = []
        planned = compaction._plan

        def counted(hosted: HostedPartition) -> CleaningPlan | None:
            looks[-1] += 1
            return planned(hosted)

        compaction._plan = counted  # type: ignore[method-assign]
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(compaction._dirtiest())
            while not looking.done():
                looks.append(0)
                await asyncio.sleep(0)
        assert looks[:3] == [1, 1, 1], "the third look is at the one that was chosen"

    asyncio.run(story())


def test_logs_that_are_left_out_are_counted_for_their_directory() -> None:
    world = rolled()
    compaction, partitions = cleaning(world), world.parts.partitions
    compaction.turns.failed(TopicPartition("orders", 0))
    compaction.turns.failed(TopicPartition("gone", 0))
    found = families(compaction.turns, partitions.table, partitions.disks, ("/one",))
    figures = {one.name: [(each.labels, each.value) for each in one.samples] for one in found}
    prefix, label = "kafka_log_logcleanermanager_uncleanable", {"dir": "/one"}
    assert figures[f"{prefix}_partitions_count"] == [(label, 1)]
    assert figures[f"{prefix}_bytes"] == [(label, world.hosted().log.size_bytes)]


def test_a_disk_that_fails_while_a_round_is_planned_is_fenced() -> None:
    world = rolled(LAGGING)
    world.disks[0].reads_fail = True
    assert asyncio.run(cleaning(world)._dirtiest()) is None
    assert world.parts.partitions.disks.log_managers[0].failure is not None


def test_without_its_checkpoint_all_of_a_log_is_dirty() -> None:
    world = rolled()
    world.disks[0].replace_whole(CHECKPOINT_NAME, b"0\n1\nnonsense\n")
    due = asyncio.run(cleaning(world)._dirtiest())
    assert due is not None
    assert due[1].first_dirty == 0


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_segment_that_was_cut_under_the_scrubber_is_not_damaged(is_cut: bool) -> None:
    world = rolled()
    scrubbing, scrubber = cleaning(world), Scrubber(bytes_per_second=1)
    task = scrubber.next_task(scrubbing, 0)
    assert task is not None
    if is_cut:
        world.hosted().log.truncate_to(task.segment.base_offset + 1)
    else:
        world.disks[0].flip_bit(task.segment.path, task.segment.end - 1)
    asyncio.run(scrubbing._scrub_one(scrubber, task))
    assert (world.hosted().log.damage is None) == is_cut


def without_timestamps(world: World) -> World:
    """As after a start: the largest timestamps are in files that nobody has opened."""
    for segment in world.hosted().log._segments.segments:
        segment.max_timestamp = UNKNOWN_TIMESTAMP
    return world


def test_a_time_index_that_cannot_be_read_fails_its_disk_and_not_the_scrubber() -> None:
    world = without_timestamps(rolled())
    world.disks[0].reads_fail = True
    assert Scrubber(bytes_per_second=1).next_task(cleaning(world), 0) is None
    assert world.parts.partitions.disks.log_managers[0].failure is not None


def test_without_a_descriptor_the_scrubber_leaves_a_log_for_its_next_pass() -> None:
    world = without_timestamps(rolled())
    scrubbing, scrubber = cleaning(world), Scrubber(bytes_per_second=1)
    world.disks[0].exhausted = True
    assert scrubber.next_task(scrubbing, 0) is None
    world.disks[0].exhausted = False
    assert scrubber.next_task(scrubbing, scrubber.pause_ms(0)) is not None
    assert world.parts.partitions.disks.log_managers[0].failure is None


def test_segments_are_scrubbed_at_the_rate_and_not_one_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolled()
    scrubbing, seen = cleaning(world), set[str]()
    rolled_paths = {one.path for one in world.hosted().log.segments() if not one.active}

    async def pause(seconds: float) -> None:
        world.clock.advance(round(seconds * 1_000))

    async def scrub_one(scrubber: Scrubber, task: ScrubTask) -> None:
        await scrub(scrubber, task)
        seen.add(task.segment.path)
        if seen == rolled_paths:
            raise asyncio.CancelledError

    scrub = scrubbing._scrub_one
    monkeypatch.setattr(scrubbing, "_scrub_one", scrub_one)
    monkeypatch.setattr("broker.shell.upkeep.cleaning.asyncio.sleep", pause)
    began, size = world.clock.now_ms(), sum(world.disks[0].size_of(one) for one in rolled_paths)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scrubbing._scrub())
    assert len(rolled_paths) > 1
    due_ms = 1_000 * size // world.parts.facts.config.log_scrub_bytes_per_s
    assert world.clock.now_ms() - began <= due_ms


class Compacted:
    """A worker that needs 500 ms, and finds segments that have changed meanwhile."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock

    async def run(self, *_: object) -> CleaningResult:
        self._clock.advance(500)
        return CleaningResult(bytes_read=3_000, bytes_written=1_000)


@pytest.mark.parametrize(("rate", "pauses"), [("2000", True), ("8000", False), ("1e300", False)])
def test_compaction_pauses_as_its_rate_demands(rate: str, pauses: bool) -> None:
    async def story() -> None:
        world = rolled()
        compaction = cleaning(world, Compacted(world))
        world.change(broker_configs_changed={"": {RATE: rate}})
        due = await compaction._dirtiest()
        assert due is not None
        async with asyncio.TaskGroup() as tasks:
            round_ = tasks.create_task(compaction._is_cleaned(*due))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert round_.done() != pauses
            world.change(broker_configs_changed={"": {RATE: "1e300"}})  # ends the pause

    asyncio.run(story())
