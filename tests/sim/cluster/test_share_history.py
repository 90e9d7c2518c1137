"""Each rule for share groups rejects a history made by hand, and accepts a similar one that keeps
the rule.
"""

from collections.abc import Callable

import pytest
from broker.core.share.acknowledgement import AcknowledgeType
from share_coordinator.core.share_states import ShareStates
from tidemark.codec.control_record import OwnerRecord
from tidemark.codec.share_records import (
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareUpdateRecord,
    ShareUpdateValue,
)
from tidemark.codec.share_transaction_records import TransactionEndRecord, TransactionEndValue
from tidemark.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    TransactionKey,
)

from sim.checkers import BrokenError
from sim.cluster.share_history import ShareHistory, Term
from sim.cluster.share_state_log import ShareStateLog

KEY = SharePartitionKey("g", TopicId(bytes(16)), 0)
ACCEPT, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = DeliveryState
EPOCH = 5
TRANSACTION = TransactionKey(ProducerId(1), ProducerEpoch(5))
LOCK_MS = 100
LIMIT = 3


class Told:
    """A history and a state log: offsets 0 to 9 are delivered once, to m1; 0 to 4 are accepted and
    written, 5 is rejected.
    """

    def __init__(self) -> None:
        self.history = ShareHistory(LIMIT)
        self.log = ShareStateLog("state-0", self.history)
        self.log.takes_over(OwnerRecord(2))
        self.snapshot(start=0, state_epoch=EPOCH)
        self.term = self.history.loads(KEY, EPOCH, {})
        self.acquires("m1", 0, 9, 1, now=0)
        self.history.takes(self.term, "m1", [(0, 4, ACCEPT), (5, 5, REJECT)])
        self.update(0, (0, 4, ACKNOWLEDGED, 1), (5, 5, ARCHIVED, 1))
        for offset in range(6):
            self.history.answers(KEY, EPOCH, offset)

    def snapshot(
        self,
        *batches: tuple[int, int, DeliveryState, int],
        start: int,
        state_epoch: int = EPOCH,
        leader_epoch: int = 1,
    ) -> None:
        value = ShareSnapshotValue(
            snapshot_epoch=0,
            state_epoch=StateEpoch(state_epoch),
            leader_epoch=LeaderEpoch(leader_epoch),
            start_offset=Offset(start),
            create_timestamp=0,
            write_timestamp=0,
            batches=tuple(made(*one) for one in batches),
        )
        self.log.takes(ShareSnapshotRecord(KEY, value))

    def update(
        self, start: int, *batches: tuple[int, int, DeliveryState, int], leader_epoch: int = 1
    ) -> None:
        value = ShareUpdateValue(
            snapshot_epoch=0,
            leader_epoch=LeaderEpoch(leader_epoch),
            start_offset=Offset(start),
            batches=tuple(made(*one) for one in batches),
        )
        self.log.takes(ShareUpdateRecord(KEY, value))

    def holds(self, *, count: int = 1) -> None:
        """Offset 6 is accepted within a transaction, and its member is told so."""
        self.history.takes(self.term, "m1", [(6, 6, ACCEPT)], TRANSACTION)
        pending = PendingBatch(Offset(6), Offset(6), ACKNOWLEDGED, count, TRANSACTION)
        value = ShareUpdateValue(
            snapshot_epoch=0,
            leader_epoch=LeaderEpoch(1),
            start_offset=Offset(0),
            pending=(pending,),
        )
        self.log.takes(ShareUpdateRecord(KEY, value))
        self.history.holds(TRANSACTION, KEY, EPOCH, [6])

    def ends(self, *, commits: bool) -> None:
        """The transaction ends in the state."""
        value = TransactionEndValue(open_from=6, commits=commits, ended_at=0, held=(KEY,))
        self.log.ends_transactions(TransactionEndRecord(ProducerId(1), value))

    def acquires(
        self, member: str, first: int, last: int, count: int, *, now: int, term: Term | None = None
    ) -> None:
        self.history.acquires(
            term or self.term, member, first, last, count, now=now, lock_ms=LOCK_MS
        )


