"""EndTxn, cell by cell: v1 by state and outcome, v2 also by the epoch of the request."""

import pytest
from tidemark.codec.txn_records import TransactionState
from tidemark.model.errors import ErrorCode
from txn_coordinator.core import transaction
from txn_coordinator.core.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from unit.txn_coordinator.worlds import P0, TIMEOUT_MS, World, a_record

NONE, ITS, PF, CT = (
    ErrorCode.NONE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
LAST = transaction.CLIENT_EPOCH_MAX


def a_world(state: TransactionState, *, client_version: int = 0, last_epoch: int = -1) -> World:
    """Producer 7 has epoch 3."""
    world = World()
    open_now = state in transaction.OPEN
    loaded = a_record(
        state=state,
        partitions=frozenset({P0}) if open_now else frozenset(),
        client_version=client_version,
        last_producer_epoch=last_epoch,
    )
    world.log = [loaded]
    world.crash()
    return world


# fmt: off
V1 = [
    (EMPTY,           False, ITS),  (EMPTY,           True, ITS),
    (COMPLETE_ABORT,  False, NONE), (COMPLETE_ABORT,  True, ITS),
    (COMPLETE_COMMIT, False, ITS),  (COMPLETE_COMMIT, True, NONE),
    (PREPARE_ABORT,   False, NONE), (PREPARE_ABORT,   True, ITS),
    (PREPARE_COMMIT,  False, ITS),  (PREPARE_COMMIT,  True, NONE),
]
V2 = [  # by the epoch before, by the present epoch
    (EMPTY,           False, PF,   NONE), (EMPTY,           True, PF,   ITS),
    (COMPLETE_ABORT,  False, NONE, NONE), (COMPLETE_ABORT,  True, ITS,  ITS),
    (COMPLETE_COMMIT, False, ITS,  NONE), (COMPLETE_COMMIT, True, NONE, ITS),
    (PREPARE_ABORT,   False, NONE, CT),   (PREPARE_ABORT,   True, ITS,  CT),
    (PREPARE_COMMIT,  False, ITS,  CT),   (PREPARE_COMMIT,  True, NONE, CT),
]
# fmt: on


@pytest.mark.parametrize(("state", "commit", "expected"), V1)
def test_v1_without_an_open_transaction(
    state: TransactionState, commit: bool, expected: ErrorCode
) -> None:
    assert a_world(state).end((7, 3), commit=commit).error_code == expected


@pytest.mark.parametrize("state", sorted({state for state, _, _ in V1}))
@pytest.mark.parametrize("epoch", [2, 4])
def test_v1_with_another_epoch_is_fenced(state: TransactionState, epoch: int) -> None:
    assert a_world(state).end((7, epoch)).error_code == PF


@pytest.mark.parametrize(("state", "commit", "expected", "_present"), V2)
def test_v2_repeated(
    state: TransactionState, commit: bool, expected: ErrorCode, _present: ErrorCode
) -> None:
    world = a_world(state, client_version=2, last_epoch=2)
    reply = world.end((7, 2), commit=commit, v2=True)
    assert reply.error_code == expected
    if expected == NONE:
        assert (reply.producer_id, reply.producer_epoch) == (7, 3)


@pytest.mark.parametrize(("state", "commit", "_repeated", "expected"), V2)
def test_v2_with_the_present_epoch(
    state: TransactionState, commit: bool, _repeated: ErrorCode, expected: ErrorCode
) -> None:
    world = a_world(state, client_version=2, last_epoch=2)
    reply = world.end((7, 3), commit=commit, v2=True)
    assert reply.error_code == expected
    if expected == NONE:
        assert (reply.producer_id, reply.producer_epoch) == (7, 4)
        assert world.state() == "CompleteAbort"


def test_v2_of_the_next_transaction_with_a_new_producer_id_comes_later() -> None:
    """Epochs are used up: the end of the last transaction has given another producer id."""
    last = (7, transaction.CLIENT_EPOCH_MAX)
    world = World()
    world.log = [a_record(producer_epoch=last[1])]
    world.crash()
    world.add(last, P0, v2=True)
    reply = world.end(last, v2=True)
    following = (reply.producer_id, reply.producer_epoch)
    assert following[0] != last[0]
    assert world.end(following, commit=False, v2=True).error_code == CT
    world.all_written()
    assert world.end(following, commit=False, v2=True).error_code == NONE


@pytest.mark.parametrize("v2", [False, True])
def test_another_producer_is_not_known(v2: bool) -> None:
    world = World()
    assert world.end((7, 3), v2=v2).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world = a_world(EMPTY)
    assert world.end((8, 3), v2=v2).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.feature("L08")
@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_an_open_transaction_ends_as_requested(commit: bool, v2: bool) -> None:
    world = a_world(transaction.ONGOING)
    assert world.end((7, 3), commit=commit, v2=v2).error_code == NONE
    (markers,) = world.markers
    assert markers.commit == commit
    assert markers.producer_epoch == (4 if v2 else 3)
    assert markers.transaction_version == (2 if v2 else 1)


def test_v2_ends_twice_with_one_answer() -> None:
    world = a_world(transaction.ONGOING)
    first = world.end((7, 3), v2=True)
    assert world.end((7, 3), v2=True) == first
    world.all_written()
    assert world.end((7, 3), v2=True) == first
    world.crash()
    assert world.end((7, 3), v2=True) == first


@pytest.mark.feature("L16")
def test_v2_a_late_end_does_not_end_the_next_transaction() -> None:
    """The anomaly of transactions v1 that KIP-890 closes."""
    world = a_world(transaction.ONGOING)
    following = world.end((7, 3), v2=True)
    world.all_written()
    session = (following.producer_id, following.producer_epoch)
    world.add(session, P0, v2=True)
    assert world.end((7, 3), v2=True).error_code == PF
    assert world.state() == "Ongoing"


def test_v2_the_last_epoch_ends_with_a_new_producer_id() -> None:
    world = World()
    world.shard.replay(a_record(producer_epoch=LAST), None)
    world.add((7, LAST), P0, v2=True)
    first = world.end((7, LAST), v2=True)
    assert first.producer_epoch == 0
    assert first.producer_id != 7
    assert world.end((7, LAST), v2=True) == first
    world.all_written()
    assert world.end((7, LAST), v2=True) == first
    assert world.add((first.producer_id, 0), P0, v2=True).error_code == NONE


def test_v2_an_abort_of_nothing_needs_no_markers() -> None:
    world = World()
    session = world.session()
    reply = world.end(session, commit=False, v2=True)
    assert reply.producer_epoch == session[1] + 1
    assert world.markers == []
    assert world.add(session, P0, v2=True).error_code == PF


@pytest.mark.feature("L02")
@pytest.mark.parametrize("commit", [False, True])
def test_v2_a_producer_that_was_timed_out_gets_no_other_epoch(commit: bool) -> None:
    world = World()
    session = world.session()
    world.add(session, P0, v2=True)
    world.advance(TIMEOUT_MS)
    assert world.end(session, commit=commit, v2=True).error_code == PF
    world.all_written()
    assert world.end(session, commit=commit, v2=True).error_code == PF
