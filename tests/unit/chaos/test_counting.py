"""Elections, controller changes, expiries and gaps, counted from looks that may come late."""

from chaos.counting import (
    Elections,
    Epochs,
    Owners,
    Sessions,
    Unavailability,
    Window,
    longest_stall,
    windows,
)
from chaos.history import Partition

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def test_the_leader_first_seen_was_not_elected_meanwhile() -> None:
    elections = Elections()
    assert not elections.see(P0, 1, 5)
    assert elections.count == 0


def test_a_raised_epoch_with_a_leader_is_an_election() -> None:
    elections = Elections()
    looks = [(1, 0), (1, 0), (2, 1), (1, 0), (2, 1), (3, 4)]
    assert [elections.see(P0, *look) for look in looks] == [False, False, True, False, False, True]
    assert elections.count == 2


def test_a_raised_epoch_without_a_leader_is_none() -> None:
    elections = Elections()
    for look in [(1, 0), (-1, 1), (2, 2)]:
        elections.see(P0, *look)
    assert elections.count == 1


def test_partitions_are_counted_apart() -> None:
    elections = Elections()
    for partition, epoch in [(P0, 3), (P1, 0), (P1, 1)]:
        elections.see(partition, 1, epoch)
    assert elections.count == 1


def test_controller_changes_are_raises_since_the_first_look() -> None:
    epochs = Epochs()
    assert epochs.changes == 0
    assert [epochs.see(epoch) for epoch in (3, 3, 4, 6)] == [False, False, True, True]
    assert epochs.changes == 3


def test_a_session_that_replaced_another_of_the_same_incarnation_is_an_expiry() -> None:
    sessions = Sessions()
    looks = [("1-aa", 10), ("1-aa", 10), ("1-aa", 11), ("2-bb", 12), ("2-cc", 13)]
    assert [sessions.see(*look) for look in looks] == [False, False, True, False, False]
    assert sessions.expired == 1


def test_a_shard_with_another_coordinator_has_moved() -> None:
    owners = Owners()
    looks = [(0, 1), (1, 2), (0, -1), (0, 2), (0, 2), (1, -1), (1, 2)]
    assert [owners.see(*look) for look in looks] == [False, False, False, True] + [False] * 3
    assert owners.moves == 1


def test_gaps_longer_than_a_second_are_windows() -> None:
    found = windows(P0, [0.5, 3.0, 3.9, 1.0], end_s=6.0)
    assert [(one.began_s, round(one.length_s, 3)) for one in found] == [(1.0, 2.0), (3.9, 2.1)]


def test_a_partition_that_never_acknowledged_is_one_window() -> None:
    assert windows(P0, [], end_s=9.0) == [Window(P0, 0.0, 9.0)]


def test_the_longest_stall_may_be_at_either_end() -> None:
    assert longest_stall([4.0, 1.0, 1.5, 9.0], 5.0) == (1.5, 2.5)
    assert longest_stall([3.0, 4.0], 5.0) == (0.0, 3.0)
    assert longest_stall([1.0], 5.0) == (1.0, 4.0)


def test_unavailability_in_three_figures() -> None:
    gaps = [Window(P0, 0.0, length_s) for length_s in (2.0, 7.0, 3.0)]
    assert Unavailability.of(gaps) == Unavailability(7.0, 3.0, 3)
    assert Unavailability.of([]) == Unavailability(0.0, 0.0, 0)
