from dataclasses import replace

import pytest
from broker.core.directory_move import (
    CLOSING_CHUNKS_MAX,
    SYNC_EVERY_BYTES,
    Advance,
    Copy,
    Cut,
    DirectoryMove,
    FutureView,
    LogView,
    Phase,
    Place,
    Restart,
    Swap,
    Sync,
    Verdict,
    Wanted,
    common_end,
    judge,
)
from broker.core.leader_epochs import LeaderEpochs
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode

HERE = Wanted(Place.HERE, name_fits=True, is_listed=True, is_online=True)


@pytest.mark.feature("AD92")
@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (replace(HERE, name_fits=False, is_listed=False), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (replace(HERE, is_listed=False), ErrorCode.LOG_DIR_NOT_FOUND),
        (replace(HERE, is_online=False), ErrorCode.KAFKA_STORAGE_ERROR),
        (replace(HERE, place=Place.FAILED), ErrorCode.KAFKA_STORAGE_ERROR),
        (replace(HERE, all_online=False), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_is_refused_leaves_everything_as_it_is(wanted: Wanted, error: ErrorCode) -> None:
    assert judge(wanted) == Verdict(error)


@pytest.mark.feature("AD92")
def test_a_directory_is_remembered_for_a_replica_that_is_not_there_yet() -> None:
    not_yet = judge(replace(HERE, place=Place.NOT_YET))
    assert not_yet == Verdict(ErrorCode.REPLICA_NOT_AVAILABLE, remembers=True)
    unknown = judge(replace(HERE, place=Place.UNKNOWN))
    assert unknown == Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, remembers=True)


@pytest.mark.feature("AD92")
def test_another_target_replaces_the_first_and_the_same_one_changes_nothing() -> None:
    assert judge(HERE) == Verdict(ErrorCode.NONE, begins=True)
    assert judge(replace(HERE, is_current=True)) == Verdict(ErrorCode.NONE)
    moving = replace(HERE, moves=True)
    assert judge(moving) == Verdict(ErrorCode.NONE, cancels=True, begins=True)
    assert judge(replace(moving, is_future=True)) == Verdict(ErrorCode.NONE)
    assert judge(replace(moving, is_current=True)) == Verdict(ErrorCode.NONE, cancels=True)


def closing(log: LogView, future: FutureView) -> DirectoryMove:
    move = DirectoryMove()
    assert move.next_step(log, future) == Sync()
    return move


@pytest.mark.feature("AD92")
def test_a_copy_is_synced_once_before_it_takes_the_place() -> None:
    log = LogView(0, 10, 10)
    move = DirectoryMove()
    assert move.next_step(log, FutureView(0, 4, 0)) == Copy(4, at_once=False)
    assert move.next_step(log, FutureView(0, 10, 0)) == Sync()
    assert move.next_step(log, FutureView(0, 10, 0)) == Sync(), "that round failed"
    move.synced()
    assert move.next_step(log, FutureView(0, 10, 10)) == Swap()


@pytest.mark.feature("AD92")
def test_what_counts_as_synced_waits_for_the_copy_while_the_move_closes() -> None:
    move = DirectoryMove()
    assert move.counted_end(10, 0) == 10
    assert move.next_step(LogView(0, 10, 8), FutureView(0, 10, 0)) == Sync()
    assert move.counted_end(12, 9) == 9
    move.synced()
    assert move.next_step(LogView(0, 12, 9), FutureView(0, 10, 9)) == Copy(10, at_once=True)
    assert move.next_step(LogView(0, 12, 9), FutureView(0, 12, 9)) == Swap()


@pytest.mark.feature("AD92")
def test_a_move_that_falls_behind_copies_with_pauses_again() -> None:
    log, future = LogView(0, 10, 0), FutureView(0, 10, 0)
    move = closing(log, future)
    more = LogView(0, 99, 0)
    for _ in range(CLOSING_CHUNKS_MAX):
        assert move.next_step(more, future) == Copy(10, at_once=True)
    assert move.next_step(more, future) == Copy(10, at_once=False)
    assert move.phase is Phase.COPYING


@pytest.mark.feature("AD92")
def test_the_future_log_follows_cuts_and_starts_of_the_log() -> None:
    move = DirectoryMove()
    assert move.next_step(LogView(0, 20, 0, cut_to=7), FutureView(0, 9, 0)) == Cut(7)
    assert move.next_step(LogView(0, 5, 0), FutureView(0, 9, 0)) == Cut(5)
    assert move.next_step(LogView(6, 20, 0), FutureView(0, 5, 0)) == Restart(6)
    assert move.next_step(LogView(6, 20, 0), FutureView(0, 9, 0)) == Advance(6)


def test_a_long_copy_is_synced_on_the_way() -> None:
    move = DirectoryMove()
    move.copied(SYNC_EVERY_BYTES)
    assert move.next_step(LogView(0, 9, 0), FutureView(0, 5, 0)) == Sync()
    move.synced()
    assert move.next_step(LogView(0, 9, 0), FutureView(0, 5, 5)) == Copy(5, at_once=False)


ENDS = st.integers(0, 12)


@given(st.lists(st.tuples(ENDS, ENDS, ENDS, ENDS, ENDS, ENDS), max_size=20))
def test_the_places_change_only_with_everything_in_both(
    states: list[tuple[int, int, int, int, int, int]],
) -> None:
    move = DirectoryMove()
    for start, end, synced, future_start, future_end, future_synced in states:
        log = LogView(min(start, end), end, min(synced, end))
        future = FutureView(min(future_start, future_end), future_end, future_synced)
        if move.next_step(log, future) == Swap():
            assert future_end == end
            assert future.log_start >= log.log_start
            assert future_synced >= log.synced_end
        move.synced()


@pytest.mark.feature("AD92")
@pytest.mark.parametrize(
    ("log", "log_end", "future", "future_end", "common"),
    [
        ([(1, 0)], 10, [(1, 0)], 8, 8),
        ([(1, 0)], 6, [(1, 0)], 8, 6),
        ([(1, 0), (3, 5)], 9, [(1, 0)], 8, 5),
        ([(1, 0), (3, 5)], 9, [(1, 0), (2, 5)], 8, 5),
        ([(1, 0), (3, 7)], 9, [(1, 0), (2, 5)], 8, 5),
        ([(1, 0)], 4, [(1, 0), (2, 5)], 8, 4),
        ([], 0, [(1, 0)], 8, 0),
        ([(4, 0)], 9, [(1, 0), (2, 5)], 8, 0),
        ([(1, 0)], 9, [], 0, 0),
    ],
)
def test_what_logs_have_in_common_is_known_by_their_epochs(
    log: list[tuple[int, int]],
    log_end: int,
    future: list[tuple[int, int]],
    future_end: int,
    common: int,
) -> None:
    assert common_end(LeaderEpochs(log), log_end, LeaderEpochs(future), future_end) == common
