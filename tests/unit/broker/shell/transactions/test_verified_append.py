"""Batches that wait for the coordinator: in order for one producer, past one another for others."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from broker.core.partition import Refusal
from broker.shell.transactions.txn_verifier import TxnVerifier
from broker.shell.transactions.verified_append import VerifiedAppend, must_verify
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from unit.broker.shell.broker_worlds import World, topic


class Verifier:
    """Says yes, or what it is told to, once ``go`` is set."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.refusal = refusal
        self.go = asyncio.Event()
        self.asked: list[int] = []

    async def ask(self, _id: str, producer_id: int, *_: Any, **__: Any) -> Refusal | None:
        self.asked.append(producer_id)
        await self.go.wait()
        return self.refusal


def world(verifier: Verifier) -> World:
    made = World()
    made.show(topic())
    made.parts.transactions = replace(
        made.parts.transactions, verifier=cast("TxnVerifier", verifier)
    )
    return made


def batch(sequence: int, producer_id: int = 7) -> bytes:
    return build_batch(
        [(0, None, b"x", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        attributes_extra=TRANSACTIONAL_BIT,
    )


def work(one: World, content: bytes, *, transactions_v2: bool = True) -> VerifiedAppend:
    return VerifiedAppend(
        one.parts.transactions.verifier,
        one.parts.partitions.inspection,
        one.hosted(),
        content,
        acks=-1,
        lane=None,
        transactional_id="t",
        transactions_v2=transactions_v2,
    )


async def outcomes(
    one: World, verifier: Verifier, *batches: bytes, transactions_v2: bool = True
) -> list[Any]:
    appends = [work(one, content, transactions_v2=transactions_v2) for content in batches]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(append.run()) for append in reversed(appends)]
        await asyncio.sleep(0)
        verifier.go.set()
    return [task.result() for task in reversed(running)]


@pytest.mark.feature("L16")
def test_batches_of_a_producer_keep_their_order_and_ask_once() -> None:
    async def run() -> None:
        verifier = Verifier()
        one = world(verifier)
        found = await outcomes(one, verifier, batch(0), batch(1), batch(0, producer_id=8))
        assert [outcome.error_code for outcome in found] == [ErrorCode.NONE] * 3
        assert found[0].base_offset < found[1].base_offset
        assert sorted(verifier.asked) == [7, 8]
        assert not one.hosted().verifying

    asyncio.run(run())


def test_what_the_coordinator_refuses_is_not_appended() -> None:
    async def run() -> None:
        verifier = Verifier(Refusal(ErrorCode.INVALID_TXN_STATE, "not in it"))
        one = world(verifier)
        (outcome,) = await outcomes(one, verifier, batch(0))
        assert outcome.error_code is ErrorCode.INVALID_TXN_STATE
        assert one.hosted().partition.log_end == 0

    asyncio.run(run())


def test_one_batch_is_verified_and_no_other_comes_in_behind_it() -> None:
    async def run() -> None:
        verifier = Verifier()
        one = world(verifier)
        two = batch(0) + build_batch([(0, None, b"y", ())])
        (outcome,) = await outcomes(one, verifier, two)
        assert outcome.error_code is ErrorCode.INVALID_RECORD
        assert one.hosted().partition.log_end == 0

    asyncio.run(run())


class LateVerifier(Verifier):
    """Not yet to the first question, then yes."""

    async def ask(self, _id: str, producer_id: int, *_: Any, **__: Any) -> Refusal | None:
        self.asked.append(producer_id)
        later = Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, "not yet")
        return later if len(self.asked) == 1 else None


@pytest.mark.feature("K05", "L09")
@pytest.mark.parametrize("transactions_v2", [False, True])
def test_a_batch_behind_one_that_was_put_off_does_not_take_its_place(
    transactions_v2: bool,
) -> None:
    async def run() -> None:
        verifier = LateVerifier()
        one = world(verifier)
        found = await outcomes(
            one, verifier, batch(0), batch(1), batch(0), batch(1), transactions_v2=transactions_v2
        )
        assert [outcome.error_code for outcome in found] == [
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.NONE,
            ErrorCode.NONE,
        ]
        assert one.hosted().partition.log_end == 2

    asyncio.run(run())


class MarkedVerifier(Verifier):
    """Yes, but a marker comes while it is asked, so many times."""

    def __init__(self, markers: int) -> None:
        super().__init__()
        self.markers = markers
        self.one: World | None = None

    async def ask(self, _id: str, producer_id: int, *_: Any, **__: Any) -> Refusal | None:
        self.asked.append(producer_id)
        assert self.one is not None
        if len(self.asked) <= self.markers:
            self.one.hosted().partition.verifications.forget(producer_id)
        return None


@pytest.mark.parametrize(
    ("markers", "asked", "code"),
    [(1, 2, ErrorCode.NONE), (2, 2, ErrorCode.NOT_ENOUGH_REPLICAS)],
)
def test_a_marker_in_between_voids_the_answer(markers: int, asked: int, code: ErrorCode) -> None:
    async def run() -> None:
        verifier = MarkedVerifier(markers)
        verifier.one = world(verifier)
        (outcome,) = await outcomes(verifier.one, verifier, batch(0))
        assert outcome.error_code is code
        assert len(verifier.asked) == asked

    asyncio.run(run())


def test_an_open_transaction_needs_no_question() -> None:
    async def run() -> None:
        verifier = Verifier()
        one = world(verifier)
        assert must_verify(one.hosted(), batch(0))
        await outcomes(one, verifier, batch(0))
        assert not must_verify(one.hosted(), batch(1))
        assert must_verify(one.hosted(), batch(0, producer_id=9))
        assert not must_verify(one.hosted(), b"short")

    asyncio.run(run())


def test_appends_of_a_producer_can_be_cancelled_while_the_coordinator_is_asked() -> None:
    async def run() -> None:
        verifier = Verifier()
        one = world(verifier)
        appends = [work(one, batch(sequence)) for sequence in range(3)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(append.run()) for append in appends]
            await asyncio.sleep(0)
            for task in (running[1], running[0], running[2]):
                task.cancel()
        assert all(task.cancelled() for task in running)
        assert not one.hosted().verifying

    asyncio.run(run())