def made(first: int, last: int, state: DeliveryState, count: int) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count)


def acknowledged_again(told: Told) -> None:
    told.acquires("m2", 4, 4, 2, now=LOCK_MS)


def two_locks(told: Told) -> None:
    told.acquires("m2", 6, 6, 2, now=LOCK_MS - 1)


def too_often(told: Told) -> None:
    told.acquires("m2", 6, 6, LIMIT + 1, now=LOCK_MS)


def same_count(told: Told) -> None:
    told.acquires("m2", 6, 6, 1, now=LOCK_MS)


def give_back(told: Told, count: int, *, holds: bool) -> None:
    """m1 returns 6 as never received, and releases 7 with a delay until 900."""
    told.term.give_backs.unseen_max = 1
    told.history.takes(told.term, "m1", [(6, 7, AcknowledgeType.RELEASE)])
    told.term.give_backs.returns(6, count)
    told.term.give_backs.delays(7, count, 900)
    told.history.begins_write(told.term)
    told.history.has_written(told.term, holds=holds)


def delayed_too_short(told: Told) -> None:
    give_back(told, 1, holds=True)
    told.acquires("m2", 7, 7, 2, now=899)


def counted_unseen(told: Told) -> None:
    give_back(told, 1, holds=True)
    told.acquires("m2", 6, 6, 2, now=0)


def unseen_too_often(told: Told) -> None:
    give_back(told, 1, holds=True)
    told.acquires("m1", 6, 6, 1, now=900)
    told.acquires("m1", 7, 7, 2, now=900)
    give_back(told, 1, holds=True)
    told.acquires("m1", 6, 6, 1, now=1_900)


def not_the_holder(told: Told) -> None:
    told.history.takes(told.term, "m2", [(6, 6, ACCEPT)])


def still_locked(told: Told) -> None:
    told.history.has_closed(told.term, "m1")


def written_by_an_earlier_leader(told: Told) -> None:
    told.history.loads(KEY, EPOCH, {}, leader_epoch=2)
    told.history.begins_write(told.term)
    told.history.has_written(told.term)


def key_of_another_member(told: Told) -> None:
    told.history.key_of = lambda _, offset: b"%d" % (offset % 3)
    told.acquires("m2", 10, 10, 1, now=LOCK_MS - 1)


def before_an_earlier_one_of_its_key(told: Told) -> None:
    told.history.key_of = lambda _, offset: b"%d" % (offset % 3)
    told.acquires("m2", 10, 10, 1, now=LOCK_MS)


def held_by_a_transaction(told: Told) -> None:
    told.holds()
    told.acquires("m2", 6, 6, 2, now=LOCK_MS)


def finished_before_the_decision(told: Told) -> None:
    told.holds()
    told.update(0, (6, 6, ACKNOWLEDGED, 1))


def given_back_by_a_commit(told: Told) -> None:
    told.holds()
    told.history.transactions.decides(1, 6, commits=True)
    told.acquires("m2", 6, 6, 2, now=LOCK_MS)


def finished_by_an_abort(told: Told) -> None:
    told.holds()
    told.history.transactions.decides(1, 6, commits=False)
    told.update(0, (6, 6, ACKNOWLEDGED, 1))


def ended_otherwise(told: Told) -> None:
    told.holds()
    told.history.transactions.decides(1, 6, commits=False)
    told.ends(commits=True)


def snapshot_without_pending(told: Told) -> None:
    told.holds()
    told.snapshot((0, 4, ACKNOWLEDGED, 1), (5, 5, ARCHIVED, 1), start=0)


def start_too_far(told: Told) -> None:
    told.update(7)


def never_accepted(told: Told) -> None:
    told.update(0, (6, 6, ACKNOWLEDGED, 1))


def never_rejected(told: Told) -> None:
    told.update(0, (6, 6, ARCHIVED, 1))


def counted_without_delivery(told: Told) -> None:
    told.update(0, (6, 6, AVAILABLE, 2))


def lock_written(told: Told) -> None:
    told.update(0, (6, 6, ACQUIRED, 1))


