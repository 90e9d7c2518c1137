"""A coordinator's session: against a scripted controller and a simulated ZooKeeper."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from sim.dice import Dice
from sim.zk_adapter import SimZkSession
from sim.zookeeper import SimZooKeeper
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ControllerEpoch, ControllerId
from tidemark.model.metadata import (
    TXN,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
    FeedPosition,
    ShardOwner,
)
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime import zk_paths
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.coordinator_session import CoordinatorSession
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metadata_wire import delta_update, snapshot_update, write_position
from tidemark.runtime.producer_ids import ProducerIdBlock
from tidemark.runtime.service import ServiceError
from tidemark_wire.v1 import controller_pb2 as pb
from unit.tidemark.runtime.scripted_controller import ScriptedController, serving
from waiting import PATIENCE_MS, until

ME, ENDPOINT, EPOCH = b"incarnation-one!", "127.0.0.1:19190", 77
LIVE = zk_paths.LiveCoordinator(TXN, 1, ME)
FIRST = FeedPosition(ControllerEpoch(1), 3)


Asked = TypeVar("Asked")


class LoopSchedule:
    """The simulator's schedule, on a real loop."""

    @property
    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1_000, action)


class Rig:
    """One coordinator's session and all that it talks to."""

    def __init__(self, controller: ScriptedController) -> None:
        self.controller = controller
        self.zookeeper = SimZooKeeper(LoopSchedule(), Dice(7), link=lambda _, __: 0, tick_ms=20)
        self._sim = self.zookeeper.connect("coordinator", timeout_ms=PATIENCE_MS)
        self.zk = SimZkSession(self._sim)
        self.heard: list[FeedPosition] = []
        self.news = asyncio.Event()
        self.metadata = MetadataCache(then=("test",))
        self.metadata.subscribe("test", Kind.POSITION, self.on_image)
        self.client = ControllerClient(endpoints=[controller.endpoint])
        self.session = CoordinatorSession(
            self.zk,
            self.client,
            kind=TXN,
            coordinator_id=1,
            grpc_endpoint=ENDPOINT,
            incarnation_id=ME,
        )

    def on_image(self, change: MetadataChange) -> None:
        self.heard.append(change.image.position)
        self.news.set()

    def expire(self) -> None:
        """The ZooKeeper session ends."""
        self.zookeeper.expire(self._sim.session_id)

    def asked(self, kind: type[Asked]) -> list[Asked]:
        """The requests of one kind so far."""
        return [one for one in self.controller.asked if isinstance(one, kind)]

    async def until(self, is_so: Callable[[], bool]) -> None:
        await until(is_so)

    def is_live(self) -> bool:
        return LIVE.path in self.zookeeper.tree.znodes

    async def registered(self, times: int) -> None:
        """So many registrations were asked for, and the last one is known here."""
        await self.until(lambda: len(self.asked(pb.RegisterCoordinatorRequest)) >= times)
        await self.until(lambda: self.session.is_registered)


def snapshot(*owners: ShardOwner, incarnation_id: bytes = ME) -> pb.MetadataUpdate:
    one = CoordinatorImage(TXN, 1, incarnation_id, ENDPOINT, EPOCH)
    image = ClusterImage(position=FIRST, coordinators={one.key: one}, shards={TXN: owners})
    return snapshot_update(image)


def taken() -> pb.RegisterCoordinatorResponse:
    return pb.RegisterCoordinatorResponse(coordinator_epoch=EPOCH, cluster_id="tide")


@asynccontextmanager
async def rig(*answers: pb.RegisterCoordinatorResponse) -> AsyncIterator[Rig]:
    async with serving() as controller:
        controller.answers["RegisterCoordinator"] = list(answers or (taken(),))
        controller.feed = [[snapshot(ShardOwner(0, 1, 4), ShardOwner(1, 2, 1))]]
        made = Rig(controller)
        await made.zk.start()
        try:
            yield made
        finally:
            await made.client.close()
            await made.zk.stop()
            made.zookeeper.stop()


def member(use: Callable[[Rig], Awaitable[None]], *answers: pb.RegisterCoordinatorResponse) -> None:
    """``use`` while the session runs."""

    async def main() -> None:
        async with rig(*answers) as made, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(made.session.run(made.metadata))
            try:
                await use(made)
            finally:
                running.cancel()

    asyncio.run(main())


def test_a_member_has_a_znode_a_registration_and_the_feed() -> None:
    async def use(made: Rig) -> None:
        assert made.session.problem() == "not registered with the controller yet"
        await made.until(lambda: made.session.problem() is None)
        assert made.is_live()
        (register,) = made.asked(pb.RegisterCoordinatorRequest)
        (watch,) = made.asked(pb.WatchMetadataRequest)
        assert (register.kind, register.coordinator_id) == (TXN, 1)
        assert (register.incarnation_id, register.grpc_endpoint) == (ME, ENDPOINT)
        assert watch.broker_epoch == EPOCH
        assert (made.heard, made.session.cluster_id) == ([FIRST], "tide")

    member(use)


