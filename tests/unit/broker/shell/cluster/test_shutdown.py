"""Controlled shutdown: how long a stopping broker asks."""

from typing import Any, cast

import pytest
from broker.shell.cluster.shutdown import HandOver
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.controller_client import ControllerClient
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated
from virtual_time import LoopClock, run_virtual


class Controller:
    """Hands over at the second question, if it may."""

    def __init__(self, world: LeaderWorld, *, moves: bool = True, answers: bool = True) -> None:
        self.world, self.moves, self.answers = world, moves, answers
        self.asked = 0

    async def controlled_shutdown(self, *_: Any) -> pb.ControlledShutdownResponse:
        self.asked += 1
        if not self.answers:
            raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
        if self.moves and self.asked == 2:
            self.world.change(topics_changed=(replicated(partition(leader=2, epoch=1, version=1)),))
        return pb.ControlledShutdownResponse(partitions_led=stopping(self.world).led_count())


def stopping(world: LeaderWorld, controller: Controller | None = None) -> HandOver:
    parts, client = world.parts, cast("ControllerClient", controller)
    return HandOver(
        parts.cluster.registration,
        client,
        LoopClock(),
        metadata=parts.metadata,
        live=parts.cluster.live,
    )


def hand_over_of(world: LeaderWorld, controller: Controller, deadline_ms: int = 5_000) -> None:
    world.parts.cluster.registration.broker_epoch = 10
    run_virtual(stopping(world, controller).run(deadline_ms=deadline_ms))


@pytest.mark.feature("A16")
def test_it_asks_until_nothing_is_led() -> None:
    world = LeaderWorld()
    controller = Controller(world)
    ending = stopping(world)
    assert (ending.led_count(), ending.movable_count()) == (1, 1)
    hand_over_of(world, controller)
    assert (controller.asked, ending.led_count()) == (2, 0)


def test_nobody_else_could_lead_so_that_it_does_not_wait() -> None:
    world = LeaderWorld(partition(isr=(1,)))
    controller = Controller(world, moves=False)
    assert stopping(world).movable_count() == 0
    hand_over_of(world, controller)
    assert controller.asked == 1


def test_the_deadline_ends_it() -> None:
    world = LeaderWorld()
    controller = Controller(world, answers=False)
    hand_over_of(world, controller, deadline_ms=30)
    assert controller.asked >= 1


def test_who_never_registered_has_nothing_to_hand_over() -> None:
    world = LeaderWorld()
    controller = Controller(world)
    run_virtual(stopping(world, controller).run(deadline_ms=1_000))
    assert controller.asked == 0