def earlier_leader(told: Told) -> None:
    told.update(0, leader_epoch=0)


def finished_no_longer(told: Told) -> None:
    told.acquires("m1", 6, 6, 2, now=LOCK_MS)
    told.history.deliveries[KEY, EPOCH].attempts[4] = 2
    told.update(0, (4, 4, AVAILABLE, 2))


def snapshot_with_less(told: Told) -> None:
    told.snapshot((0, 4, ACKNOWLEDGED, 1), start=0)


def start_goes_back(told: Told) -> None:
    told.update(5)
    told.snapshot((5, 5, ARCHIVED, 1), start=4)


def start_beyond_a_lost_end(told: Told) -> None:
    told.update(6)
    told.history.loses(KEY, 2, 4)
    told.update(6, leader_epoch=2)


def acknowledged_at_a_lost_offset(told: Told) -> None:
    told.history.loses(KEY, 2, 4)
    told.update(0, (4, 4, ACKNOWLEDGED, 1), leader_epoch=2)


def start_below_a_lost_end(told: Told) -> None:
    told.update(6)
    told.history.loses(KEY, 2, 4)
    told.snapshot(start=3, leader_epoch=2)


def same_state_epoch(told: Told) -> None:
    told.log.takes(ShareSnapshotRecord(KEY, None))
    told.snapshot(start=0)


def begins_with_deliveries(told: Told) -> None:
    told.snapshot((0, 4, ACKNOWLEDGED, 1), start=0, state_epoch=EPOCH + 1)


def earlier_owner(told: Told) -> None:
    told.log.takes_over(OwnerRecord(1))


def owner_without_it(told: Told) -> None:
    told.log.remembers("s1", ShareStates(500))


def left_over(told: Told) -> None:
    told.history.ends({KEY: 6}, {KEY: 10})


