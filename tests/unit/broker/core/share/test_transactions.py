"""Acknowledgements that belong to transactions."""

import pytest
from broker.core.share.acquisition import LogBatch
from broker.core.share.inspection import view
from broker.core.share.settings import ShareSettings
from broker.core.share.transactions import TransactionLocks
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import PendingBatch, TransactionKey
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    ShareWorld,
    say,
)

NONE = ErrorCode.NONE
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
T1 = TransactionKey(ProducerId(1), ProducerEpoch(5))
T2 = TransactionKey(ProducerId(2), ProducerEpoch(0))


def pending_world(kind: int = ACCEPT, settings: ShareSettings | None = None) -> ShareWorld:
    """Offsets 10-19 are acknowledged in T1."""
    world = ShareWorld(settings).load()
    world.fetch(records=20)
    assert world.acknowledge(say(10, 19, kind), transaction=T1) is None
    assert world.write().requests == ("r1",)
    return world


def test_a_write_names_the_transaction_and_the_outcome() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(10, 19, ACCEPT), transaction=T1)
    world.acknowledge(say(0, 4, REJECT), transaction=T2)
    write = world.begin_write()
    assert (write.start_offset, write.batches, write.delivery_complete_count) == (0, (), 0)
    assert write.pending == (
        PendingBatch(Offset(0), Offset(4), ARCHIVED, 1, T2),
        PendingBatch(Offset(10), Offset(19), ACKNOWLEDGED, 1, T1),
    )


@pytest.mark.parametrize(("kind", "state"), [(ACCEPT, ACKNOWLEDGED), (REJECT, ARCHIVED)])
def test_a_commit_gives_the_outcome(kind: int, state: object) -> None:
    world = pending_world(kind)
    world.share.end_transaction(T1, is_committed=True)
    assert world.share.window.at(Offset(15)).state is state
    assert world.share.next_write(world.now) is None, "the coordinator has done so"


def test_the_start_is_written_when_a_commit_moves_it() -> None:
    world = pending_world()
    assert world.acknowledge(say(0, 9, ACCEPT)) is None
    world.write()
    world.share.end_transaction(T1, is_committed=True)
    assert world.begin_write().start_offset == 20


def test_the_start_is_written_when_a_commit_comes_during_a_write() -> None:
    world = pending_world()
    assert world.acknowledge(say(0, 9, ACCEPT)) is None
    assert world.begin_write().start_offset == 10
    world.share.end_transaction(T1, is_committed=True)
    world.share.written(NONE, world.now)
    assert world.begin_write().start_offset == 20


def test_an_abort_gives_the_records_back() -> None:
    world = pending_world()
    world.share.end_transaction(T1, is_committed=False)
    assert world.fetch("m2") == [(10, 19, 2)]


def test_pending_records_have_no_timer() -> None:
    world = pending_world()
    world.pass_time(LOCK_MS * 100)
    assert world.story() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1 "]


def test_pending_records_outlive_their_members_session() -> None:
    world = pending_world()
    world.share.release("m1", world.now)
    assert world.story() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1 "]


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, RENEW])
def test_a_second_acknowledgement_of_a_pending_record_is_refused(kind: int) -> None:
    world = pending_world()
    answer = world.share.acknowledge("m1", [say(12, 12, kind)], "r2", world.now)
    assert answer is not None
    assert answer.error_code is ErrorCode.INVALID_RECORD_STATE
    assert answer.message == "offsets 12-12: acknowledged in a transaction that is open"


def test_a_record_that_another_member_has_finished_is_in_no_transaction() -> None:
    """Its copy would be the second one: the transaction must abort."""
    world = ShareWorld().load()
    assert world.fetch("m1") == [(0, 9, 1)]
    world.pass_time(LOCK_MS)
    assert world.fetch("m2") == [(0, 9, 2)]
    assert world.done(say(0, 9, ACCEPT), member="m2").error_code is NONE
    answer = world.share.acknowledge("m1", [say(0, 9, ACCEPT)], "r9", world.now, transaction=T1)
    assert answer is not None
    assert answer.error_code is ErrorCode.INVALID_RECORD_STATE
    assert world.share.acknowledge("m1", [say(0, 9, ACCEPT)], "r9", world.now) == (NONE, None)


