import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from manual_clock import ManualClock
from tidemark.model.backoff import Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_queue import MarkerLimits
from txn_coordinator.core.requests import MarkersWritten
from txn_coordinator.shell.marker_sender import MarkerSender
from unit.txn_coordinator.shell.marker_brokers import MarkerBroker, image_of, marker_brokers
from waiting import PATIENCE_MS, patience

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SHARD = 3
OWNER_EPOCH = 9


def ending(name: str, *partitions: TopicPartition, commit: bool = True) -> SendMarkers:
    return SendMarkers(name, 70, 5, 1_000, commit, partitions, 2)


class Notes:
    """Listener that keeps all results."""

    def __init__(self) -> None:
        self.written: list[tuple[int, MarkersWritten]] = []
        self.fences: list[tuple[int, int]] = []
        self.changed = asyncio.Event()

    def submit(self, shard: int, request: MarkersWritten) -> None:
        self.written.append((shard, request))
        self.changed.set()

    def fenced(self, shard: int, owner_epoch: int) -> None:
        self.fences.append((shard, owner_epoch))
        self.changed.set()

    async def come(self, count: int = 1) -> None:
        while len(self.written) + len(self.fences) < count:
            self.changed.clear()
            await self.changed.wait()

    @property
    def names(self) -> list[str]:
        return [report.transactional_id for _, report in self.written]


class World:
    """Two brokers; topic a is led by 1 and 2, topic b by 1."""

    def __init__(
        self,
        made: list[MarkerBroker],
        channels: ChannelPool,
        *,
        targets_max: int = 100,
        patience_ms: int = PATIENCE_MS,
        request_timeout_ms: int = PATIENCE_MS,
    ) -> None:
        self.brokers = made
        self.clock = ManualClock()
        self.metadata = MetadataCache()
        self.version = 0
        self.lead({"a": (1, 2), "b": (1,)})
        self.notes = Notes()
        self.seconds: list[float] = []
        self.sender = MarkerSender(
            self.metadata,
            channels,
            self.clock,
            self.notes,
            limits=MarkerLimits(
                targets_per_request_max=targets_max,
                requests_in_flight_max=2,
                patience_ms=patience_ms,
                backoff=Backoff(1, 10),
            ),
            request_timeout_ms=request_timeout_ms,
            observe_s=self.seconds.append,
        )

    def lead(self, leaders: Mapping[str, Sequence[int]]) -> None:
        self.version += 1
        self.metadata.take(image_of(self.version, self.brokers, leaders))

    def send(self, *effects: SendMarkers) -> None:
        for effect in effects:
            self.sender.send(SHARD, OWNER_EPOCH, effect)

    async def tick(self) -> None:
        """Let back-offs end: the clock moves only here, and a parked marker waits in real time."""
        self.clock.advance(20)
        await asyncio.sleep(0.02)


@asynccontextmanager
async def world(**limits: int) -> AsyncIterator[World]:
    channels = ChannelPool()
    async with marker_brokers(2) as made:
        here = World(made, channels, **limits)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(here.sender.run())
            yield here
            running.cancel()
        await channels.close()