def test_the_shards_of_this_incarnation_are_known_from_the_feed() -> None:
    async def use(made: Rig) -> None:
        assert made.session.owned_shards() == frozenset()
        await made.news.wait()
        assert made.session.owned_shards() == {0}

    member(use)


def test_the_shards_of_an_earlier_incarnation_are_not_ours() -> None:
    async def use(made: Rig) -> None:
        made.controller.feed = [[snapshot(ShardOwner(0, 1, 4), incarnation_id=b"before")]]
        await made.news.wait()
        assert made.session.owned_shards() == frozenset()
        assert "does not show" in str(made.session.problem())

    member(use)


def test_a_shard_is_acquired_under_the_epoch_that_the_controller_gives() -> None:
    async def use(made: Rig) -> None:
        made.controller.answers["AcquireShard"] = [
            pb.AcquireShardResponse(owner_epoch=9),
            pb.AcquireShardResponse(error_code=ErrorCode.NOT_COORDINATOR, error_message="2 has it"),
        ]
        assert await made.session.acquire(3) == 9
        (asked,) = made.asked(pb.AcquireShardRequest)
        assert (asked.kind, asked.shard, asked.coordinator_id) == (TXN, 3, 1)
        assert asked.incarnation_id == ME
        with pytest.raises(TidemarkError, match="2 has it") as refused:
            await made.session.acquire(3)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    member(use)


def test_a_shard_is_acquired_once_the_feed_has_shown_it() -> None:
    later = FIRST._replace(version=FIRST.version + 1)

    async def use(made: Rig) -> None:
        made.controller.answers["AcquireShard"] = [
            pb.AcquireShardResponse(owner_epoch=9, position=write_position(later))
        ]
        made.controller.at_last = [delta_update(ClusterDelta(), later, ControllerId(1))]
        await made.news.wait()
        async with asyncio.TaskGroup() as tasks:
            acquiring = tasks.create_task(made.session.acquire(0))
            await asyncio.wait((acquiring,), timeout=0.2)
            assert not acquiring.done()
            made.controller.release.set()
        assert (acquiring.result(), made.heard) == (9, [FIRST, later])

    member(use)


def test_producer_ids_are_asked_for_as_a_coordinator() -> None:
    async def use(made: Rig) -> None:
        made.controller.answers["AllocateProducerIds"] = [
            pb.AllocateProducerIdsResponse(first_producer_id=2_000, count=1_000)
        ]
        assert await made.session.allocate_producer_ids() == ProducerIdBlock(2_000, 1_000)
        (asked,) = made.asked(pb.AllocateProducerIdsRequest)
        assert (asked.coordinator_kind, asked.coordinator_id, asked.incarnation_id) == (TXN, 1, ME)

    member(use)


def test_who_was_fenced_joins_again() -> None:
    async def use(made: Rig) -> None:
        await made.registered(1)
        await made.zk.delete(LIVE.path)
        await made.registered(2)
        assert made.is_live()

    member(use)


def test_a_new_zookeeper_session_means_a_new_registration() -> None:
    async def use(made: Rig) -> None:
        await made.registered(1)
        made.expire()
        await made.registered(2)
        assert made.is_live()

    member(use)


def test_a_registration_that_is_stale_is_made_anew() -> None:
    async def use(made: Rig) -> None:
        stale = pb.MetadataUpdate(error_code=ErrorCode.STALE_BROKER_EPOCH)
        delta = delta_update(ClusterDelta(), FIRST._replace(version=4), ControllerId(1))
        made.controller.feed = [[snapshot(), delta, stale], [snapshot()]]
        await made.registered(2)

    member(use)


def test_a_registration_without_a_znode_begins_with_a_new_znode() -> None:
    async def use(made: Rig) -> None:
        await made.registered(2)
        assert made.is_live()

    gone = pb.RegisterCoordinatorResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    member(use, gone, taken())


def test_another_live_incarnation_is_waited_for() -> None:
    async def use(made: Rig) -> None:
        await made.registered(2)

    other = pb.RegisterCoordinatorResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    member(use, other, taken())


def test_who_may_not_join_ends_with_a_reason() -> None:
    async def main() -> None:
        refused = pb.RegisterCoordinatorResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message="another cluster"
        )
        async with rig(refused) as made:
            with pytest.RaisesGroup(ServiceError, flatten_subgroups=True):
                await made.session.run(made.metadata)

    asyncio.run(main())


@pytest.mark.parametrize(("endpoint", "stays"), [(ENDPOINT, False), ("elsewhere:1", True)])
def test_a_predecessor_at_our_own_address_is_dead(endpoint: str, stays: bool) -> None:
    async def main() -> None:
        async with rig() as made, asyncio.TaskGroup() as tasks:
            old = zk_paths.LiveCoordinator(TXN, 1, b"an earlier one")
            await made.zk.ensure_path(zk_paths.live_coordinators(TXN))
            await made.zk.create(old.path, zk_paths.encode({"grpc_endpoint": endpoint}))
            running = tasks.create_task(made.session.run(made.metadata))
            await made.registered(1)
            assert (old.path in made.zookeeper.tree.znodes) is stays
            running.cancel()

    asyncio.run(main())