@pytest.mark.parametrize("kind", [RELEASE, RENEW])
def test_a_transaction_accepts_and_rejects_only(kind: int) -> None:
    world = ShareWorld().load()
    world.fetch()
    assert world.acknowledge(say(0, 9, kind), transaction=T1) is ErrorCode.INVALID_REQUEST


def test_a_write_that_fails_leaves_the_records_with_their_member() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(0, 9, ACCEPT), transaction=T1)
    world.write(TIMED_OUT)
    assert world.story() == ["0-9 ACQUIRED 1 m1"]
    assert world.done(say(0, 9, ACCEPT)).error_code is NONE


def test_acknowledgements_of_a_transaction_that_is_not_open_are_refused_alone() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(10, 14, ACCEPT), request="r1", transaction=T1)
    world.acknowledge(say(15, 19, ACCEPT), request="r2")
    world.begin_write()
    settled = world.share.written(NONE, world.now, refused={T1})
    assert (settled.requests, settled.refused) == (("r2",), ("r1",))
    assert world.story() == ["0-14 ACQUIRED 1 m1", "15-19 ACKNOWLEDGED 1"]


@pytest.mark.parametrize(("is_committed", "left"), [(True, []), (False, ["0-9 AVAILABLE 1"])])
def test_a_transaction_may_end_before_its_write_is_answered(
    left: list[str], *, is_committed: bool
) -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(0, 9, ACCEPT), transaction=T1)
    world.begin_write()
    world.share.end_transaction(T1, is_committed=is_committed)
    world.end_write()
    assert world.story() == left


def test_a_new_leader_keeps_pending_records_pending() -> None:
    pending = [PendingBatch(Offset(2), Offset(4), ACKNOWLEDGED, 1, T1)]
    world = ShareWorld().load(pending=pending)
    assert world.story() == ["0-1 AVAILABLE 0", "2-4 ACQUIRED 1 "]
    assert world.fetch() == [(0, 1, 1), (5, 19, 1)]
    world.share.end_transaction(T1, is_committed=False)
    assert world.fetch("m2") == [(2, 4, 2), (20, 29, 1)]


def test_the_end_of_another_transaction_changes_nothing() -> None:
    world = pending_world()
    before = world.story()
    world.share.end_transaction(T2, is_committed=True)
    assert world.story() == before


def test_a_committed_reject_is_a_dead_letter() -> None:
    world = pending_world(REJECT, ShareSettings(has_dead_letters=True))
    assert world.share.take_dead_letters() == []
    world.share.end_transaction(T1, is_committed=True)
    assert world.share.window.at(Offset(10)).state is ARCHIVING
    assert world.share.take_dead_letters() == [(10, 19)]


def test_at_the_limit_an_abort_archives() -> None:
    world = pending_world(settings=ShareSettings(deliveries_max=1))
    world.share.end_transaction(T1, is_committed=False)
    assert world.story() == ["0-9 ACQUIRED 1 m1", "10-19 ARCHIVED 1"]


def test_browsing_shows_the_transaction() -> None:
    (seen,) = view(pending_world().share.window, Offset(12), Offset(13))
    assert (seen.member, seen.lock_ends_at, seen.transaction) == (None, None, T1)


def test_keys_of_pending_records_are_read_before_anything_is_acquired() -> None:
    world = ShareWorld(ShareSettings(is_key_ordered=True))
    keys = {Offset(0): 7, Offset(1): 7, Offset(2): 8}
    world.log = [LogBatch(Offset(0), Offset(2), keys=keys)]
    world.load(pending=[PendingBatch(Offset(0), Offset(0), ACKNOWLEDGED, 1, T1)])
    assert world.share.plan_read(world.now, "m1") == (0, 1)
    assert world.fetch() == []
    assert world.share.take_wakeup()
    assert world.fetch() == [(2, 2, 1)], "offset 1 waits for the transaction"


def test_locks_are_found_by_their_transaction_once() -> None:
    locks = TransactionLocks()
    lock = locks.lock(T1, ACKNOWLEDGED)
    assert locks.lock(T1, ACKNOWLEDGED) is lock
    assert locks.lock(T1, ARCHIVED) is not lock
    assert len(locks.end(T1)) == 2
    assert (locks.end(T1), len(locks)) == ([], 0)
