"""The group coordinator's shell: ids of share groups over a real log."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest
from broker.core.groups.requests import OffsetCommit, OffsetToCommit, TopicOffsets
from broker.core.groups.reserved_ids import RESERVATION_MIN_MS
from broker.shell.groups.coordinator import Groups
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.topics import CONSUMER_OFFSETS
from tidemark_wire.v1 import share_pb2 as pb
from unit.broker.shell.broker_worlds import OTHER, World, topic
from waiting import until

ORDERS = TopicId(bytes([1]) * 16)


class LookUp:
    """The share-coordinators: whether they have a group; None if none answers."""

    def __init__(self, *, exists: bool | None) -> None:
        self.answer = exists
        self.asked: list[str] = []

    async def exists(self, group_id: str) -> bool | None:
        self.asked.append(group_id)
        return self.answer


class Node:
    """One broker that coordinates all groups."""

    def __init__(self, look_up: LookUp | None = None) -> None:
        self.world = World()
        self.world.show(topic(), topic(CONSUMER_OFFSETS, number=2))
        self.groups: Groups = self.world.parts.groups.coordinator
        self.groups._share_groups = look_up or LookUp(exists=True)

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do ``work`` while the coordinator serves."""

        async def served() -> Any:
            async with asyncio.TaskGroup() as tasks:
                holding = tasks.create_task(self.groups.run())
                await until(lambda: self.groups.is_serving(0))
                result = await work()
                holding.cancel()
            return result

        return asyncio.run(served())

    async def call(self, method: str, request: Any) -> Any:
        """Call the gRPC service."""
        rpc = getattr(self.world.parts.services().share_groups, method)
        context = SimpleNamespace(peer=lambda: "peer")
        return await rpc(request, cast("grpc.aio.ServicerContext[Any, Any]", context))

    async def commit(self) -> ErrorCode:
        """Commit an offset for the group ``g``."""
        topics = (TopicOffsets("orders", ORDERS, (OffsetToCommit(0, 5),)),)
        reply = await self.groups.ask("g", OffsetCommit(group_id="g", topics=topics))
        return ErrorCode(reply.error_code)

    async def reserve_long_ago(self) -> None:
        """Reserve ``g``, and let so much time pass that its group exists or never will."""
        answer = await self.call("ReserveGroupId", pb.ReserveGroupIdRequest(group_id="g"))
        assert answer.error_code == ErrorCode.NONE
        self.world.clock.advance(RESERVATION_MIN_MS)


@pytest.mark.parametrize(
    ("exists", "code"),
    [
        (True, ErrorCode.GROUP_ID_NOT_FOUND),
        (False, ErrorCode.NONE),
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_group_of_another_type_waits_for_a_look_up(exists: bool | None, code: ErrorCode) -> None:
    look_up = LookUp(exists=exists)
    node = Node(look_up)

    async def work() -> ErrorCode:
        await node.reserve_long_ago()
        return await node.commit()

    assert node.run(work) is code
    assert look_up.asked == ["g"]


def test_an_id_is_released_over_grpc() -> None:
    node = Node()

    async def work() -> ErrorCode:
        await node.call("ReserveGroupId", pb.ReserveGroupIdRequest(group_id="g", owner_epoch=3))
        await node.call("ReleaseGroupId", pb.ReleaseGroupIdRequest(group_id="g", owner_epoch=3))
        return await node.commit()

    assert node.run(work) is ErrorCode.NONE


def test_an_id_that_a_group_has_is_refused_with_a_message() -> None:
    node = Node()

    async def work() -> Any:
        await node.commit()
        return await node.call("ReserveGroupId", pb.ReserveGroupIdRequest(group_id="g"))

    answer = node.run(work)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == "Group g is not a share group."


@pytest.mark.parametrize("method", ["ReserveGroupId", "ReleaseGroupId"])
def test_ids_are_changed_at_the_groups_coordinator_only(method: str) -> None:
    node = Node()
    node.world.show(topic(), topic(CONSUMER_OFFSETS, number=2, leader=OTHER, epoch=1))
    request = getattr(pb, f"{method}Request")(group_id="g")
    answer = asyncio.run(node.call(method, request))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_an_owner_epoch_below_zero_is_refused() -> None:
    request = pb.ReserveGroupIdRequest(group_id="g", owner_epoch=-1)
    answer = asyncio.run(Node().call("ReserveGroupId", request))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_that_is_hosted_late_is_coordinated_without_a_newer_image() -> None:
    world = World()
    world.show(topic())
    disk, groups = world.disks[0], world.parts.groups.coordinator

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(groups.run())
            await asyncio.sleep(0)
            disk.exhausted = True
            world.show(topic(), topic(CONSUMER_OFFSETS, number=2))
            disk.exhausted = False
            await world.hosting.retry_due()
            await until(lambda: groups.is_serving(0))
            holding.cancel()

    asyncio.run(work())