def run(scenario: Callable[[World], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        async with world(**limits) as here, patience():
            await scenario(here)

    asyncio.run(main())


def test_a_marker_has_producer_partitions_and_outcome() -> None:
    async def scenario(here: World) -> None:
        here.send(ending("t", B0, commit=False))
        await here.notes.come()
        (marker,) = here.brokers[0].requests[0].markers
        assert (marker.producer_id, marker.producer_epoch, marker.commit) == (70, 5, False)
        assert (marker.coordinator_epoch, marker.transaction_version) == (OWNER_EPOCH, 2)
        assert marker.targets[0].topic_id == b"b".ljust(16, b".")

    run(scenario)


def test_each_partition_goes_to_its_leader_and_one_report_comes_back() -> None:
    async def scenario(here: World) -> None:
        here.send(ending("t", A0, A1, B0))
        await here.notes.come()
        assert [broker.targets() for broker in here.brokers] == [[["a-0", "b-0"]], [["a-1"]]]
        report = MarkersWritten("t", 70, 5, 1_000, (A0, A1, B0))
        assert here.notes.written == [(SHARD, report)]

    run(scenario)


def test_markers_queued_during_a_request_are_sent_together() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.gate.clear()
        here.send(ending("first", A0))
        await first.was_asked.wait()
        here.send(*(ending(f"t{number}", B0) for number in range(20)))
        await asyncio.sleep(0.01)
        assert len(first.requests) == 1
        first.gate.set()
        await here.notes.come(21)
        assert [len(request.markers) for request in first.requests] == [1, 20]

    run(scenario)


def test_brokers_do_not_wait_for_one_another() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].gate.clear()
        here.send(ending("slow", A0), ending("quick", A1))
        await here.notes.come()
        assert here.notes.names == ["quick"]
        here.brokers[0].gate.set()
        await here.notes.come(2)

    run(scenario)


def test_an_answer_that_waits_for_replicas_does_not_hold_up_the_others_for_long() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.gate.clear()
        here.send(ending("lagging", A0))
        await first.was_asked.wait()
        first.gate = asyncio.Event()  # of the requests that follow
        first.gate.set()
        here.send(ending("in sync", B0))
        while not here.notes.written:
            await here.tick()
        assert here.notes.names == ["in sync"]

    run(scenario, patience_ms=20)


def test_no_more_requests_wait_for_replicas_than_the_bound() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.gate.clear()
        for count, name in enumerate(("t", "u"), 1):
            here.send(ending(name, A0))
            while len(first.requests) < count:
                await here.tick()
        here.send(ending("v", A0))
        await here.tick()
        await here.tick()
        assert len(first.requests) == 2
        first.gate.set()
        await here.notes.come(3)

    run(scenario, patience_ms=20)


def test_a_request_holds_no_more_than_its_bound() -> None:
    async def scenario(here: World) -> None:
        here.lead({"a": (1,) * 7})
        here.send(ending("t", *(TopicPartition("a", number) for number in range(7))))
        await here.notes.come()
        assert [len(targets) for targets in here.brokers[0].targets()] == [3, 3, 1]

    run(scenario, targets_max=3)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_only_failed_markers_are_sent_again(code: ErrorCode) -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = {B0: [code, code]}
        here.send(ending("t", A0, B0))
        while not here.notes.written:
            await here.tick()
        assert here.brokers[0].targets() == [["a-0", "b-0"], ["b-0"], ["b-0"]]

    run(scenario)


def test_a_marker_follows_its_leader() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = {A0: [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 99}
        here.send(ending("t", A0))
        await here.brokers[0].was_asked.wait()
        here.lead({"a": (2, 2)})
        while not here.notes.written:
            await here.tick()
        assert here.brokers[1].targets() == [["a-0"]]

    run(scenario)


def test_markers_queued_behind_a_request_follow_their_leader_too() -> None:
    async def scenario(here: World) -> None:
        first, second = here.brokers
        first.gate.clear()
        here.send(ending("under way", B0))
        await first.was_asked.wait()
        here.send(ending("waiting", A0))
        here.lead({"a": (2, 2), "b": (1,)})
        first.gate.set()
        await here.notes.come(2)
        assert (first.targets(), second.targets()) == ([["b-0"]], [["a-0"]])

    run(scenario)


def test_a_broker_that_does_not_answer_is_left_once_it_leads_no_longer() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].gate.clear()
        here.send(ending("t", A0, B0))
        await here.brokers[0].was_asked.wait()
        here.lead({"a": (2, 2), "b": (1,)})
        await asyncio.sleep(0.01)
        assert here.brokers[1].requests == []  # it still leads a part of what it was asked
        here.lead({"a": (2, 2), "b": (2,)})
        while not here.notes.written:
            await here.tick()
        assert here.brokers[1].targets() == [["a-0", "b-0"]]

    run(scenario)


def test_without_a_leader_a_marker_waits_for_one() -> None:
    async def scenario(here: World) -> None:
        here.lead({"a": (-1, 2)})
        here.send(ending("t", A0))
        assert here.sender.parked_count == 1
        here.lead({"a": (2, 2)})
        await here.notes.come()
        assert here.brokers[1].targets() == [["a-0"]]

    run(scenario)


def test_a_broker_that_is_not_reached_is_tried_again() -> None:
    async def scenario(here: World) -> None:
        endpoint, here.brokers[0].endpoint = here.brokers[0].endpoint, "127.0.0.1:1"
        here.lead({"a": (1, 2)})
        here.send(ending("t", A0))
        await here.tick()
        here.brokers[0].endpoint = endpoint
        here.lead({"a": (1, 2)})
        while not here.notes.written:
            await here.tick()
        assert here.brokers[0].targets() == [["a-0"]]

    run(scenario)


def test_a_partition_that_the_metadata_do_not_show_is_gone_and_counts_as_written() -> None:
    async def scenario(here: World) -> None:
        here.lead({"b": (1,)})
        here.send(ending("t", A0, B0))
        await here.notes.come()
        assert here.brokers[0].targets() == [["b-0"]]

    run(scenario)


def test_a_partition_that_is_past_the_epoch_needs_no_marker() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].refusals = {A0: [ErrorCode.INVALID_PRODUCER_EPOCH]}
        here.send(ending("t", A0))
        await here.notes.come()
        assert here.notes.names == ["t"]

    run(scenario)


