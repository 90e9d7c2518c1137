"""What the share-coordinator is to keep: one write at a time."""

from broker.core.share.settings import ShareSettings
from broker.core.share.state_writes import START_WRITTEN_MS, state_batches
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import StateEpoch, WriteState
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    KEY,
    LOCK_MS,
    REJECT,
    RELEASE,
    ShareWorld,
    log_batch,
    say,
    state_batch,
)

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
EPOCHS = (StateEpoch(7), LeaderEpoch(4))


def test_a_write_names_epochs_start_and_what_changed() -> None:
    world = ShareWorld().load()
    world.fetch(records=30)
    world.acknowledge(say(10, 19, RELEASE), say(20, 29, ACCEPT))
    batches = (state_batch(10, 19, AVAILABLE, 1), state_batch(20, 29, ACKNOWLEDGED, 1))
    assert world.begin_write() == WriteState(KEY, *EPOCHS, Offset(0), batches, 10)


def test_a_write_moves_the_start_with_what_it_finishes() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(0, 9, ACCEPT))
    assert world.begin_write() == WriteState(KEY, *EPOCHS, Offset(10), (), 0)
    assert world.share.window.start == 0, "not before it is written"
    world.end_write()
    assert world.share.window.start == 10


def test_a_turn_of_many_requests_is_one_write() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(12, 13, ACCEPT), request="r1")
    world.acknowledge(say(10, 11, ACCEPT), request="r2")
    assert world.begin_write().batches == (state_batch(10, 13, ACKNOWLEDGED, 1),)
    assert world.end_write().requests == ("r1", "r2")


def test_while_a_write_is_under_way_the_next_one_gathers() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(10, 11, ACCEPT), request="r1")
    world.begin_write()
    world.acknowledge(say(12, 13, REJECT), request="r2")
    assert world.share.next_write(world.now) is None
    assert world.end_write().requests == ("r1",)
    assert world.begin_write().batches == (state_batch(12, 13, ARCHIVED, 1),)


def test_a_write_that_fails_is_rolled_back() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(0, 4, ACCEPT))
    settled = world.write(TIMED_OUT)
    assert settled.answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert settled.requests == ("r1",)
    assert world.story() == ["0-9 ACQUIRED 1 m1"]
    assert world.done(say(0, 9, ACCEPT)).error_code is ErrorCode.NONE


def test_a_lock_that_expires_while_a_write_fails_is_over() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(0, 4, ACCEPT))
    world.begin_write()
    world.pass_time(LOCK_MS)
    assert world.story() == ["0-4 ACQUIRED 1 m1", "5-9 AVAILABLE 1"]
    world.end_write(TIMED_OUT)
    assert world.story() == ["0-9 AVAILABLE 1"]


def test_a_lock_that_expires_while_a_write_holds_changes_nothing() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(10, 19, ACCEPT))
    world.begin_write()
    world.pass_time(LOCK_MS)
    world.end_write()
    assert world.story() == ["0-9 AVAILABLE 1", "10-19 ACKNOWLEDGED 1"]


def test_at_the_limit_a_failed_write_archives_what_expired() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=1, lock_ms=LOCK_MS)).load()
    world.fetch()
    world.acknowledge(say(0, 4, RELEASE))
    world.begin_write()
    world.pass_time(LOCK_MS)
    world.end_write(TIMED_OUT)
    assert world.share.window.start == 10


def test_expired_locks_are_written_without_a_request() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.pass_time(LOCK_MS)
    assert world.begin_write().batches == (state_batch(0, 9, AVAILABLE, 1),)
    assert world.end_write().requests == ()


def test_what_holds_already_is_written_again_after_a_while() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.pass_time(LOCK_MS)
    world.write(TIMED_OUT)
    assert world.share.next_write(world.now) is None
    retry_at = world.share.next_deadline()
    assert retry_at == world.now + world.settings.write_retry_ms
    world.pass_time(world.settings.write_retry_ms)
    assert world.begin_write().batches == (state_batch(0, 9, AVAILABLE, 1),)


