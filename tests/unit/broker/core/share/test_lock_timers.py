"""Timers of locks and delays."""

from broker.core.share.lock_timers import LockTimers
from broker.core.share.window import Lock
from tidemark.model.ids import InstantMs, Offset


def lock_until(deadline: int, records: int = 1) -> Lock:
    lock = Lock("m1", InstantMs(deadline))
    if records:
        lock.hold(Offset(0), Offset(records - 1))
    return lock


def started(*locks: Lock) -> LockTimers:
    timers = LockTimers()
    for lock in locks:
        timers.start(lock)
    return timers


def test_a_lock_ends_at_its_deadline_and_not_before() -> None:
    lock = lock_until(10)
    timers = started(lock)
    assert timers.ended(InstantMs(9)) == []
    assert timers.ended(InstantMs(10)) == [lock]
    assert timers.ended(InstantMs(11)) == []


def test_a_lock_that_holds_nothing_never_ends() -> None:
    timers = started(lock_until(10, records=0))
    assert timers.next_deadline() is None
    assert timers.ended(InstantMs(10)) == []


def test_the_next_deadline_is_the_earliest_of_what_still_holds() -> None:
    given_up = lock_until(5)
    given_up.is_over = True
    timers = started(lock_until(30), given_up, lock_until(20))
    assert timers.next_deadline() == 20


def test_delays_end_together_from_the_lowest_offset() -> None:
    timers = LockTimers()
    for offset, ready_at in ((9, 5), (3, 5), (1, 8)):
        timers.delay(Offset(offset), InstantMs(ready_at))
    assert timers.next_deadline() == 5
    assert timers.ready(InstantMs(5)) == 3
    assert timers.ready(InstantMs(5)) is None
    assert timers.ready(InstantMs(8)) == 1


def test_locks_that_were_acknowledged_do_not_pile_up() -> None:
    timers = LockTimers()
    for _ in range(10_000):
        lock = lock_until(1_000)
        timers.start(lock)
        lock.records = 0
    assert len(timers) <= 64


def test_locks_that_hold_are_kept_however_many_do_not() -> None:
    held = [lock_until(deadline) for deadline in range(100)]
    timers = started(*held)
    for _ in range(1_000):
        timers.start(lock_until(1_000, records=0))
    assert timers.ended(InstantMs(99)) == held
