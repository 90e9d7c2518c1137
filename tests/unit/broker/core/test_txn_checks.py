"""Checks of transactional batches and offset commits, with any event while the coordinator
verifies.
"""

import pytest
from broker.core.groups.requests import TxnOffsetCommit
from broker.core.partition import Partition, Refusal
from broker.core.txn_checks import (
    ASKS_MAX,
    ENDED_MEANWHILE,
    Ask,
    BatchCheck,
    OffsetsCheck,
    claims_transaction,
)
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.control_record import EndTxnMarker
from tidemark.codec.record_batch import MAGIC_POSITION, TRANSACTIONAL_BIT, BatchHeader
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from unit.broker.core.replicated import SIZE, WALL, a_partition, lead_in

ME = BrokerId(1)
PRODUCER, EPOCH = 7, 3
NONE, LATER = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO = Refusal(ErrorCode.INVALID_TXN_STATE, "no")


def led() -> Partition:
    made = a_partition(1)
    lead_in(made, 5, (ME,), (ME,))
    return made


def batch(sequence: int = 0, epoch: int = EPOCH) -> BatchHeader:
    transactional = TRANSACTIONAL_BIT
    return BatchHeader(
        0, SIZE - 12, -1, 2, 0, transactional, 0, WALL, WALL, PRODUCER, epoch, sequence, 1
    )


def begin_transaction(one: Partition, epoch: int = EPOCH) -> None:
    one.producers.appended(batch(epoch=epoch), one.log_end, WALL)


def end_transaction(one: Partition, epoch: int = EPOCH) -> None:
    """Apply a marker in the log."""
    one.verifications.forget(PRODUCER)
    one.producers.replay(batch(-1, epoch), WALL, EndTxnMarker(commits=True, coordinator_epoch=1))


def offsets(one: Partition, producer_id: int = PRODUCER, epoch: int = EPOCH) -> OffsetsCheck:
    commit = TxnOffsetCommit(
        group_id="g",
        topics=(),
        transactional_id="t",
        producer_id=producer_id,
        producer_epoch=epoch,
        transactions_v2=True,
    )
    return OffsetsCheck(one, commit)


def asked_for(check: OffsetsCheck | BatchCheck) -> Ask:
    asked = check.begin(can_ask=True)
    assert isinstance(asked, Ask)
    return asked


# Commits of offsets.


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 3), (7, -1)])
def test_a_commit_without_a_producer_is_refused_unasked(producer_id: int, epoch: int) -> None:
    refused = offsets(led(), producer_id, epoch).begin(can_ask=True)
    assert refused is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_commit_goes_on_once_the_coordinator_has_said_yes() -> None:
    check = offsets(led())
    assert check.answered(asked_for(check), None) is NONE


@pytest.mark.parametrize("can_ask", [True, False])
def test_a_commit_in_an_open_transaction_needs_no_question(can_ask: bool) -> None:
    one = led()
    begin_transaction(one)
    assert offsets(one).begin(can_ask=can_ask) is NONE


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, LATER),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_commit_has_the_coordinators_error_unless_that_passes(
    refused: ErrorCode, told: ErrorCode
) -> None:
    check = offsets(led())
    assert check.answered(asked_for(check), Refusal(refused, "no")) is told


def test_a_commit_is_repeated_when_its_transaction_ended_while_the_coordinator_was_asked() -> None:
    one = led()
    check = offsets(one)
    asked = asked_for(check)
    end_transaction(one)
    assert check.answered(asked, None) is LATER


@pytest.mark.parametrize(("epoch", "told"), [(2, LATER), (4, ErrorCode.INVALID_PRODUCER_EPOCH)])
def test_a_transaction_of_another_epoch_stands_in_the_way(epoch: int, told: ErrorCode) -> None:
    one = led()
    begin_transaction(one, epoch)
    assert offsets(one).begin(can_ask=False) is told
    check = offsets(one)
    assert check.answered(asked_for(check), None) is told


# Batches.


def test_a_batch_goes_on_once_the_coordinator_has_said_yes() -> None:
    one = led()
    check = BatchCheck(one, batch(), transactions_v2=True)
    assert check.answered(asked_for(check), None) is None
    assert not one.needs_verification(batch())


def test_a_batch_in_an_open_transaction_needs_no_question() -> None:
    one = led()
    begin_transaction(one)
    assert BatchCheck(one, batch(1), transactions_v2=True).begin(can_ask=True) is None


def test_every_batch_may_begin_a_transaction_where_none_is_verified() -> None:
    one = led()
    assert BatchCheck(one, batch(40), transactions_v2=False).begin(can_ask=False) is None
    assert not one.needs_verification(batch(40))
    assert one.verifications.first_sequence(PRODUCER) == 40


@pytest.mark.parametrize(("transactions_v2", "first"), [(True, 0), (False, 40)])
def test_a_transaction_v2_begins_with_sequence_zero(transactions_v2: bool, first: int) -> None:
    one = led()
    asked_for(BatchCheck(one, batch(40), transactions_v2=transactions_v2))
    assert one.verifications.first_sequence(PRODUCER) == first


def test_a_refused_batch_keeps_the_coordinators_refusal() -> None:
    one = led()
    check = BatchCheck(one, batch(), transactions_v2=True)
    assert check.answered(asked_for(check), NO) is NO
    assert one.needs_verification(batch())


@pytest.mark.feature("L16")
@given(st.lists(st.booleans(), min_size=ASKS_MAX, max_size=ASKS_MAX), st.booleans())
def test_a_batch_goes_on_only_after_a_yes_that_no_end_came_before(
    ends: list[bool], says_yes: bool
) -> None:
    """``ends``: for each verification, True if the transaction ends meanwhile."""
    one = led()
    check = BatchCheck(one, batch(), transactions_v2=True)
    step: Ask | Refusal | None = asked_for(check)
    for is_ended in ends:
        if isinstance(step, Ask):
            if is_ended:
                end_transaction(one)
            step = check.answered(step, None if says_yes else NO)
    assert step == (NO if not says_yes else ENDED_MEANWHILE if all(ends) else None)
    assert (step is None) == one.verifications.is_verified(PRODUCER, EPOCH)


def test_a_batch_claims_a_transaction_by_its_bit_alone() -> None:
    records = [(0, None, b"x", ())]
    inside = build_batch(records, producer_id=PRODUCER, attributes_extra=TRANSACTIONAL_BIT)
    old = bytearray(inside)
    old[MAGIC_POSITION] = 1
    assert claims_transaction(memoryview(inside))
    for other in (build_batch(records, producer_id=PRODUCER), bytes(old), inside[:60], b""):
        assert not claims_transaction(memoryview(other))
    assert not claims_transaction(None)
