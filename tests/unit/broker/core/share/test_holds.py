"""What a member or a transaction holds of a window."""

from broker.core.share.holds import belongs_to, end_locks_of, held_by
from broker.core.share.states import ACQUIRED
from broker.core.share.window import Lock, Range, Transition, Window
from tidemark.model.ids import InstantMs, Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import DeliveryState, TransactionKey

TRANSACTION = TransactionKey(ProducerId(7), ProducerEpoch(0))
OTHER = TransactionKey(ProducerId(8), ProducerEpoch(0))


def window_of(*members: str) -> tuple[Window, list[Lock]]:
    """Ten records for each member, delivered twice."""
    window = Window(Offset(0), 3)
    locks = []
    for number, member in enumerate(members):
        first, last = Offset(10 * number), Offset(10 * number + 9)
        lock = Lock(member, InstantMs(100))
        lock.hold(first, last)
        window.append(Range(first, last, ACQUIRED, 2, lock))
        locks.append(lock)
    return window, locks


def test_a_lock_holds_its_ranges_without_those_that_are_being_written() -> None:
    window, (first, second) = window_of("a", "b")
    assert [one.first for one in held_by(window, second)] == [10]
    window.at(Offset(0)).transition = Transition(DeliveryState.ACKNOWLEDGED, 2)
    assert held_by(window, first) == []


def test_all_locks_of_a_member_end() -> None:
    window, locks = window_of("a", "b", "a")
    assert [one.first for one in end_locks_of(window, "a")] == [0, 20]
    assert [lock.is_over for lock in locks] == [True, False, True]


def test_a_range_belongs_to_the_transaction_that_is_being_written() -> None:
    window, _ = window_of("a")
    one = window.at(Offset(0))
    assert not belongs_to(one, [TRANSACTION])
    pending = (TRANSACTION, DeliveryState.ACKNOWLEDGED)
    one.transition = Transition(ACQUIRED, 2, pending=pending)
    assert belongs_to(one, [OTHER, TRANSACTION])
    assert not belongs_to(one, [OTHER])
