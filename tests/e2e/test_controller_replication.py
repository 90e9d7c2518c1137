"""ISR proposals, elections, moves of replicas and fencing, at real controllers on ZooKeeper."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from e2e.controllers import (
    WAIT_S,
    Client,
    ControllerProcess,
    FakeBroker,
    client_of,
    controllers,
    feed_of,
    until,
)
from e2e.zookeeper import RunningZookeeper, running_zookeeper
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId
from tidemark.model.metadata import PartitionImage
from tidemark.runtime import zk_paths
from tidemark.runtime.channel import open_channel
from tidemark_wire.v1 import controller_pb2 as pb
from tidemark_wire.v1 import controller_pb2_grpc
from waiting import PATIENCE_MS

pytestmark = pytest.mark.e2e

LEASE_MS = 1_000
FENCE_MS = 200
QUICK = ("--lease.ms", str(LEASE_MS), "--feed.lost.fence.ms", str(FENCE_MS))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningZookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def connect(zookeeper: RunningZookeeper, request: pytest.FixtureRequest) -> str:
    """A chroot for each test."""
    return f"{zookeeper.connect}/{request.node.name}"


class World:
    """Three registered brokers, the topic ``a`` with one partition on all of them."""

    def __init__(self, client: Client, brokers: dict[int, FakeBroker]) -> None:
        self.client = client
        self.brokers = brokers

    @property
    def state(self) -> PartitionImage:
        """Of the partition, as the feed last said."""
        return self.client.image.topics["a"].partitions[0]

    async def sees(self, shown: Callable[[PartitionImage], bool]) -> None:
        """Wait until the feed shows the partition so."""
        await self.client.sees(lambda image: shown(image.topics["a"].partitions[0]))

    def request(self, *isr: int, by: int | None = None) -> pb.AlterPartitionsRequest:
        """The leader's proposal, or another broker's."""
        members = [self.brokers[number] for number in isr]
        topic_id = self.client.image.topics["a"].topic_id
        return self.brokers[by or self.state.leader].alteration(self.state, topic_id, members)

    async def propose(self, request: pb.AlterPartitionsRequest) -> int:
        """The answer's error: the call's own, or that of its one partition."""
        answer = await self.client.controller.alter_partitions(request, WAIT_S)
        return answer.error_code or answer.partitions[0].error_code

    @property
    def followers(self) -> list[int]:
        """Who does not lead, in replica order."""
        return [number for number in self.state.replicas if number != self.state.leader]


def with_world(connect: str, use: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with client_of(connect) as client:
            brokers = {number: await client.broker(number) for number in (1, 2, 3)}
            assert (await client.create("a", 1, 3)).error_code == 0
            await use(World(client, brokers))

    asyncio.run(run())


def test_a_leaders_proposals_change_the_isr_and_others_are_refused(
    connect: str, tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        leader, (one, other) = world.state.leader, world.followers
        stale = world.request(leader)
        assert await world.propose(world.request(leader, one)) == ErrorCode.NONE
        await world.sees(lambda state: set(state.isr) == {leader, one})
        assert await world.propose(stale) == ErrorCode.INVALID_UPDATE_VERSION
        old_member = world.request(leader, one, other)
        old_member.partitions[0].new_isr[2].broker_epoch -= 1
        assert await world.propose(old_member) == ErrorCode.INELIGIBLE_REPLICA
        assert await world.propose(world.request(one, other, by=one)) != ErrorCode.NONE
        assert await world.propose(world.request(leader, one, other)) == ErrorCode.NONE
        await world.sees(lambda state: len(state.isr) == 3)

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)


CHANGES = 20


def has_epoch(partition_epoch: int, state: PartitionImage) -> bool:
    return state.partition_epoch == partition_epoch


@pytest.mark.feature("G17", "H07")
def test_what_the_feed_shows_is_in_zookeeper_already(connect: str, tmp_path: Path) -> None:
    async def is_written(world: World) -> bool:
        shown = world.state
        path = zk_paths.partition(world.client.image.topics["a"].topic_id, 0)
        data, _ = await world.client.session.get(path)
        content = zk_paths.decode(path, data)
        names = ("leader", "leader_epoch", "partition_epoch")
        shown_numbers = [getattr(shown, name) for name in names]
        return [content[name] for name in names] == shown_numbers and shown.isr == tuple(
            content["isr"]
        )

    async def use(world: World) -> None:
        leader, (one, other) = world.state.leader, world.followers
        for number in range(CHANGES):
            proposal = world.request(leader, one, *([other] if number % 2 else []))
            following = world.state.partition_epoch + 1
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(world.propose(proposal))
                await world.sees(partial(has_epoch, following))
                assert await is_written(world)
            assert answer.result() == ErrorCode.NONE
        await world.brokers[leader].session.stop()
        await world.sees(lambda state: state.leader == one)
        assert await is_written(world)

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)


@pytest.mark.feature("H09", "H10")
def test_a_preferred_replica_gets_its_partition_back_by_itself(
    connect: str, tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        preferred = world.state.leader
        assert world.state.replicas[0] == preferred
        await world.brokers[preferred].session.stop()
        await world.sees(lambda state: state.leader not in (preferred, NO_BROKER))
        stand_in = world.state.leader
        world.brokers[preferred] = await world.client.broker(preferred)
        async with feed_of(connect, world.brokers[stand_in]):
            members = [stand_in, *(n for n in world.brokers if n != stand_in)]
            assert await world.propose(world.request(*members)) == ErrorCode.NONE
            await world.sees(lambda state: state.leader == preferred)

    often = ("--leader.imbalance.check.interval.seconds", "1")
    with controllers(1, connect, tmp_path, *QUICK, *often):
        with_world(connect, use)


def test_a_standby_refuses_a_proposal_and_says_who_decides(connect: str, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        channel = open_channel(pair[1].grpc)
        stub = controller_pb2_grpc.ControllerStub(channel)
        await until(lambda: pair[1].is_ready)
        answer = await stub.AlterPartitions(world.request(world.state.leader), timeout=WAIT_S)
        await channel.close(None)
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert answer.controller_hint == pair[0].grpc

    with controllers(2, connect, tmp_path, *QUICK) as pair:
        with_world(connect, use)


def logged_at(process: ControllerProcess, message: str) -> float:
    """When it was first logged, in seconds."""
    lines = map(json.loads, process.log().splitlines())
    first = next(line for line in lines if line["message"] == message)
    return datetime.fromisoformat(first["ts"]).timestamp()


def test_a_killed_controllers_successor_knows_the_isr_and_counts_the_lease_anew(
    connect: str, tmp_path: Path
) -> None:
    async def use(world: World) -> None:
        leader, one = world.state.leader, world.followers[0]
        assert await world.propose(world.request(leader, one)) == ErrorCode.NONE
        await world.sees(lambda state: set(state.isr) == {leader, one})
        await until(lambda: pair[1].is_ready)
        pair[0].kill()
        await world.brokers[leader].session.stop()
        await world.client.sees(lambda image: image.position.controller_epoch == 2)
        shown: list[PartitionImage] = []

        def is_replaced(state: PartitionImage) -> bool:
            shown.append(state)
            return state.leader == one

        await world.sees(is_replaced)
        # On a busy machine the feed shows nothing of the time before the election.
        kept = [set(state.isr) for state in shown if state.leader == leader]
        assert all(isr == {leader, one} for isr in kept)
        loaded_at, led_at = (
            logged_at(pair[1], "state loaded"),
            logged_at(pair[1], "leaders elected"),
        )
        assert led_at - loaded_at >= 0.99 * LEASE_MS / 1000

    with controllers(2, connect, tmp_path, *QUICK) as pair:
        with_world(connect, use)


async def elect_preferred(world: World) -> int:
    asked = pb.ElectLeadersRequest.Partition(topic="a", partition=0)
    request = pb.ElectLeadersRequest(partitions=[asked], timeout_ms=PATIENCE_MS)
    answer = await world.client.controller.call("ElectLeaders", request, WAIT_S)
    return int(answer.error_code or answer.partitions[0].error_code)


def test_the_preferred_leader_is_elected_when_asked_for(connect: str, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        preferred = world.state.leader
        assert await elect_preferred(world) == ErrorCode.ELECTION_NOT_NEEDED
        await world.brokers[preferred].session.stop()
        await world.sees(lambda state: state.leader not in (preferred, NO_BROKER))
        back = world.brokers[preferred] = await world.client.broker(preferred)
        stand_in = world.state.leader
        async with feed_of(connect, world.brokers[stand_in]):
            members = [stand_in, *(n for n in world.brokers if n != stand_in)]
            assert await world.propose(world.request(*members)) == ErrorCode.NONE
            await world.sees(lambda state: back.number in state.isr)
            assert await elect_preferred(world) == ErrorCode.NONE
            await world.sees(lambda state: state.leader == preferred)

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)


def test_replicas_move_to_another_broker(connect: str, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        new = world.brokers[4] = await world.client.broker(4)
        leader, (kept, left) = world.state.leader, world.followers
        move = pb.AlterReassignmentsRequest.Partition(
            topic="a", partition=0, replicas=[leader, kept, new.number]
        )
        request = pb.AlterReassignmentsRequest(partitions=[move], timeout_ms=PATIENCE_MS)
        answer = await world.client.controller.call("AlterReassignments", request, WAIT_S)
        assert (answer.error_code, answer.partitions[0].error_code) == (0, 0), answer
        await world.sees(lambda state: state.adding == (4,) and state.removing == (left,))
        assert await world.propose(world.request(leader, kept, left, 4)) == ErrorCode.NONE
        await world.sees(lambda state: not state.is_reassigning)
        assert set(world.state.replicas) == set(world.state.isr) == {leader, kept, 4}

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)


def test_a_broken_stream_fences_its_broker_and_its_leader_is_replaced_after_the_lease(
    connect: str, tmp_path: Path
) -> None:
    """While another broker listens: one that hears of nobody is cut off itself, and fences none."""

    async def use(world: World) -> None:
        leader = world.state.leader
        broker_id, other = world.state.replicas[0], world.state.replicas[1]
        async with feed_of(connect, world.brokers[other]) as listening:
            assert await listening.metadata.wait_for(world.client.image.position, WAIT_S)
            async with feed_of(connect, world.brokers[leader]) as follower:
                assert await follower.metadata.wait_for(world.client.image.position, WAIT_S)
            broken_at = time.monotonic()
            await world.client.sees(lambda image: image.brokers[broker_id].fenced)
            assert time.monotonic() - broken_at > FENCE_MS / 1000 * 0.9
            await world.sees(lambda state: state.leader not in (leader, NO_BROKER))
            assert time.monotonic() - broken_at > LEASE_MS / 1000
            assert world.brokers[leader].session.session_id != 0

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)


def test_a_stopping_broker_leads_nothing_after_it_asked(connect: str, tmp_path: Path) -> None:
    async def use(world: World) -> None:
        leader = world.brokers[world.state.leader]
        controller = world.client.controller
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(feed_of(connect, leader))
            led, deadline = -1, time.monotonic() + WAIT_S
            while led != 0 and time.monotonic() < deadline:
                answer = await controller.controlled_shutdown(
                    BrokerId(leader.number), BrokerEpoch(leader.broker_epoch), WAIT_S
                )
                assert answer.error_code == 0, answer
                led = answer.partitions_led
            assert led == 0
            await world.sees(lambda state: state.leader not in (leader.number, NO_BROKER))

    with controllers(1, connect, tmp_path, *QUICK):
        with_world(connect, use)
