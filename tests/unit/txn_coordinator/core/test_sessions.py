"""InitProducerId: the epochs of sessions, and the sessions that they fence (KIP-98, KIP-360)."""

import pytest
from tidemark.codec.txn_records import TransactionRecord, TransactionState
from tidemark.model.errors import ErrorCode
from txn_coordinator.core import sessions, transaction
from txn_coordinator.core.requests import InitTransactionalId, InitTransactionalIdReply
from txn_coordinator.core.settings import TxnSettings
from unit.txn_coordinator.worlds import ID, P0, World, a_record

SPARE = 500
LAST = transaction.CLIENT_EPOCH_MAX


def init(
    record: TransactionRecord | None, pid: int = -1, epoch: int = -1, spare: int = SPARE
) -> tuple[InitTransactionalIdReply, TransactionRecord | None]:
    request = InitTransactionalId(ID, 1_000, spare, pid, epoch)
    ruling = sessions.init_session(record, request, 9_000)
    assert isinstance(ruling.reply, InitTransactionalIdReply)
    written = ruling.records[0] if ruling.records else None
    assert written is None or isinstance(written, TransactionRecord)
    return ruling.reply, written


def granted(reply: InitTransactionalIdReply) -> tuple[int, int]:
    assert reply.error_code == ErrorCode.NONE, reply
    return reply.producer_id, reply.producer_epoch


@pytest.mark.feature("K01")
def test_a_new_id_takes_the_spare_producer_id() -> None:
    assert granted(init(None)[0]) == (SPARE, 0)


def test_without_a_spare_producer_id_the_client_comes_again() -> None:
    reply, written = init(None, spare=-1)
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert written is None


def test_an_expired_session_starts_again() -> None:
    assert granted(init(None, pid=3, epoch=8)[0]) == (SPARE, 0)


@pytest.mark.feature("L02")
@pytest.mark.parametrize(
    "state", [transaction.EMPTY, transaction.COMPLETE_COMMIT, transaction.COMPLETE_ABORT]
)
def test_a_new_session_raises_the_epoch(state: TransactionState) -> None:
    reply, written = init(a_record(state=state))
    assert granted(reply) == (7, 4)
    assert written is not None
    assert written.state is transaction.EMPTY
    assert written.last_producer_epoch == -1


def test_the_present_session_goes_on_with_the_next_epoch() -> None:
    reply, written = init(a_record(), pid=7, epoch=3)
    assert granted(reply) == (7, 4)
    assert written is not None
    assert written.last_producer_epoch == 3


def test_a_repeated_request_gets_the_same_epoch() -> None:
    _, written = init(a_record(), pid=7, epoch=3)
    reply, again = init(written, pid=7, epoch=3)
    assert granted(reply) == (7, 4)
    assert again is None


@pytest.mark.feature("L02", "L03")
@pytest.mark.parametrize(("pid", "epoch"), [(7, 2), (7, 4), (8, 3)])
def test_another_session_cannot_go_on(pid: int, epoch: int) -> None:
    reply, written = init(a_record(), pid=pid, epoch=epoch)
    assert reply.error_code == ErrorCode.PRODUCER_FENCED
    assert written is None


def test_a_zombie_does_not_abort_the_transaction_of_the_present_session() -> None:
    open_now = a_record(state=transaction.ONGOING, partitions=frozenset({P0}))
    reply, written = init(open_now, pid=7, epoch=2)
    assert reply.error_code == ErrorCode.PRODUCER_FENCED
    assert written is None


@pytest.mark.parametrize("state", sorted(transaction.PREPARED))
def test_a_session_waits_for_the_markers(state: TransactionState) -> None:
    reply, written = init(a_record(state=state))
    assert reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert written is None


def test_the_session_whose_transaction_was_aborted_for_it_recovers() -> None:
    world = World()
    pid, epoch = world.session()
    world.add((pid, epoch), P0)
    assert world.init(pid=pid, epoch=epoch).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert granted(world.init(pid=pid, epoch=epoch)) == (pid, epoch + 1)
    assert granted(world.init(pid=pid, epoch=epoch)) == (pid, epoch + 1)


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    reply, written = init(a_record(producer_epoch=LAST))
    assert granted(reply) == (SPARE, 0)
    assert written is not None
    assert written.previous_producer_id == 7


def test_the_producer_id_that_came_with_the_end_goes_on_once_the_markers_are_written() -> None:
    world = World()
    world.shard.replay(a_record(producer_epoch=LAST), None)
    world.add((7, LAST), P0, v2=True)
    ended = world.end((7, LAST), v2=True)
    pid, epoch = ended.producer_id, ended.producer_epoch
    assert (pid, epoch) != (7, LAST)
    assert world.init(pid=pid, epoch=epoch).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert granted(world.init(pid=pid, epoch=epoch)) == (pid, epoch + 1)


def test_a_repeated_request_gets_the_same_new_producer_id() -> None:
    _, written = init(a_record(producer_epoch=LAST), pid=7, epoch=LAST)
    reply, again = init(written, pid=7, epoch=LAST, spare=SPARE + 1)
    assert granted(reply) == (SPARE, 0)
    assert again is None


def test_a_zombie_with_the_last_epoch_is_fenced_by_the_new_producer_id() -> None:
    _, written = init(a_record(producer_epoch=LAST))
    reply, _ = init(written, pid=7, epoch=LAST)
    assert reply.error_code == ErrorCode.PRODUCER_FENCED


def test_no_client_ever_gets_the_highest_epoch() -> None:
    world = World()
    world.shard.replay(a_record(producer_epoch=LAST), None)
    world.add((7, LAST), P0)
    world.init(pid=7, epoch=LAST)
    world.all_written()
    assert world.end((7, LAST), commit=False, v2=True).error_code == ErrorCode.PRODUCER_FENCED
    assert world.add((7, LAST + 1), P0).error_code == ErrorCode.PRODUCER_FENCED
    assert world.init(pid=7, epoch=LAST).producer_epoch == 0


@pytest.mark.parametrize(
    ("transactional_id", "pid", "epoch"), [("", -1, -1), ("x" * 40_000, -1, -1), (ID, 7, -1)]
)
def test_a_malformed_request_is_refused(transactional_id: str, pid: int, epoch: int) -> None:
    request = InitTransactionalId(transactional_id, 1_000, SPARE, pid, epoch)
    problem = sessions.request_problem(request, TxnSettings())
    assert problem is not None
    assert problem.error_code == ErrorCode.INVALID_REQUEST
