import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, ControllerEpoch, ControllerId
from tidemark.model.metadata import ClusterDelta, ClusterImage, FeedPosition
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_cache import MetadataCache, let_others_run
from tidemark.runtime.metadata_follower import MetadataFollower
from tidemark.runtime.metadata_wire import delta_update, snapshot_update
from tidemark_wire.v1 import controller_pb2 as pb
from unit.tidemark.runtime.memory_brokers import image_of
from unit.tidemark.runtime.scripted_controller import ScriptedController, serving
from waiting import PATIENCE_S

CONTROLLER = ControllerId(1)


def at(version: int, epoch: int = 1) -> FeedPosition:
    return FeedPosition(ControllerEpoch(epoch), version)


def snapshot(version: int, epoch: int = 1) -> pb.MetadataUpdate:
    return snapshot_update(ClusterImage(position=at(version, epoch), cluster_id="tide"))


def delta(version: int, epoch: int = 1) -> pb.MetadataUpdate:
    return delta_update(ClusterDelta(), at(version, epoch), CONTROLLER)


def follow(
    feed: list[list[pb.MetadataUpdate]],
    use: Callable[[MetadataFollower, ScriptedController], Awaitable[None]],
    broker_epoch: Callable[[], BrokerEpoch] = lambda: BrokerEpoch(-1),
) -> list[FeedPosition]:
    """The positions that the callback heard until ``use`` returned."""
    heard: list[FeedPosition] = []

    async def run() -> None:
        async with serving() as controller, asyncio.TaskGroup() as tasks:
            controller.feed = feed
            client = ControllerClient(endpoints=[controller.endpoint])
            metadata = MetadataCache(then=("test",))
            metadata.subscribe(
                "test", Kind.POSITION, lambda change: heard.append(change.image.position)
            )
            follower = MetadataFollower(
                client, metadata, subscriber="test", broker_epoch=broker_epoch
            )
            running = tasks.create_task(follower.run())
            try:
                await use(follower, controller)
            finally:
                running.cancel()
                await client.close()

    asyncio.run(run())
    return heard


async def reach(follower: MetadataFollower, position: FeedPosition) -> None:
    reached = await follower.metadata.wait_for(position, PATIENCE_S)
    assert reached, f"stuck at {follower.image.position}"


def test_a_snapshot_and_then_deltas_arrive_in_order() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        await reach(follower, at(5))
        assert follower.image.cluster_id == "tide"

    heard = follow([[snapshot(3), delta(4), delta(5)]], use)
    assert heard == [at(3), at(4), at(5)]


def test_what_was_applied_is_acknowledged() -> None:
    async def use(follower: MetadataFollower, controller: ScriptedController) -> None:
        await controller.all_acknowledged.wait()
        assert controller.acknowledged == [3, 4]

    follow([[snapshot(3), delta(4)]], use)


def test_a_heartbeat_is_acknowledged_and_changes_nothing() -> None:
    async def use(follower: MetadataFollower, controller: ScriptedController) -> None:
        await controller.all_acknowledged.wait()
        assert controller.asked[0].answers_heartbeats
        assert controller.acknowledged == [3, 3, 4]

    heartbeat = pb.MetadataUpdate(heartbeat=True)
    assert follow([[snapshot(3), heartbeat, delta(4)]], use) == [at(3), at(4)]


def test_a_long_update_is_no_silence() -> None:
    controller_has: list[int] = []

    async def run() -> None:
        async with serving() as controller, asyncio.TaskGroup() as tasks:
            controller.feed = [[snapshot(3), delta(4)]]
            metadata = MetadataCache(then=("slow",))

            def act(change: MetadataChange) -> Iterator[None]:
                for _ in range(200_000):  # a bound for the steps of a follower that shows nothing
                    if change.image.position != at(4) or len(controller.acknowledged) > 1:
                        return
                    yield

            metadata.subscribe("slow", Kind.POSITION, act)
            client = ControllerClient(endpoints=[controller.endpoint])
            follower = MetadataFollower(client, metadata, subscriber="slow", shown_every_s=0)
            running = tasks.create_task(follower.run())
            await reach(follower, at(4))
            controller_has.extend(controller.acknowledged)
            running.cancel()
            await client.close()

    asyncio.run(run())
    assert controller_has == [3, 3]  # nothing is acknowledged before all have acted on it


