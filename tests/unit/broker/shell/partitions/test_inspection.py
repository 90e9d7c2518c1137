"""Batches that wait for a worker, or behind one that does."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, cast

import pytest
from broker.shell.partitions.inspection import InspectedAppend, Inspection
from tidemark.codec.compression import ZSTD
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.shell.broker_worlds import World, topic


class Worker:
    """Does each job in the loop's next turn."""

    async def run_for(self, _: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)


class Sender:
    """One connection to a partition whose batches are stored with zstd."""

    def __init__(self) -> None:
        self.world = world = World()
        world.show(topic(configs={"compression.type": "zstd"}))
        self._inspection = Inspection(
            world.appender, cast("WorkerPool", Worker()), world.clock, world.parts.counters
        )

    @property
    def log_end(self) -> int:
        return self.world.hosted().partition.log_end

    def batch(self, **fields: Any) -> bytes:
        return build_batch([(self.world.clock.wall_ms(), None, b"x", ())], **fields)

    def send(self, *contents: bytes) -> list[ErrorCode]:
        """Return the outcomes of these, each sent before the one before it is appended."""

        async def main() -> list[ErrorCode]:
            appends = [
                InspectedAppend(self._inspection, self.world.hosted(), one, acks=-1, lane=self)
                for one in contents
            ]
            return [one.error_code for one in await asyncio.gather(*(a.run() for a in appends))]

        return asyncio.run(main())


def test_batches_of_a_connection_are_appended_in_their_order() -> None:
    sender = Sender()
    stored = sender.batch(compression=ZSTD)
    assert sender.send(sender.batch(), stored, sender.batch()) == [ErrorCode.NONE] * 3
    assert sender.log_end == 3


@pytest.mark.feature("SE17")
def test_no_second_batch_comes_in_behind_one_that_waits() -> None:
    """Nobody has looked at it: neither at its codec, nor whether its sender may write in the
    transaction that it names.
    """
    sender = Sender()
    transactional: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 0,
        "attributes_extra": TRANSACTIONAL_BIT,
    }
    partition = sender.world.hosted().partition
    partition.verifications.answer(7, partition.verifications.ask(7, 0))
    sender.world.append(base_sequence=0, **transactional)
    two = sender.batch(compression=ZSTD) + sender.batch(base_sequence=1, **transactional)
    assert sender.send(sender.batch(), two) == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
    assert sender.log_end == 2
