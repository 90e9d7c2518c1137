"""One share-partition at its leader: loading, locks, sessions, failover, dead letters."""

import pytest
from broker.core.share.settings import ShareSettings
from broker.core.share.share_partition import SharePartition
from broker.core.share.states import Phase
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, LeaderEpoch, Offset
from tidemark.model.share_state import UNKNOWN_START, ReadState, StateEpoch, StateRead, WriteState
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVING,
    AVAILABLE,
    KEY,
    LOCK_MS,
    REJECT,
    RELEASE,
    ShareWorld,
    say,
    state_batch,
)

NONE = ErrorCode.NONE
LETTERS = ShareSettings(deliveries_max=1, lock_ms=LOCK_MS, has_dead_letters=True)


def unread(code: ErrorCode) -> tuple[SharePartition, ErrorCode]:
    share = SharePartition(KEY, LeaderEpoch(4), ShareSettings())
    share.begin_load()
    read = StateRead(KEY, code)
    return share, share.loaded(read, log_start=Offset(0), reset_start=Offset(0)).error_code


# Loading.


def test_a_leader_reads_the_state_with_its_epoch() -> None:
    share = SharePartition(KEY, LeaderEpoch(4), ShareSettings())
    assert share.begin_load() == ReadState(KEY, LeaderEpoch(4))
    assert share.phase is Phase.INITIALIZING
    refused = share.answer_unless_active()
    assert refused is not None
    assert refused.error_code is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_first_start_is_written_before_anything_is_acquired() -> None:
    world = ShareWorld(start=UNKNOWN_START)
    world.share.begin_load()
    read = StateRead(KEY, NONE, start_offset=UNKNOWN_START)
    world.share.loaded(read, log_start=Offset(0), reset_start=Offset(30))
    assert world.fetch() == []
    assert world.begin_write() == WriteState(KEY, StateEpoch(0), LeaderEpoch(4), Offset(30), (), 0)
    world.end_write()
    assert world.fetch() == [(30, 39, 1)]


def test_a_first_start_that_cannot_be_written_is_tried_again() -> None:
    world = ShareWorld()
    world.share.begin_load()
    read = StateRead(KEY, NONE, start_offset=UNKNOWN_START)
    world.share.loaded(read, log_start=Offset(0), reset_start=Offset(30))
    world.write(ErrorCode.NOT_COORDINATOR)
    assert world.share.next_write(world.now) is None
    world.pass_time(world.settings.write_retry_ms)
    assert world.begin_write().start_offset == 30


@pytest.mark.parametrize(("log_start", "start"), [(0, 25), (25, 25), (31, 31)])
def test_the_window_begins_at_the_later_of_both_starts(log_start: int, start: int) -> None:
    world = ShareWorld(start=25).load(log_start=log_start)
    assert world.share.window.start == start


@pytest.mark.parametrize(
    ("code", "phase", "answer"),
    [
        (ErrorCode.NOT_COORDINATOR, Phase.EMPTY, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, Phase.FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, Phase.FENCED, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, Phase.FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_is_not_read(code: ErrorCode, phase: Phase, answer: ErrorCode) -> None:
    share, told = unread(code)
    assert (share.phase, told) == (phase, answer)


def test_a_state_that_is_none_is_refused() -> None:
    share, _ = unread(ErrorCode.NOT_COORDINATOR)
    share.begin_load()
    read = StateRead(KEY, NONE, batches=(state_batch(5, 4, AVAILABLE, 1),))
    answer = share.loaded(read, log_start=Offset(0), reset_start=Offset(0))
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert share.phase is Phase.FAILED


def test_a_state_that_comes_after_fencing_changes_nothing() -> None:
    share = SharePartition(KEY, LeaderEpoch(4), ShareSettings())
    share.begin_load()
    share.fence()
    answer = share.loaded(StateRead(KEY, NONE), log_start=Offset(0), reset_start=Offset(0))
    assert answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert share.phase is Phase.FENCED


# Locks and sessions.


def test_a_lock_ends_after_its_time_and_not_before() -> None:
    world = ShareWorld().load()
    world.fetch()
    assert world.share.next_deadline() == LOCK_MS
    world.pass_time(LOCK_MS - 1)
    assert world.story() == ["0-9 ACQUIRED 1 m1"]
    world.pass_time(1)
    assert world.fetch("m2") == [(0, 9, 2)]


@pytest.mark.parametrize("late", [LOCK_MS, LOCK_MS + 500])
def test_an_acknowledgement_after_the_lock_ended_is_refused(late: int) -> None:
    world = ShareWorld().load()
    world.fetch()
    world.now = InstantMs(late)  # no tick came in between
    assert world.acknowledge(say(0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE


def test_a_record_is_archived_after_its_last_delivery() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=2, lock_ms=LOCK_MS)).load()
    for delivery in (1, 2):
        assert world.fetch() == [(0, 9, delivery)]
        world.pass_time(LOCK_MS)
    assert world.share.window.start == 10


def test_a_session_that_ends_gives_back_what_it_holds() -> None:
    world = ShareWorld().load()
    world.fetch("m1")
    world.fetch("m2")
    world.share.release("m1", world.now)
    assert world.story() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1 m2"]
    assert world.share.take_wakeup()


def test_what_a_lost_session_acknowledged_holds_or_is_given_back() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(5, 9, ACCEPT))
    world.begin_write()
    world.share.release("m1", world.now)
    assert world.story() == ["0-4 AVAILABLE 1", "5-9 ACQUIRED 1 m1"]
    world.end_write(ErrorCode.REQUEST_TIMED_OUT)
    assert world.story() == ["0-9 AVAILABLE 1"]


def test_settings_change_for_what_follows() -> None:
    world = ShareWorld().load()
    world.fetch("m1")
    world.share.configure(ShareSettings(lock_ms=10))
    world.fetch("m2")
    world.pass_time(10)
    assert world.story() == ["0-9 ACQUIRED 1 m1", "10-19 AVAILABLE 1"]


# Reading plans.


def test_a_plan_reads_what_is_available_and_no_more() -> None:
    world = ShareWorld().load()
    assert world.share.plan_read(world.now, "m1") == (0, None)
    world.fetch(records=20)
    world.done(say(3, 5, RELEASE))
    assert world.share.plan_read(world.now, "m1") == (3, 6)
    world.done(say(6, 19, RELEASE))
    assert world.share.plan_read(world.now, "m1") == (3, None)


def test_a_full_window_plans_nothing() -> None:
    world = ShareWorld(ShareSettings(records_max=10)).load()
    world.fetch()
    assert world.share.plan_read(world.now, "m1") is None


# The log.


def test_records_that_the_log_dropped_are_finished() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.share.log_start_moved(Offset(15), world.now)
    assert world.story() == ["15-19 ACQUIRED 1 m1"]
    assert world.done(say(10, 19, ACCEPT)).error_code is NONE
    assert world.share.window.start == 20


def test_the_log_may_drop_what_is_being_written() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(0, 19, ACCEPT))
    world.begin_write()
    world.share.log_start_moved(Offset(30), world.now)
    assert world.end_write().answer.error_code is NONE
    assert (world.share.window.start, world.share.window.end) == (30, 30)


# Fencing.


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_fenced_leader_drops_everything(code: ErrorCode, answer: ErrorCode) -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(0, 9, ACCEPT), request="r1")
    world.begin_write()
    world.acknowledge(say(10, 19, ACCEPT), request="r2")
    settled = world.end_write(code)
    assert (settled.answer.error_code, settled.requests) == (answer, ("r1", "r2"))
    assert world.share.phase is Phase.FENCED
    assert world.fetch() == []