@pytest.mark.parametrize(("has_streams", "streams"), [(True, 1), (False, 0)])
def test_requests_to_a_broker_share_a_stream_if_it_has_streams(
    has_streams: bool, streams: int
) -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.has_streams = has_streams
        for count in (1, 2, 3):
            here.send(ending(f"t{count}", B0))
            await here.notes.come(count)
        assert (len(first.requests), first.streams) == (3, streams)

    run(scenario)


@pytest.mark.parametrize("has_streams", [True, False])
def test_a_broker_that_does_not_answer_in_time_is_asked_again(has_streams: bool) -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.has_streams = has_streams
        first.gate.clear()
        here.send(ending("t", B0))
        while len(first.requests) < 2:
            await here.tick()
        first.gate.set()
        while not here.notes.written:
            await here.tick()
        assert here.notes.names == ["t"]

    run(scenario, request_timeout_ms=50)


def test_a_fenced_owner_stops_all_of_its_shard() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.refusals = {A0: [ErrorCode.TRANSACTION_COORDINATOR_FENCED]}
        here.lead({"a": (1, -1)})
        here.send(ending("t", A0), ending("u", A1))
        await here.notes.come()
        assert here.notes.fences == [(SHARD, OWNER_EPOCH)]
        assert here.sender.ending_count == 0
        here.lead({"a": (1, 2)})
        await here.tick()
        assert here.brokers[1].requests == []

    run(scenario)


def test_a_forgotten_shard_has_no_requests_and_no_results() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.gate.clear()
        here.send(ending("under way", A0), ending("waiting", B0))
        await first.was_asked.wait()
        here.sender.forget(SHARD)
        first.gate.set()
        here.sender.send(SHARD + 1, 1, ending("another shard's", B0))
        await here.notes.come()
        assert here.notes.names == ["another shard's"]

    run(scenario)


def test_a_shard_is_forgotten_after_the_stop_under_metadata_that_came_with_it() -> None:
    async def main() -> None:
        async with world() as here, patience():
            here.brokers[0].gate.clear()
            here.send(ending("under way", A0))
            await here.brokers[0].was_asked.wait()
        here.lead({"a": (2, 2)})
        here.sender.forget(SHARD)
        assert here.sender.ending_count == 0

    asyncio.run(main())


def test_markers_under_way_are_not_sent_twice() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].gate.clear()
        here.send(ending("t", A0), ending("t", A0))
        assert here.sender.ending_count == 1
        here.brokers[0].gate.set()
        await here.notes.come()
        assert here.brokers[0].targets() == [["a-0"]]

    run(scenario)


def test_after_a_reload_markers_go_out_under_the_new_owner_epoch() -> None:
    async def scenario(here: World) -> None:
        first = here.brokers[0]
        first.gate.clear()
        here.send(ending("t", A0))
        await first.was_asked.wait()
        here.sender.send(SHARD, OWNER_EPOCH + 1, ending("t", A0))
        first.gate.set()
        await here.notes.come()
        epochs = [request.markers[0].coordinator_epoch for request in first.requests]
        assert epochs == [OWNER_EPOCH, OWNER_EPOCH + 1]

    run(scenario)


def test_an_ending_without_partitions_is_written_at_once() -> None:
    async def scenario(here: World) -> None:
        here.send(ending("t"))
        assert here.notes.names == ["t"]

    run(scenario)


def test_the_time_to_the_last_marker_is_observed() -> None:
    async def scenario(here: World) -> None:
        here.brokers[0].gate.clear()
        here.send(ending("t", A0))
        here.clock.advance(1_500)
        here.brokers[0].gate.set()
        await here.notes.come()
        assert here.seconds == [1.5]

    run(scenario)