@pytest.mark.parametrize(
    ("story", "promise"),
    [
        (acknowledged_again, "an acknowledged record never comes again"),
        (two_locks, "a record has one lock"),
        (too_often, "the delivery count is within its limit"),
        (same_count, "every delivery raises the count"),
        (delayed_too_short, "a delayed record is not delivered before its time"),
        (counted_unseen, "a delivery counts unless its record was never received"),
        (unseen_too_often, "every delivery raises the count"),
        (not_the_holder, "only the holder of a lock acknowledges"),
        (still_locked, "a session that is closed holds no lock"),
        (written_by_an_earlier_leader, "a write of an earlier leader does not hold"),
        (key_of_another_member, "under key order no two members hold one key"),
        (
            before_an_earlier_one_of_its_key,
            "under key order the earlier records of a key are finished",
        ),
        (held_by_a_transaction, "an open transaction holds its records"),
        (finished_before_the_decision, "an open transaction holds its records"),
        (given_back_by_a_commit, "a committed transaction's acknowledgements hold all"),
        (finished_by_an_abort, "an aborted transaction's acknowledgements hold none"),
        (ended_otherwise, "acknowledgements end as their transaction"),
        (snapshot_without_pending, "a snapshot has all that was written"),
        (start_too_far, "the start passes finished records only"),
        (never_accepted, "only what a member accepts is acknowledged"),
        (never_rejected, "only what is rejected, or delivered too often, is archived"),
        (counted_without_delivery, "a delivery count has its deliveries"),
        (lock_written, "locks are not written"),
        (earlier_leader, "the state takes no write of an earlier leader"),
        (finished_no_longer, "a record whose acknowledgement was answered stays finished"),
        (snapshot_with_less, "a snapshot has all that was written"),
        (start_goes_back, "the start never goes back"),
        (start_beyond_a_lost_end, "the start passes finished records only"),
        (acknowledged_at_a_lost_offset, "a delivery count has its deliveries"),
        (start_below_a_lost_end, "the start never goes back"),
        (same_state_epoch, "a state that begins again has a higher epoch"),
        (begins_with_deliveries, "a state begins without deliveries"),
        (earlier_owner, "the log has one owner after another"),
        (owner_without_it, "an owner holds what the log says"),
        (left_over, "after healing every record is finished"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_broken_promise_is_noticed(story: Callable[[Told], None], promise: str) -> None:
    told = Told()
    with pytest.raises(BrokenError) as broken:
        story(told)
    assert broken.value.invariant == promise


def test_a_history_that_keeps_the_rules_is_accepted() -> None:
    told = Told()
    told.acquires("m2", 6, 6, 2, now=LOCK_MS)
    told.history.takes(told.term, "m2", [(6, 6, ACCEPT)])
    told.history.renews(told.term, "m1", [(7, 9)], 2 * LOCK_MS)
    told.history.releases(told.term, "m1")
    told.history.has_closed(told.term, "m1")
    told.update(7)
    told.snapshot(start=7, state_epoch=EPOCH)
    told.snapshot(start=0, state_epoch=EPOCH + 1)
    later = told.history.loads(KEY, EPOCH + 1, {})
    told.acquires("m1", 0, 9, 1, now=0, term=later)
    told.history.begins_write(told.term)
    told.history.loads(KEY, EPOCH, {}, leader_epoch=2)
    told.history.has_written(told.term)
    told.history.ends({KEY: 10}, {KEY: 10})


def test_records_at_offsets_that_a_log_has_lost_are_others() -> None:
    told = Told()
    told.update(6)
    told.history.loses(KEY, 3, 5)
    told.update(6, leader_epoch=2)  # the last leader that has them
    told.history.loses(KEY, 4, 4)
    told.snapshot(start=4, leader_epoch=5)
    later = told.history.loads(KEY, EPOCH, {}, leader_epoch=5)
    told.acquires("m1", 4, 6, 1, now=0, term=later)
    told.history.takes(later, "m1", [(4, 6, ACCEPT)])
    told.update(7, leader_epoch=5)
    told.history.ends({KEY: 7}, {KEY: 7})


def test_give_backs_that_keep_the_rules_are_accepted() -> None:
    told = Told()
    give_back(told, 1, holds=True)
    told.acquires("m2", 6, 6, 1, now=0)
    told.acquires("m2", 7, 7, 2, now=900)
    other = Told()
    give_back(other, 1, holds=False)
    other.acquires("m2", 6, 7, 2, now=LOCK_MS)


def test_a_transaction_that_keeps_the_rules_is_accepted() -> None:
    told = Told()
    told.holds()
    told.history.transactions.decides(1, 6, commits=True)
    told.ends(commits=True)
    told.update(7)
    assert told.log.states[KEY].pending == {}
    other = Told()
    other.holds()
    other.history.transactions.decides(1, 6, commits=False)
    other.ends(commits=False)
    other.acquires("m2", 6, 6, 2, now=LOCK_MS)


def delivered_again(told: Told) -> None:
    """The answer to an accepting write of 6 is lost, and a transaction holds the next delivery."""
    told.history.takes(told.term, "m1", [(6, 6, ACCEPT)])
    told.acquires("m1", 6, 6, 2, now=LOCK_MS)
    told.holds(count=2)


def test_an_earlier_acknowledgement_may_be_written_under_a_pending_one() -> None:
    told = Told()
    delivered_again(told)
    told.update(0, (6, 6, ACKNOWLEDGED, 1))
    told.history.transactions.decides(1, 6, commits=False)
    told.ends(commits=False)
    told.acquires("m2", 6, 6, 3, now=2 * LOCK_MS)
    other = Told()
    delivered_again(other)
    with pytest.raises(BrokenError, match="an open transaction holds its records"):
        other.update(0, (6, 6, ACKNOWLEDGED, 2))


def test_key_order_that_keeps_the_rules_is_accepted() -> None:
    told = Told()
    told.history.key_of = lambda _, offset: b"%d" % (offset % 3)
    told.acquires("m1", 10, 10, 1, now=LOCK_MS - 1)
    told.history.takes(told.term, "m1", [(6, 10, ACCEPT)])
    told.update(0, (6, 10, ACKNOWLEDGED, 1))
    told.acquires("m2", 11, 13, 1, now=LOCK_MS)