def test_what_a_member_waits_for_is_not_delayed_by_a_failure() -> None:
    world = ShareWorld().load()
    world.fetch("m2")
    world.pass_time(LOCK_MS)
    world.write(TIMED_OUT)
    world.fetch("m1")
    world.acknowledge(say(0, 9, RELEASE))
    assert world.begin_write().batches == (state_batch(0, 9, AVAILABLE, 2),)


def test_a_record_that_was_acquired_since_is_written_as_available() -> None:
    world = ShareWorld().load()
    world.fetch("m2")
    world.pass_time(LOCK_MS)
    assert world.fetch("m1") == [(0, 9, 2)]
    assert world.begin_write().batches == (state_batch(0, 9, AVAILABLE, 1),)


def test_batches_are_ordered_joined_and_cut_at_the_start() -> None:
    given = [
        state_batch(8, 9, ARCHIVED, 2),
        state_batch(0, 2, ACKNOWLEDGED, 1),
        state_batch(3, 6, ARCHIVED, 2),
        state_batch(7, 7, ARCHIVED, 2),
        state_batch(10, 10, ARCHIVED, 1),
    ]
    assert state_batches(given, Offset(4)) == (
        state_batch(4, 9, ARCHIVED, 2),
        state_batch(10, 10, ARCHIVED, 1),
    )


def test_complete_deliveries_are_counted_with_what_is_being_written() -> None:
    world = ShareWorld().load(state_batch(5, 9, ACKNOWLEDGED, 1))
    world.fetch(records=20)
    world.acknowledge(say(1, 2, REJECT))
    assert world.begin_write().delivery_complete_count == 7


def test_a_start_that_passed_control_batches_is_written_before_long() -> None:
    # The lag of a group that has finished would count the marker of the last transaction for ever.
    world = ShareWorld().load()
    world.log = [log_batch(0, 9)]
    world.fetch()
    world.done(say(0, 9, ACCEPT))
    world.log.append(log_batch(10, 10, has_records=False))
    assert world.fetch() == []
    assert world.share.window.start == 11
    assert world.share.next_write(world.now) is None
    assert not world.share.is_idle
    assert world.share.next_deadline() == world.now + START_WRITTEN_MS
    world.pass_time(START_WRITTEN_MS)
    write = world.begin_write()
    assert (write.start_offset, write.batches, write.delivery_complete_count) == (11, (), 0)
    world.end_write(TIMED_OUT)
    world.pass_time(world.settings.write_retry_ms)
    assert world.begin_write().start_offset == 11
    world.end_write()
    assert world.share.is_idle


def test_a_start_that_the_log_moved_is_written_before_long() -> None:
    world = ShareWorld().load()
    world.share.log_start_moved(Offset(15), world.now)
    assert world.share.next_write(world.now) is None
    world.pass_time(START_WRITTEN_MS)
    assert world.begin_write().start_offset == 15


def test_a_start_goes_with_the_next_write_of_what_is_acquired() -> None:
    world = ShareWorld().load()
    world.log = [log_batch(0, 4, has_records=False), log_batch(5, 9)]
    world.fetch()
    assert world.share.window.start == 5
    assert world.share.next_deadline() == world.now + LOCK_MS
    world.acknowledge(say(5, 9, ACCEPT))
    assert world.begin_write().start_offset == 10
    world.end_write()
    assert world.share.next_deadline() is None


def test_a_write_that_fails_keeps_the_start_that_went_with_it() -> None:
    world = ShareWorld().load()
    world.log = [log_batch(0, 4, has_records=False)]
    world.fetch()
    world.log.append(log_batch(5, 9))
    world.fetch()
    world.acknowledge(say(5, 9, RELEASE))
    assert world.begin_write().start_offset == 5
    world.end_write(TIMED_OUT)
    world.pass_time(world.settings.write_retry_ms)
    assert world.begin_write().start_offset == 5
