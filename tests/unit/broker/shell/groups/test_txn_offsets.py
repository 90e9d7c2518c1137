"""Which transactional commits of offsets reach a group's shard."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from broker.core.groups.requests import TxnOffsetCommit
from broker.core.partition import Refusal
from broker.shell.groups.txn_offsets import verify_txn_offset_commit
from broker.shell.transactions.txn_verifier import TxnVerifier
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import CONSUMER_OFFSETS
from unit.broker.shell.broker_worlds import World, topic

LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Verifier:
    """Says yes, or what it is told to, after something else happened."""

    def __init__(
        self, refusal: Refusal | None = None, meanwhile: Callable[[], None] | None = None
    ) -> None:
        self.refusal = refusal
        self.meanwhile = meanwhile
        self.asked: list[bool] = []

    async def ask(self, *_: Any, transactions_v2: bool, **__: Any) -> Refusal | None:
        self.asked.append(transactions_v2)
        if self.meanwhile is not None:
            self.meanwhile()
        return self.refusal


def world(verifier: Verifier | None) -> World:
    made = World()
    made.show(topic(CONSUMER_OFFSETS))
    made.parts.transactions = replace(
        made.parts.transactions, verifier=cast("TxnVerifier", verifier)
    )
    return made


def outcome(one: World, epoch: int = 3, *, producer_id: int = 7) -> ErrorCode:
    commit = TxnOffsetCommit(
        group_id="g",
        topics=(),
        transactional_id="t",
        producer_id=producer_id,
        producer_epoch=epoch,
        transactions_v2=True,
    )
    return asyncio.run(
        verify_txn_offset_commit(
            one.parts.transactions.verifier, one.hosted(CONSUMER_OFFSETS), commit
        )
    )


def write_offsets(one: World, epoch: int) -> None:
    """As the shard does."""
    batch = build_batch(
        [(0, b"k", b"v", ())],
        producer_id=7,
        producer_epoch=epoch,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    assert (
        one.appender.append_internal(one.hosted(CONSUMER_OFFSETS), batch).error_code
        is ErrorCode.NONE
    )


def write_marker(one: World, epoch: int) -> None:
    marker = EndTxnMarker(commits=False, coordinator_epoch=1)
    batch = build_marker(marker, producer_id=7, producer_epoch=epoch, timestamp=0)
    one.appender.append_internal(one.hosted(CONSUMER_OFFSETS), batch, control=marker)


@pytest.mark.feature("L10", "L16")
def test_the_first_commit_makes_the_partition_a_part_of_the_transaction() -> None:
    verifier = Verifier()
    one = world(verifier)
    assert outcome(one) is ErrorCode.NONE
    write_offsets(one, 3)
    assert outcome(one) is ErrorCode.NONE
    assert verifier.asked == [True]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, LATER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_the_coordinator_refuses_never_reaches_the_shard(
    refused: ErrorCode, told: ErrorCode
) -> None:
    assert outcome(world(Verifier(Refusal(refused, "no")))) is told


@pytest.mark.feature("L02", "N04")
def test_a_zombie_is_fenced_by_what_the_partition_knows() -> None:
    one = world(Verifier())
    write_offsets(one, 4)
    assert outcome(one, 3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_without_verification_the_epoch_still_counts() -> None:
    one = world(None)
    assert outcome(one) is ErrorCode.NONE
    write_marker(one, 4)
    assert outcome(one) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_end_that_comes_while_it_is_asked_makes_it_ask_again() -> None:
    verifier = Verifier()
    one = world(verifier)
    verifier.meanwhile = lambda: write_marker(one, 3)
    assert outcome(one) is LATER
    verifier.meanwhile = None
    assert outcome(one) is ErrorCode.NONE


def test_nobody_has_no_transaction() -> None:
    assert outcome(world(None), producer_id=-1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
