"""A follower's fetches from one leader, which answers as the test says."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import pytest
from broker.shell.replication.applying import prepare_cut
from broker.shell.replication.leader_connection import LeaderConnection
from broker.shell.replication.manager import ReplicationManager
from tidemark.kafka.fetch import FetchPartitionResult, FetchRequest, FetchResponse
from tidemark.kafka.fetch_response import FetchedPartition, FetchedTopic
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch
from tidemark.model.metadata import BrokerImage, Endpoint
from tidemark.runtime.clock import Clock
from tidemark.storage.disk import DiskFullError
from unit.broker.shell.broker_worlds import ME, OTHER, World, topic
from unit.broker.shell.replicated_worlds import partition

Answer = Callable[[FetchRequest], FetchResponse]
PARTITIONS = 150
SESSION = 7
GIVEN_UP_S = 60.0
LEADER = BrokerImage(
    OTHER,
    BrokerEpoch(20),
    bytes(16),
    (Endpoint("INTERNAL", "leader", 1),),
    "",
    None,
    "",
    fenced=False,
)


def answered(request: FetchRequest, code: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    """The same answer for every partition of a request."""
    topics = [
        FetchedTopic(
            "",
            asked.topic_id,
            [
                FetchedPartition(FetchPartitionResult(each.partition, code, 0), None)
                for each in asked.partitions
            ],
        )
        for asked in request.topics
    ]
    return FetchResponse(0, 0, SESSION, topics, [])


def refused(request: FetchRequest) -> FetchResponse:
    return answered(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Leader:
    """A leader with an outcome for each attempt to reach it, and an answer for each fetch."""

    def __init__(self, attempts: Sequence[OSError | None], answers: Sequence[Answer]) -> None:
        self._attempts = iter(attempts)
        self._answers: Iterator[Answer] = iter(answers)
        self.asked: list[int] = []
        """Partitions of each fetch."""
        self.is_done = asyncio.Event()

    async def connect(self, leader: Endpoint, **_: object) -> LeaderConnection:
        if (failure := next(self._attempts, None)) is not None:
            raise failure
        return cast("LeaderConnection", self)

    async def fetch(self, request: FetchRequest, _timeout_s: float) -> FetchResponse:
        answer = next(self._answers, None)
        if answer is None:
            self.is_done.set()
            await asyncio.Event().wait()
            raise AssertionError("nothing sets that event")
        self.asked.append(sum(len(each.partitions) for each in request.topics))
        return answer(request)

    def close(self) -> None:
        """Nothing is open."""


async def followed(leader: Leader, partitions: int) -> None:
    """Follow a leader until it has given all its answers."""
    world = World(clock=Clock())
    state = partition(leader=int(OTHER), replicas=(ME, OTHER), isr=(int(OTHER),))
    states = tuple(replace(state, partition=number) for number in range(partitions))
    world.show(replace(topic(), partitions=states))
    world.change(brokers_changed=(LEADER,))
    manager = ReplicationManager(world.parts.replication.manager._parts, leader.connect)
    for hosted in world.table.by_name.values():
        manager.apply(hosted)
    stop = asyncio.Event()
    async with asyncio.timeout(GIVEN_UP_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run(stop))
        await leader.is_done.wait()
        stop.set()


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(record.getMessage().startswith(words) for record in caplog.records)


def test_a_leader_that_stays_away_is_logged_once_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        attempts = [ConnectionRefusedError("refused")] * 3
        await followed(Leader(attempts, [answered]), 1)

    asyncio.run(main())
    assert (said(caplog, "leader not reachable"), said(caplog, "leader reachable again")) == (1, 1)


def test_partitions_that_are_refused_together_are_asked_for_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    asked: list[int] = []

    async def main() -> None:
        leader = Leader([], [refused, answered])
        await followed(leader, PARTITIONS)
        asked.extend(leader.asked)

    asyncio.run(main())
    assert asked == [PARTITIONS, PARTITIONS]
    assert said(caplog, "partitions not followed") == 1
    assert said(caplog, "partition not followed") == 0


def test_a_directory_that_fills_up_does_not_hold_up_what_is_followed_in_others() -> None:
    async def main() -> None:
        world = World(clock=Clock())
        state = partition(leader=int(OTHER), replicas=(ME, OTHER), isr=(int(OTHER),))
        world.show(replace(topic(configs={"flush": "group"}), partitions=(state,)))
        world.change(brokers_changed=(LEADER,))
        hosted, leader = world.hosted(), Leader([], [])
        manager = ReplicationManager(world.parts.replication.manager._parts, leader.connect)
        manager.apply(hosted)
        hosted.partition.bounds.log_end += 1  # and not on disk yet
        stop = asyncio.Event()
        async with asyncio.timeout(GIVEN_UP_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(manager.run(stop))
            for _ in range(100):  # it has nothing else to do than to wait for the disk
                await asyncio.sleep(0)
            assert not leader.is_done.is_set()
            hosted.manager.fence(DiskFullError("log", "full"))
            await leader.is_done.wait()
            stop.set()

    asyncio.run(main())


def diverged(end: int) -> Answer:
    """The leader's log differs from the follower's from ``end`` on."""

    def answer(request: FetchRequest) -> FetchResponse:
        answer = answered(request)
        (fetched,) = answer.topics[0].partitions
        result = fetched.result._replace(diverging_epoch=(0, end))
        topics = [answer.topics[0]._replace(partitions=[fetched._replace(result=result)])]
        return answer._replace(topics=topics)

    return answer


@pytest.mark.parametrize("epoch_changes", [False, True])
def test_a_long_truncation_is_prepared_in_a_thread(
    epoch_changes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the loop runs, and the answer is void once the partition has another epoch."""
    monkeypatch.setattr("broker.storage.producer_replay.WALKED_AT_ONCE_BYTES", 0)

    async def main() -> None:
        world = World(clock=Clock())
        world.show(topic())
        for _ in range(5):
            world.append()
        hosted = world.hosted()

        def show_follower(epoch: int) -> None:
            state = partition(
                leader=int(OTHER), replicas=(ME, OTHER), isr=(int(OTHER),), epoch=epoch
            )
            world.show(replace(topic(), partitions=(state,)))

        show_follower(1)
        world.change(brokers_changed=(LEADER,))

        async def prepare(*cut: object) -> object:
            replay = await prepare_cut(*cut)  # type: ignore[arg-type]
            assert replay is not None
            assert replay.is_done
            if epoch_changes:
                show_follower(2)
            return replay

        monkeypatch.setattr("broker.shell.replication.fetcher.prepare_cut", prepare)
        leader = Leader([], [diverged(3), answered])
        manager = ReplicationManager(world.parts.replication.manager._parts, leader.connect)
        manager.apply(hosted)
        stop = asyncio.Event()
        async with asyncio.timeout(GIVEN_UP_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(manager.run(stop))
            await leader.is_done.wait()
            stop.set()
        assert hosted.log.log_end == hosted.partition.log_end == (5 if epoch_changes else 3)

    asyncio.run(main())
