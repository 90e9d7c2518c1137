"""LogBounds: how the bounds of a log move, and where two logs diverge."""

import pytest
from broker.core.bounds import NO_LAST_EPOCH, FollowerRead, LogBounds, LogState
from broker.core.leader_epochs import LeaderEpochs
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset

EPOCHS = ((1, 0), (3, 10), (4, 20))


def bounds(
    log_start: int = 0, high_watermark: int = 15, log_end: int = 30, synced_end: int = 12
) -> LogBounds:
    state = LogState(log_start, log_end, synced_end, high_watermark)
    return LogBounds(state, LeaderEpochs(EPOCHS))


def test_bounds_are_in_order() -> None:
    made = bounds()
    made.check()
    assert str(made) == "0/_15/_30"
    made.log_start = Offset(16)
    with pytest.raises(AssertionError):
        made.check()


def test_the_checkpoint_is_believed_within_the_log() -> None:
    assert bounds(high_watermark=-1).high_watermark == 0
    assert bounds(log_start=18).high_watermark == 18
    assert bounds(high_watermark=99, synced_end=99).high_watermark == 30
    assert bounds(synced_end=99).synced_end == 30


def test_only_an_empty_log_begins_inside_of_a_batch() -> None:
    empty = bounds(log_start=4, high_watermark=4, log_end=4, synced_end=4)
    assert empty.starts_within(1, 8)
    assert empty.starts_within(3, 4)
    assert not empty.starts_within(4, 8)
    assert not empty.starts_within(1, 3)
    assert not bounds(log_start=4, high_watermark=5, log_end=5).starts_within(4, 8)


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["append", "sync", "start", "follow", "cut", "empty"]), st.integers(0, 40)
    ),
    max_size=30,
)


@given(MOVES)
def test_no_move_breaks_the_order(moves: list[tuple[str, int]]) -> None:
    made = bounds()
    for move, offset in moves:
        if move == "append":
            made.log_end += offset
        elif move == "sync":
            made.synced(offset)
        elif move == "start":
            made.start_moved(min(max(offset, made.log_start), made.log_end))
        elif move == "follow":
            before = made.high_watermark
            assert made.follow(offset) == (made.high_watermark > before)
        elif move == "cut":
            made.truncated(min(offset, made.log_end), offset)
        else:
            made.started_at(offset)
        made.check()


@pytest.mark.parametrize(
    ("epoch", "end", "judged"),
    [
        (NO_LAST_EPOCH, 0, FollowerRead(ErrorCode.NONE, None)),
        (4, 30, FollowerRead(ErrorCode.NONE, None)),
        (4, 31, FollowerRead(ErrorCode.NONE, (4, 30))),
        (3, 20, FollowerRead(ErrorCode.NONE, None)),
        (3, 21, FollowerRead(ErrorCode.NONE, (3, 20))),
        (2, 10, FollowerRead(ErrorCode.NONE, (1, 10))),
        (5, 9, FollowerRead(ErrorCode.UNKNOWN_LEADER_EPOCH, None)),
        (NO_LAST_EPOCH, 31, FollowerRead(ErrorCode.OFFSET_OUT_OF_RANGE, None)),
    ],
)
def test_a_follower_goes_on_where_the_logs_agree(
    epoch: int, end: int, judged: FollowerRead
) -> None:
    assert bounds().judge_end(epoch, end) == judged


@pytest.mark.parametrize(
    ("epoch", "end", "offset"), [(4, 25, 25), (3, 15, 15), (3, 25, 20), (2, 99, 10), (9, 7, 7)]
)
def test_a_follower_cuts_where_the_logs_diverge(epoch: int, end: int, offset: int) -> None:
    assert bounds().truncation_for(epoch, end) == offset