def test_an_answer_after_fencing_changes_nothing() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.acknowledge(say(0, 9, ACCEPT))
    world.begin_write()
    world.share.fence()
    assert world.end_write().requests == ()


def test_nothing_is_acknowledged_at_a_fenced_leader() -> None:
    world = ShareWorld().load()
    world.fetch()
    world.share.fence()
    assert world.acknowledge(say(0, 9, ACCEPT)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_was_acquired_is_available_at_the_next_leader() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.acknowledge(say(10, 19, ACCEPT))
    write = world.begin_write()
    following = ShareWorld().load(*write.batches)
    assert following.story() == ["0-9 AVAILABLE 0", "10-19 ACKNOWLEDGED 1"]


# Dead letters.


def test_a_rejected_record_is_a_dead_letter_once_that_is_written() -> None:
    world = ShareWorld(LETTERS).load()
    world.fetch()
    world.acknowledge(say(2, 3, REJECT))
    world.begin_write()
    assert world.share.take_dead_letters() == []
    world.end_write()
    assert world.share.take_dead_letters() == [(2, 3)]
    assert world.share.take_dead_letters() == []


def test_an_exhausted_record_is_a_dead_letter_once_that_is_written() -> None:
    world = ShareWorld(LETTERS).load()
    world.fetch()
    world.pass_time(LOCK_MS)
    assert world.begin_write().batches == (state_batch(0, 9, ARCHIVING, 1),)
    assert world.share.take_dead_letters() == []
    world.end_write()
    assert world.share.take_dead_letters() == [(0, 9)]


def test_dead_letters_hold_up_nothing_else() -> None:
    world = ShareWorld(LETTERS).load()
    world.fetch()
    world.done(say(0, 9, REJECT))
    assert world.fetch("m2") == [(10, 19, 1)]
    world.done(say(10, 19, ACCEPT), member="m2")
    assert world.story() == ["0-9 ARCHIVING 1", "10-19 ACKNOWLEDGED 1"]


def test_a_copied_dead_letter_is_archived() -> None:
    world = ShareWorld(LETTERS).load(
        state_batch(0, 3, ARCHIVING, 1), state_batch(4, 5, AVAILABLE, 0)
    )
    assert world.share.take_dead_letters() == [(0, 3)]
    world.share.copied(Offset(0), Offset(1))
    world.share.copied(Offset(3), Offset(3))
    assert world.story() == ["2-2 ARCHIVING 1", "3-3 ARCHIVED 1", "4-5 AVAILABLE 0"]
    assert world.share.window.start == 2


def test_dead_letters_that_the_log_dropped_are_not_named() -> None:
    world = ShareWorld(LETTERS).load(state_batch(0, 9, ARCHIVING, 1))
    world.share.log_start_moved(Offset(5), world.now)
    assert world.share.take_dead_letters() == [(5, 9)]
    world.share.copied(Offset(0), Offset(9))
    assert world.share.window.start == 10


def test_a_share_partition_is_shown_in_one_line() -> None:
    world = ShareWorld().load(state_batch(0, 4, AVAILABLE, 1), state_batch(5, 9, ACKNOWLEDGED, 1))
    assert str(world.share).endswith("-0 Active e4 0/_10 available 5 acquired 0")
