"""IsrSender: proposals out, what was agreed back in."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from broker.shell.replication.isr_sender import IsrSender
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_wire import write_partition
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.replicated_worlds import (
    LeaderWorld,
    partition,
    replica_reader,
    replicated,
)
from virtual_time import run_virtual

Answer = Callable[[pb.AlterPartitionsRequest], pb.AlterPartitionsResponse]


class Controller:
    """Answers in turn; the last answer for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[pb.AlterPartitionsRequest] = []

    async def alter_partitions(
        self, request: pb.AlterPartitionsRequest, _: float
    ) -> pb.AlterPartitionsResponse:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(request)


def agrees(request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsResponse:
    """Every proposal, one partition epoch later."""
    return pb.AlterPartitionsResponse(
        partitions=[
            pb.AlterPartitionsResponse.Partition(
                topic_id=one.topic_id,
                partition=one.partition,
                state=write_partition(
                    partition(
                        epoch=one.leader_epoch,
                        version=one.partition_epoch + 1,
                        isr=tuple(member.broker_id for member in one.new_isr),
                    )
                ),
            )
            for one in request.partitions
        ]
    )


def refuses(code: ErrorCode) -> Answer:
    def answer(request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsResponse:
        return pb.AlterPartitionsResponse(
            partitions=[
                pb.AlterPartitionsResponse.Partition(
                    topic_id=one.topic_id, partition=one.partition, error_code=code
                )
                for one in request.partitions
            ]
        )

    return answer


def times_out(_: pb.AlterPartitionsRequest) -> pb.AlterPartitionsResponse:
    raise TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "no controller")


def sender_of(world: LeaderWorld, controller: Controller) -> IsrSender:
    """A sender to which the followers' fetches are shown."""
    parts = world.parts
    sender = IsrSender(
        parts.facts,
        parts.cluster.registration,
        cast("ControllerClient", controller),
        metadata=parts.metadata,
        live=parts.cluster.live,
        table=parts.partitions.table,
        parked=parts.partitions.parked,
        counters=parts.counters,
    )
    parts.replication = replace(
        parts.replication, replica_reader=replica_reader(parts, sender.consider)
    )
    return sender


def run(world: LeaderWorld, controller: Controller, come: Callable[[], bool]) -> None:
    """The sender runs until ``come()``, while a follower outside the ISR fetches."""
    sender = sender_of(world, controller)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sender.run())
            while not come():
                world.fetch(3, world.hosted().partition.log_end)
                world.clock.advance(20)
                await asyncio.sleep(0.001)
            running.cancel()

    run_virtual(main())


@pytest.mark.feature("G06", "G17")
def test_a_follower_that_caught_up_joins_once_the_controller_agrees() -> None:
    world, controller = LeaderWorld(partition(isr=(1, 2))), Controller(agrees)
    run(world, controller, lambda: len(world.hosted().partition.isr) == 3)
    (asked,) = controller.asked
    members = [(one.broker_id, one.broker_epoch) for one in asked.partitions[0].new_isr]
    assert members == [(1, 10), (2, 20), (3, 30)]
    assert world.parts.counters.isr_expands == 1


def test_an_unknown_outcome_stays_pending_and_is_asked_again() -> None:
    world = LeaderWorld(partition(isr=(1, 2)))
    controller = Controller(times_out, times_out, agrees)
    run(world, controller, lambda: len(world.hosted().partition.isr) == 3)
    assert len(controller.asked) == 3
    assert world.hosted().partition.replica_set.isr.pending is None


def test_a_refused_proposal_is_no_longer_counted_for_the_watermark() -> None:
    world = LeaderWorld(partition(isr=(1, 2)))
    controller = Controller(refuses(ErrorCode.INELIGIBLE_REPLICA))
    run(world, controller, lambda: world.parts.counters.isr_updates_failed > 0)
    assert world.hosted().partition.isr == (1, 2)


@pytest.mark.feature("G04", "G05")
def test_a_silent_follower_is_proposed_out_and_what_waited_is_committed() -> None:
    world, controller = LeaderWorld(), Controller(agrees)
    world.append(acks=-1)
    sender = sender_of(world, controller)
    sender.consider(world.hosted())
    world.clock.advance(6_000)
    world.fetch(3, 1)
    sender.consider(world.hosted())
    world.clock.advance(6_000)
    world.fetch(3, 1)
    sender.consider(world.hosted())
    pending = world.hosted().partition.replica_set.isr.pending
    assert pending is not None
    assert pending.members == (1, 3)
    asyncio.run(sender._ask((pending,)))
    assert (world.high_watermark, world.parts.counters.isr_shrinks) == (1, 1)


def test_an_answer_waits_until_the_feed_has_come_as_far() -> None:
    """What the state rests on is told by the feed: a leader must not know the one without the
    other.
    """
    world, seen = LeaderWorld(partition(isr=(1, 2))), list[tuple[int, ...]]()
    ahead = world.parts.metadata.image.position.version + 1

    def agrees_ahead(request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsResponse:
        answer = agrees(request)
        answer.position.version = ahead
        answer.position.controller_epoch = world.parts.metadata.image.position.controller_epoch
        return answer

    def come() -> bool:
        if controller.asked and len(seen) < 3:
            seen.append(world.hosted().partition.isr)
            if len(seen) == 3:
                world.change()
        return len(world.hosted().partition.isr) == 3

    controller = Controller(agrees_ahead)
    run(world, controller, come)
    assert seen == [(1, 2)] * 3


@pytest.mark.parametrize(
    ("isr", "agreed", "counted"), [((1, 2), (1, 2, 3), (1, 0)), ((1, 2, 3), (1, 3), (0, 1))]
)
def test_a_change_that_the_feed_has_shown_before_its_answer_is_counted(
    isr: tuple[int, ...], agreed: tuple[int, ...], counted: tuple[int, int]
) -> None:
    """As in a cluster, where the answer waits for the feed: the partition has the ISR already."""
    world = LeaderWorld(partition(isr=isr))

    def agrees_after_feed(request: pb.AlterPartitionsRequest) -> pb.AlterPartitionsResponse:
        assert [one.broker_id for one in request.partitions[0].new_isr] == list(agreed)
        world.change(topics_changed=(replicated(partition(version=1, isr=agreed)),))
        answer = agrees(request)
        answer.position.version = world.parts.metadata.image.position.version
        answer.position.controller_epoch = world.parts.metadata.image.position.controller_epoch
        return answer

    looks = iter(range(20))
    controller = Controller(agrees_after_feed)
    run(world, controller, lambda: bool(controller.asked) and next(looks, None) is None)
    counters = world.parts.counters
    assert (counters.isr_expands, counters.isr_shrinks) == counted
    assert (len(controller.asked), counters.isr_updates_failed) == (1, 0)


async def turns() -> None:
    """Let the loop run until a sender waits for a time or another proposal."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_stop_that_comes_with_a_proposal_is_not_lost() -> None:
    world, controller = LeaderWorld(partition(isr=(1, 2))), Controller(times_out)
    sender = sender_of(world, controller)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sender.run())
            await turns()
            world.fetch(3, world.hosted().partition.log_end)
            await turns()
            assert controller.asked, "without an answer: the next try has a time"
            sender._proposed.set()
            await asyncio.sleep(0)
            running.cancel()
            await turns()
            is_over = running.done()
            for left in asyncio.all_tasks() - {asyncio.current_task()}:
                left.cancel()
        assert is_over

    run_virtual(main())
