"""What one transaction copies of the log to the dead-letter queue."""

from typing import cast

import pytest
from broker.core.share import letter_copies
from broker.core.share.dead_letters import Attempt, Step
from broker.core.share.letter_copies import OFFSET
from broker.shell.share.held import HeldShare
from broker.shell.share.letter_copier import SOURCE_BYTES_MAX, _Copying
from tidemark.codec.record_batch import read_header
from tidemark.codec.records import build_batch, read_records
from tidemark.model.ids import InstantMs, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import TransactionKey
from tidemark.runtime.worker_pool import WorkerPool
from unit.broker.shell.broker_worlds import topic
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    GROUP,
    REJECT,
    TOPIC_ID,
    Member,
    ShareFetchWorld,
    running,
)
from virtual_time import pass_time, run_virtual

QUEUE = "dlq.letters"
QUEUE_CONFIGS = {"errors.deadletterqueue.group.enable": "true"}
FAR = InstantMs(10**12)


class CopierWorld(ShareFetchWorld):
    """A group with a queue, and no txn-coordinator: the test performs the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.show(topic(), topic(QUEUE, number=8, configs=QUEUE_CONFIGS))
        self.configure(errors_deadletterqueue_topic_name=QUEUE)
        self.shares.copier._workers = cast("WorkerPool", self.workers)

    @property
    def held(self) -> HeldShare:
        held = self.shares.get(GROUP, (TopicId(TOPIC_ID), 0))
        assert held is not None
        return held

    async def copy_next(self) -> tuple[Attempt, list[int]]:
        """The next attempt after READ, and the offsets that it copies."""
        attempt = self.held.letters.begin(FAR)
        assert attempt is not None, "letters are due"
        attempt.transaction = TransactionKey(ProducerId(7), ProducerEpoch(0))
        attempt.step = Step.READ
        work = _Copying(self.held, attempt)
        assert await self.shares.copier._read(work) is None
        self.held.letters.did(attempt, None, FAR)
        assert work.copies is not None
        found = [
            dict(one.headers)[OFFSET]
            for batch in work.copies.batches
            for one in read_records(batch, read_header(batch))
        ]
        return attempt, [int(one or b"") for one in found]


def archiving_of(world: CopierWorld, attempt: Attempt) -> list[int]:
    spans = world.held.letters.letters_of(attempt)
    return [offset for first, last, _ in spans for offset in range(first, last + 1)]


async def reject_every_other(world: CopierWorld, records: int) -> None:
    """Reject the even offsets, one fetch for all."""
    member = Member(world)
    assert await member.take(0, wait_ms=500, records=records) == [(0, records - 1, 1)]
    types = [REJECT if offset % 2 == 0 else ACCEPT for offset in range(records)]
    await member.acknowledge((0, records - 1, *types))
    await pass_time(1)


@pytest.mark.feature("V02")
def test_a_transaction_copies_what_it_archives() -> None:
    """Of a batch, letters are copied with the transaction that archives them, and with no other,
    however often letters and finished records alternate in it.
    """

    async def run() -> None:
        async with running(CopierWorld()) as world:
            assert isinstance(world, CopierWorld)
            world.put(1_000)
            size_bytes = world.at().log.size_bytes
            assert 500 * size_bytes > SOURCE_BYTES_MAX, "the batch has many letters"
            await reject_every_other(world, 1_000)
            attempt, copied = await world.copy_next()
            assert copied == archiving_of(world, attempt)
            assert copied == list(range(0, 1_000, 2)), "the batch was read once, for all"

    run_virtual(run())


@pytest.mark.feature("V02")
def test_letters_of_a_damaged_batch_hold_up_no_others() -> None:
    async def run() -> None:
        async with running(CopierWorld()) as world:
            assert isinstance(world, CopierWorld)
            damaged = bytearray(build_batch([(0, None, b"x" * 10, ())] * 2))
            damaged[-18:] = b"\xff" * 18
            world.parts.partitions.appender.append_internal(world.at(), bytes(damaged))
            world.put(4)
            await reject_every_other(world, 6)
            attempt, copied = await world.copy_next()
            assert copied == archiving_of(world, attempt) == [2, 4]

    run_virtual(run())


def test_letters_that_one_transaction_leaves_out_are_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(letter_copies, "COPIES_BYTES_MAX", 1_000)

    async def run() -> None:
        async with running(CopierWorld()) as world:
            assert isinstance(world, CopierWorld)
            world.put(20)
            await reject_every_other(world, 20)
            first, copied = await world.copy_next()
            assert copied == archiving_of(world, first)
            assert 0 < len(copied) < 10
            first.step = None
            world.held.letters.attempt = None
            second, others = await world.copy_next()
            assert others == archiving_of(world, second)
            assert others[0] == copied[-1] + 2

    run_virtual(run())
