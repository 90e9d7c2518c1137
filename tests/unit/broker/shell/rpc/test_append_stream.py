"""Several batches in one append, each seen by a worker, while leadership goes and comes back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from broker.shell.rpc.append_stream import AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from tidemark_wire.v1 import partition_store_pb2
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated
from unit.broker.shell.rpc.peers import CALLER, PARTITION, Peer, append_parts, until


class Worker:
    """Takes every batch as it is; before the second, something happens."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._seen = 0

    async def run_for(self, _lane: object, _job: object, batch: bytes, _rule: object) -> bytes:
        await asyncio.sleep(0)
        self._seen += 1
        if self._seen == 2:
            self._between()
        return batch


class CompactedWorld(LeaderWorld):
    """A leader of a compacted partition of three replicas."""

    def __init__(self) -> None:
        super().__init__(clock=Clock(), cleanup_policy="compact")

    def lead_in(self, epoch: int) -> None:
        self.show(replicated(partition(epoch=epoch), cleanup_policy="compact"))

    def lose_and_regain(self) -> None:
        self.show(replicated(partition(leader=2, epoch=1), cleanup_policy="compact"))
        self.lead_in(2)

    async def append_two(self) -> Any:
        """The answer to two batches of one request, once followers have all that is there."""
        batches = b"".join(build_batch([(0, b"k", b"%d" % number, ())]) for number in range(2))
        request = partition_store_pb2.AppendRequest(
            partition=PARTITION, batches=batches, acks=-1, current_leader_epoch=-1
        )
        peer = Peer(request)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                AppendStream(append_parts(self.parts), ByteBudget(1 << 20), CALLER, peer).run()
            )
            await until(lambda: bool(self.parked.requests.count or peer.answers))
            for follower in (2, 3):
                end, epoch = self.hosted().partition.log_end, self.hosted().partition.leader_epoch
                self.fetch(follower, end, leader_epoch=epoch)
        return peer.answers[0]


@pytest.mark.parametrize(
    ("loses", "error"), [(False, ErrorCode.NONE), (True, ErrorCode.FENCED_LEADER_EPOCH)]
)
def test_one_answer_is_for_batches_of_one_leader_epoch(loses: bool, error: ErrorCode) -> None:
    async def main() -> Any:
        world = CompactedWorld()
        between = world.lose_and_regain if loses else lambda: None
        workers = cast("Any", Worker(between))
        rooms = world.parts.partitions
        world.parts.partitions = replace(
            rooms, inspection=replace(rooms.inspection, workers=workers)
        )
        return await world.append_two()

    answer = asyncio.run(main())
    assert answer.error_code == error
