"""How far a move is, by the bounds of logs."""

import pytest
from tidemark.cli.cluster.reassign_watch import Copy, copy_of, percent, states
from tidemark.client.admin.admin import Reassignment, ReplicaBounds
from tidemark.model.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("leader", "own", "copy"),
    [
        ((100, 300), (0, 0), Copy(3, 200, 0)),  # it has not heard yet where the log starts
        ((100, 300), (100, 150), Copy(3, 150, 25)),
        ((100, 300), (100, 300), Copy(3, 0, 100)),
        ((100, 300), (100, 310), Copy(3, 0, 100)),  # the leader was asked a moment earlier
        ((0, 1_000), (0, 999), Copy(3, 1, 99)),
        ((5, 5), (0, 0), Copy(3, 0, 100)),
    ],
)
def test_a_copy_is_measured_from_the_leaders_start(
    leader: tuple[int, int], own: tuple[int, int], copy: Copy
) -> None:
    assert copy_of(3, ReplicaBounds(*leader), ReplicaBounds(*own)) == copy


def test_who_does_not_tell_is_shown_without_a_number() -> None:
    move = Reassignment((3, 1, 2), (3,), (2,))
    (state,) = states({ORDERS: move}, {ORDERS: 1}, {(ORDERS, 1): ReplicaBounds(0, 10)})
    assert state.copies == (Copy(3, None, None),)
    assert percent([state]) == 0
    assert (move.target, move.original) == ((3, 1), (1, 2))


def test_a_whole_is_the_mean_of_what_is_known() -> None:
    moves = {ORDERS: Reassignment((3, 4, 1), (3, 4), (1,))}
    bounds = {
        (ORDERS, 1): ReplicaBounds(0, 10),
        (ORDERS, 3): ReplicaBounds(0, 5),
        (ORDERS, 4): ReplicaBounds(0, 10),
    }
    assert percent(states(moves, {ORDERS: 1}, bounds)) == 75