def test_a_gap_is_never_applied_but_leads_to_a_new_snapshot() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        await reach(follower, at(9))

    assert follow([[snapshot(3), delta(5)], [snapshot(9)]], use) == [at(3), at(9)]


def test_a_snapshot_whose_reading_was_cancelled_is_taken_when_it_comes_again() -> None:
    async def run() -> FeedPosition:
        follower = MetadataFollower(
            ControllerClient(endpoints=["127.0.0.1:1"]), MetadataCache(), subscriber="test"
        )
        update = snapshot_update(image_of(3, [], leader=-1))
        taking = asyncio.get_running_loop().create_task(follower._take("", update, let_others_run))
        await asyncio.sleep(0)  # a part of it is read
        taking.cancel()
        await asyncio.wait((taking,))
        follower._core.subscribed()
        await follower._take("", update, let_others_run)
        return follower.image.position

    assert asyncio.run(run()).version == 3


def test_an_older_controller_is_not_believed() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        await reach(follower, at(1, epoch=3))

    feed = [[snapshot(3, 2), delta(9, 1)], [snapshot(7, 1)], [snapshot(1, 3)]]
    assert follow(feed, use) == [at(3, 2), at(1, 3)]


def test_a_standby_sends_it_on_and_it_comes_back() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        await reach(follower, at(3))

    standby = pb.MetadataUpdate(error_code=ErrorCode.NOT_CONTROLLER)
    assert follow([[standby], [snapshot(3)]], use) == [at(3)]


def test_a_stale_registration_ends_it() -> None:
    async def use(_: MetadataFollower, __: ScriptedController) -> None:
        await asyncio.Event().wait()

    stale = pb.MetadataUpdate(error_code=ErrorCode.STALE_BROKER_EPOCH)
    with pytest.RaisesGroup(TidemarkError):
        follow([[stale]], use, lambda: BrokerEpoch(5))


def test_a_registration_renewed_meanwhile_is_not_stale() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        await reach(follower, at(3))

    stale = pb.MetadataUpdate(error_code=ErrorCode.STALE_BROKER_EPOCH)
    epochs = iter(range(100))
    follow([[stale], [snapshot(3)]], use, lambda: BrokerEpoch(next(epochs)))


def test_waiting_for_what_does_not_come_ends_in_time() -> None:
    async def use(follower: MetadataFollower, _: ScriptedController) -> None:
        assert not await follower.metadata.wait_for(at(4), 0.05)

    follow([[snapshot(3)]], use)


def test_a_stream_that_is_over_before_it_began_is_begun_again() -> None:
    class Call:
        async def write(self, _: object) -> None:
            raise asyncio.InvalidStateError("RPC already finished.")

        def cancel(self) -> None:
            pass

    class Client(ControllerClient):
        tries = 0

        def stub(self, endpoint: str) -> object:
            self.tries += 1
            made = Call() if self.tries == 1 else super().stub(endpoint).WatchMetadata()
            return type("Stub", (), {"WatchMetadata": staticmethod(lambda: made)})

    async def run() -> None:
        async with serving() as controller, asyncio.TaskGroup() as tasks:
            controller.feed = [[snapshot(1)]]
            client = Client(endpoints=[controller.endpoint])
            follower = MetadataFollower(client, MetadataCache(), subscriber="test")
            running = tasks.create_task(follower.run())
            await reach(follower, at(1))
            assert client.tries == 2
            running.cancel()
            await client.close()

    asyncio.run(run())
